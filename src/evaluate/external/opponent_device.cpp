#include "evaluate/external/opponent_device.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "backends/forwarding_family.h"
#include "backends/host.h"
#include "backends/traits.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune {
namespace {

constexpr std::string_view opponent_pool = "opponent";
constexpr std::size_t page_bytes = 4096;

/// Bytes from the first line of a matrix to the end of the last.
std::size_t spanned_bytes(const MatrixShape& shape, std::int64_t leading) {
  if (shape.count == 0 || shape.lines() == 0) return 0;
  return static_cast<std::size_t>(
      bytes_of(shape.type, (shape.lines() - 1) * leading + shape.line_elements()));
}

/// Ranges of our memory with copies in the evaluator's.
class Mirror {
 public:
  explicit Mirror(Device& remote) : remote_(remote) {}

  void add(const void* begin, std::size_t bytes) {
    if (begin == nullptr || bytes == 0) return;
    const auto* const first = static_cast<const std::byte*>(begin);
    ranges_.push_back({first, first + bytes, nullptr});
  }

  /// Once, after the last add().
  Status copy() {
    std::ranges::sort(ranges_, [](const Range& a, const Range& b) { return a.begin < b.begin; });
    // The copies of a pool, a few bytes apart, are one range: what lies between is on a page of one of them.
    std::vector<Range> joined;
    for (Range& range : ranges_) {
      const bool touches = !joined.empty() && address(range.begin) <= round_up(address(joined.back().end),
                                                                               std::uintptr_t{page_bytes});
      if (touches) {
        joined.back().end = std::max(joined.back().end, range.end);
      } else {
        joined.push_back(std::move(range));
      }
    }
    ranges_ = std::move(joined);
    for (Range& range : ranges_) {
      const auto bytes = static_cast<std::size_t>(range.end - range.begin);
      GEMMTUNE_TRY(range.copy, remote_.allocate(bytes, Placement::plain));
      GEMMTUNE_RETURN_IF_ERROR(remote_.copy_in(range.copy->data(), range.begin, bytes));
    }
    return {};
  }

  /// The copy of what is at `ours`, which was added; null for null.
  void* at(const void* ours) const {
    if (ours == nullptr) return nullptr;
    const auto* const place = static_cast<const std::byte*>(ours);
    auto after = std::upper_bound(ranges_.begin(), ranges_.end(), place,
                                  [](const std::byte* at, const Range& range) { return at < range.begin; });
    const Range& range = *--after;
    return static_cast<std::byte*>(range.copy->data()) + (place - range.begin);
  }

 private:
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    std::unique_ptr<Buffer> copy;
  };
  static std::uintptr_t address(const std::byte* at) { return reinterpret_cast<std::uintptr_t>(at); }

  Device& remote_;
  std::vector<Range> ranges_;
};

void add_operands(const OperandShapes& shapes, const Operands& operands, Mirror& mirror) {
  mirror.add(operands.x, spanned_bytes(shapes.x, operands.ldx));
  mirror.add(operands.w, static_cast<std::size_t>(shapes.w.bytes()));
  mirror.add(operands.bias, static_cast<std::size_t>(shapes.bias.bytes()));
  mirror.add(operands.y, spanned_bytes(shapes.y, operands.ldy));
}

Operands mirrored(const Operands& operands, const Mirror& mirror) {
  Operands copy = operands;
  copy.x = mirror.at(operands.x);
  copy.w = mirror.at(operands.w);
  copy.bias = mirror.at(operands.bias);
  copy.y = mirror.at(operands.y);
  return copy;
}

class OpponentKernel final : public Kernel {
 public:
  OpponentKernel(Device& remote, std::unique_ptr<Kernel> kernel, const Problem& problem)
      : remote_(remote), kernel_(std::move(kernel)), shapes_(operand_shapes(problem)) {}

  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }

  Status run(const Operands& operands, void*, Stream stream) const override {
    Mirror mirror(remote_);
    add_operands(shapes_, operands, mirror);
    GEMMTUNE_RETURN_IF_ERROR(mirror.copy());
    GEMMTUNE_RETURN_IF_ERROR(kernel_->run(mirrored(operands, mirror), nullptr, stream));
    return remote_.copy_out(operands.y, mirror.at(operands.y), spanned_bytes(shapes_.y, operands.ldy));
  }

  /// On copies of the rotation, which are made anew where it is another one than the last.
  Result<double> sample(const SampleRequest& request) const {
    if (!std::equal(ours_.begin(), ours_.end(), request.rotation.begin(), request.rotation.end())) {
      theirs_.clear();
      ours_.clear();
      copies_ = std::make_unique<Mirror>(remote_);
      for (const Operands& operands : request.rotation) add_operands(shapes_, operands, *copies_);
      GEMMTUNE_RETURN_IF_ERROR(copies_->copy());
      for (const Operands& operands : request.rotation) theirs_.push_back(mirrored(operands, *copies_));
      ours_.assign(request.rotation.begin(), request.rotation.end());
    }
    SampleRequest remote = request;
    remote.kernel = kernel_.get();
    remote.rotation = theirs_;
    remote.workspace = nullptr;
    return remote_.sample(remote);
  }

 private:
  Device& remote_;
  std::unique_ptr<Kernel> kernel_;
  OperandShapes shapes_;
  // Of sample(), which one thread at a time calls.
  mutable std::unique_ptr<Mirror> copies_;
  mutable std::vector<Operands> ours_;
  mutable std::vector<Operands> theirs_;
};

