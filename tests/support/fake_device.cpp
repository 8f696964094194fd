#include "support/fake_device.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "base/rounding.h"
#include "numbers/bfloat16.h"
#include "problem/operands.h"
#include "support/elements.h"

namespace gemmtune::testing {
namespace {

constexpr std::size_t band_bytes = 256;
constexpr int band_byte = 0xc5;
constexpr std::size_t alignment = 64;

class FakeBuffer final : public Buffer {
 public:
  FakeBuffer(FakeDevice& device, std::size_t bytes, Placement placement)
      : device_(device), bytes_(bytes), placement_(placement) {
    const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
    const std::size_t room = round_up(bytes + 2 * band_bytes + alignment, page);
    mapped_bytes_ = room + page;
    mapping_ = static_cast<std::byte*>(
        mmap(nullptr, mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
    std::memset(mapping_, band_byte, mapped_bytes_);
    mprotect(mapping_ + room, page, PROT_NONE);
    data_ = placement == Placement::page_end ? mapping_ + room - bytes : mapping_ + band_bytes;
    device_.live_bytes += bytes_;
    device_.max_live_bytes = std::max(device_.max_live_bytes, device_.live_bytes);
  }
  ~FakeBuffer() override {
    munmap(mapping_, mapped_bytes_);
    device_.live_bytes -= bytes_;
  }
  void* data() const override { return data_; }
  std::size_t bytes() const override { return bytes_; }
  Status guards_intact() const override {
    if (placement_ != Placement::guarded) return {};
    const auto damaged = [](const std::byte* band) {
      return std::count_if(band, band + band_bytes, [](std::byte b) { return b != std::byte{band_byte}; });
    };
    if (const auto before = damaged(data_ - band_bytes)) return Status::invalid("{} bytes before it", before);
    if (const auto after = damaged(data_ + bytes_)) return Status::invalid("{} bytes after it", after);
    return {};
  }

 private:
  FakeDevice& device_;
  std::size_t bytes_;
  Placement placement_;
  std::byte* mapping_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  std::byte* data_ = nullptr;
};

class FakeKernel final : public Kernel {
 public:
  FakeKernel(const FakeFamilyOptions& options, const Problem& problem)
      : options_(options), problem_(problem) {}
  std::size_t workspace_bytes() const override { return options_.workspace_bytes; }
  WeightLayout weight_layout() const override { return options_.layout; }
  Status run(const Operands& operands, void* workspace, Stream) const override {
    if (!options_.run_status.ok()) return options_.run_status;
    if (options_.run) {
      options_.run(problem_, operands, workspace);
    } else if (options_.layout == WeightLayout::plain) {
      right_gemm(problem_, operands, workspace);
    } else {
      const Panel16 shape{problem_.n, problem_.k, element_size(problem_.w_type),
                          problem_.w_type == DataType::bf16 ? 2 : 1};
      std::vector<std::byte> plain(static_cast<std::size_t>(problem_.n * problem_.k * shape.element_bytes));
      unpack_panel16(shape, operands.w, plain.data());
      Operands unpacked = operands;
      unpacked.w = plain.data();
      right_gemm(problem_, unpacked, workspace);
    }
    return {};
  }
  const FakeFamilyOptions& options() const { return options_; }
  const Problem& problem() const { return problem_; }

 private:
  const FakeFamilyOptions& options_;
  Problem problem_;
};

class FakeFamily final : public LeafFamily {
 public:
  FakeFamily(FakeDevice& device, FakeFamilyOptions options) : device_(device), options_(std::move(options)) {}
  std::string_view name() const override { return options_.name; }
  int tie_rank() const override { return options_.tie_rank; }
  Status accepts(const Problem& problem) const override {
    return options_.accepts ? options_.accepts(problem) : refusal::check_order(problem, options_.orders);
  }
  std::optional<WeightLayout> packed_layout(const Problem&) const override {
    if (options_.layout == WeightLayout::plain) return std::nullopt;
    return options_.layout;
  }
  Space space(const Problem&) const override { return {}; }
  Config default_config(const Problem&) const override { return {}; }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config&) const override {
    ++device_.builds;
    if (options_.on_build) options_.on_build();
    if (!options_.build_status.ok()) return options_.build_status;
    return std::unique_ptr<Kernel>(std::make_unique<FakeKernel>(options_, problem));
  }
  Accuracy accuracy(const Problem&, const Config&) const override { return options_.accuracy; }
  std::string sum_order(const Problem&, const Config&) const override { return options_.sum_order; }
  double predicted_microseconds(const Problem&, const Config&) const override {
    return options_.predicted_us;
  }
  std::int64_t resources(const Problem&, const Config&) const override { return options_.resources; }
  std::string_view thread_pool() const override { return options_.thread_pool; }

 private:
  FakeDevice& device_;
  FakeFamilyOptions options_;
};

}  // namespace

void right_gemm(const Problem& problem, const Operands& operands, void*) {
  const OperandShapes shapes = operand_shapes(problem);
  const std::int64_t ldw = shapes.w.line_elements();
  std::vector<float> x(static_cast<std::size_t>(problem.k));
  std::vector<float> w(static_cast<std::size_t>(problem.k));
  for (std::int64_t row = 0; row < problem.m; ++row) {
    load_row(shapes.x.type, operands.x, row * shapes.x.row_step(operands.ldx), x,
             shapes.x.column_step(operands.ldx));
    for (std::int64_t column = 0; column < problem.n; ++column) {
      load_row(shapes.w.type, operands.w, column * shapes.w.row_step(ldw), w, shapes.w.column_step(ldw));
      float sum = 0;
      for (std::size_t k = 0; k < x.size(); ++k) sum += x[k] * w[k];
      store_element(problem, operands, row, column, sum);
    }
  }
}

FakeDevice::FakeDevice() {
  info_.backend = "fake";
  info_.name = "fake:0";
  info_.model = "Simulated device";
  info_.gfx = "fake-1";
  info_.cu_num = 1;
}

FakeDevice::~FakeDevice() = default;

Candidate FakeDevice::add(FakeFamilyOptions options) {
  Candidate candidate;
  candidate.family = options.name;
  families_.push_back(std::make_unique<FakeFamily>(*this, std::move(options)));
  family_pointers_.push_back(families_.back().get());
  return candidate;
}

Result<std::unique_ptr<Buffer>> FakeDevice::allocate(std::size_t bytes, Placement placement) {
  if (live_bytes + bytes > free_bytes)
    return Status::out_of_memory("{} bytes asked, {} free", bytes, free_bytes);
  return std::unique_ptr<Buffer>(std::make_unique<FakeBuffer>(*this, bytes, placement));
}

Status FakeDevice::copy_in(void* device, const void* host, std::size_t bytes) {
  std::memcpy(device, host, bytes);
  return {};
}

Status FakeDevice::copy_out(void* host, const void* device, std::size_t bytes) {
  std::memcpy(host, device, bytes);
  return {};
}

Status FakeDevice::fill(void* device, int byte, std::size_t bytes) {
  std::memset(device, byte, bytes);
  return {};
}

Result<std::size_t> FakeDevice::packed_bytes(const Problem& problem, WeightLayout layout) const {
  if (layout != WeightLayout::panel16) return Status::unsupported("the fake device packs panel16 only");
  const Panel16 shape{problem.n, problem.k, element_size(problem.w_type),
                      problem.w_type == DataType::bf16 ? 2 : 1};
  return static_cast<std::size_t>(shape.bytes());
}

Status FakeDevice::pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) {
  if (layout != WeightLayout::panel16) return Status::unsupported("the fake device packs panel16 only");
  const Panel16 shape{problem.n, problem.k, element_size(problem.w_type),
                      problem.w_type == DataType::bf16 ? 2 : 1};
  pack_panel16(shape, plain, packed);
  return {};
}

Result<double> FakeDevice::sample(const SampleRequest& request) {
  const auto* kernel = dynamic_cast<const FakeKernel*>(request.kernel);
  if (kernel == nullptr || request.rotation.empty() || request.launches < 1)
    return Status::internal("a sample without a kernel, operands or launches");
  sampled_weights.push_back(request.rotation[request.first % request.rotation.size()].w);
  launches[kernel->options().name] += request.launches;
  if (request.parallel_pass) parallel_passes += request.launches;
  if (request.processor_time) processor_times += request.launches;
  const auto& cost = kernel->options().cost;
  const bool reads = kernel->options().name == "reading";
  const double time = reads  ? reading_microseconds
                      : cost ? cost(kernel->problem(), noise, now_microseconds)
                             : 100;
  now_microseconds += time * request.launches;
  return time;
}

std::unique_ptr<Kernel> FakeDevice::reading_kernel(std::size_t) const {
  if (reading_microseconds <= 0) return nullptr;
  static const FakeFamilyOptions reading{.name = "reading",
                                         .run = [](const Problem&, const Operands&, void*) {}};
  return std::make_unique<FakeKernel>(reading, Problem());
}

Result<EnergySample> FakeDevice::sample_energy(const SampleRequest& request, double seconds) {
  const auto& options = dynamic_cast<const FakeKernel&>(*request.kernel).options();
  energy_batches.push_back(options.name);
  const Result<double> time = sample(request);
  if (!time.ok()) return time.status();
  now_microseconds += 1e6 * seconds;
  return EnergySample{*time, *time * 1e-6 * options.watts};
}

Result<Candidate> FakeDevice::baseline(const Problem&) const {
  if (baseline_.family.empty()) return Status::not_found("no vendor kernel");
  return baseline_;
}

Result<Candidate> FakeDevice::fallback(const Problem&) const {
  if (!baseline_.family.empty()) return baseline_;
  if (families_.empty()) return Status::not_found("no family");
  Candidate candidate;
  candidate.family = std::string(family_pointers_.front()->name());
  return candidate;
}

}  // namespace gemmtune::testing