class OpponentFamily final : public ForwardingFamily {
 public:
  OpponentFamily(Device& remote, const KernelFamily& family) : ForwardingFamily(family), remote_(remote) {}

  Status accepts(const Problem& problem) const override {
    if (problem.operation != Operation::a16w16)
      return Status::unsupported("operation: an opponent has a16w16 alone");
    return ForwardingFamily::accepts(problem);
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    GEMMTUNE_TRY(auto kernel, ForwardingFamily::build(problem, config));
    return std::make_unique<OpponentKernel>(remote_, std::move(kernel), inner_problem(problem));
  }
  std::string_view thread_pool() const override { return opponent_pool; }

 private:
  /// A user of the opponent has plain weights.
  Problem inner_problem(const Problem& problem) const override {
    Problem plain = problem;
    plain.weight_layout = WeightLayout::plain;
    return plain;
  }

  Device& remote_;
};

class OpponentDevice final : public ForwardingDevice {
 public:
  OpponentDevice(std::unique_ptr<Device> device, std::unique_ptr<Device> remote)
      : ForwardingDevice(*device),
        device_(std::move(device)),
        remote_(std::move(remote)),
        family_(*remote_, *remote_->families().front()),
        families_(device_->families().begin(), device_->families().end()),
        info_(device_->info()) {
    families_.push_back(&family_);
    info_.opponent = family_.name();
    for (const Library& library : remote_->info().libraries) {
      info_.opponent_text += (info_.opponent_text.empty() ? "" : ", ") + library.text();
      info_.libraries.push_back(library);
    }
    if (info_.opponent_text.empty()) info_.opponent_text = info_.opponent;
  }

  const DeviceInfo& info() const override { return info_; }
  std::span<const KernelFamily* const> families() const override { return families_; }
  Status health() const override {
    GEMMTUNE_RETURN_IF_ERROR(remote_->health());
    return ForwardingDevice::health();
  }
  Result<double> sample(const SampleRequest& request) override {
    const auto* const opponents = dynamic_cast<const OpponentKernel*>(request.kernel);
    return opponents != nullptr ? opponents->sample(request) : ForwardingDevice::sample(request);
  }
  Result<EnergySample> sample_energy(const SampleRequest& request, double seconds) override {
    if (dynamic_cast<const OpponentKernel*>(request.kernel) != nullptr)
      return Status::unsupported("no joules are counted of an opponent");
    return ForwardingDevice::sample_energy(request, seconds);
  }
  Result<Candidate> baseline(const Problem& problem) const override {
    if (!family_.accepts(problem).ok()) return ForwardingDevice::baseline(problem);
    return Candidate{std::string(family_.name()), family_.revision(), family_.default_config(problem)};
  }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Device> remote_;
  OpponentFamily family_;
  std::vector<const KernelFamily*> families_;
  DeviceInfo info_;
};

}  // namespace

Result<std::unique_ptr<Device>> with_opponent(std::unique_ptr<Device> device, const std::string& command,
                                              double seconds) {
  if (!traits_of(device->info()).runs_on_host) {
    return Status::unsupported("a baseline that an evaluator runs is for the machine's own cores, not for {}",
                               device->info().name);
  }
  std::unique_ptr<Device> remote;
  {
    const CoresOfChildren cores(device->info());
    GEMMTUNE_TRY(remote, ExternalDevice::open(command, seconds));
  }
  const std::string_view family = remote->families().front()->name();
  if (device->find_family(family) != nullptr)
    return Status::invalid("evaluator '{}': {} has a family {} of its own; give it another name", command,
                           device->info().name, family);
  return std::make_unique<OpponentDevice>(std::move(device), std::move(remote));
}

}  // namespace gemmtune
