// all_backends() of gemmtune_simulated: the program's commands on a CPU whose clock is simulated. Families, spaces, kernels
// and their outputs are those of the CPU here; a sample is what the family's cost model predicts, with seeded noise, and
// costs no time. So what a command decides is the same in every run and on a busy machine.
#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/output_checker.h"
#include "base/random.h"

namespace gemmtune {
namespace {

constexpr double noise = 0.01;                              // of one sample, to either side
constexpr double vendor_operations_per_microsecond = 20e3;  // vendors' families have no cost model
constexpr std::size_t cache_bytes = 1 << 16;

class SimulatedKernel final : public Kernel {
 public:
  SimulatedKernel(std::unique_ptr<Kernel> kernel, double microseconds)
      : kernel_(std::move(kernel)), microseconds_(microseconds) {}
  double microseconds() const { return microseconds_; }
  std::size_t workspace_bytes() const override { return kernel_->workspace_bytes(); }
  WeightLayout weight_layout() const override { return kernel_->weight_layout(); }
  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    return kernel_->run(operands, workspace, stream);
  }

 private:
  std::unique_ptr<Kernel> kernel_;
  double microseconds_;
};

class SimulatedFamily final : public KernelFamily {
 public:
  explicit SimulatedFamily(const KernelFamily& family) : family_(family) {}
  std::string_view name() const override { return family_.name(); }
  int revision() const override { return family_.revision(); }
  std::string identity() const override { return family_.identity(); }
  int tie_rank() const override { return family_.tie_rank(); }
  Status accepts(const Problem& problem) const override { return family_.accepts(problem); }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    return family_.packed_layout(problem);
  }
  Space space(const Problem& problem) const override { return family_.space(problem); }
  Space exhaustive_space(const Problem& problem) const override { return family_.exhaustive_space(problem); }
  Config default_config(const Problem& problem) const override { return family_.default_config(problem); }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    auto kernel = family_.build(problem, config);
    if (!kernel.ok()) return kernel.status();
    const double predicted = family_.predicted_microseconds(problem, config);
    const double time = predicted > 0 ? predicted : 1 + flops(problem) / vendor_operations_per_microsecond;
    return std::unique_ptr<Kernel>(std::make_unique<SimulatedKernel>(std::move(*kernel), time));
  }
  double predicted_microseconds(const Problem& problem, const Config& config) const override {
    return family_.predicted_microseconds(problem, config);
  }
  std::int64_t resources(const Problem& problem, const Config& config) const override {
    return family_.resources(problem, config);
  }
  std::string_view thread_pool() const override { return family_.thread_pool(); }

 private:
  const KernelFamily& family_;
};

class SimulatedDevice final : public Device {
 public:
  explicit SimulatedDevice(std::unique_ptr<Device> device) : device_(std::move(device)) {
    families_.reserve(device_->families().size());
    for (const KernelFamily* family : device_->families()) families_.emplace_back(*family);
    for (const SimulatedFamily& family : families_) pointers_.push_back(&family);
  }
  const DeviceInfo& info() const override { return device_->info(); }
  std::span<const KernelFamily* const> families() const override { return pointers_; }
  Result<std::unique_ptr<Buffer>> allocate(std::size_t bytes, Placement placement) override {
    return device_->allocate(bytes, placement);
  }
  Status copy_in(void* device, const void* host, std::size_t bytes) override {
    return device_->copy_in(device, host, bytes);
  }
  Status copy_out(void* host, const void* device, std::size_t bytes) override {
    return device_->copy_out(host, device, bytes);
  }
  Status fill(void* device, int byte, std::size_t bytes) override {
    return device_->fill(device, byte, bytes);
  }
  Status synchronize() override { return device_->synchronize(); }
  Result<std::size_t> packed_bytes(const Problem& problem, WeightLayout layout) const override {
    return device_->packed_bytes(problem, layout);
  }
  Status pack_weight(const Problem& problem, WeightLayout layout, const void* plain, void* packed) override {
    return device_->pack_weight(problem, layout, plain, packed);
  }
  Status unpack_weight(const Problem& problem, WeightLayout layout, const void* packed,
                       void* plain) const override {
    return device_->unpack_weight(problem, layout, packed, plain);
  }
  Result<double> sample(const SampleRequest& request) override {
    const double time = static_cast<const SimulatedKernel&>(*request.kernel).microseconds();
    return time * (1 + noise * (2 * random_.uniform() - 1));
  }
  bool times_single_calls() const override { return device_->times_single_calls(); }
  std::size_t last_level_cache_bytes() override { return cache_bytes; }
  std::size_t free_memory_bytes() override { return device_->free_memory_bytes(); }
  Result<Candidate> baseline(const Problem& problem) const override { return device_->baseline(problem); }
  Result<Candidate> fallback(const Problem& problem) const override { return device_->fallback(problem); }

 private:
  std::unique_ptr<Device> device_;
  std::vector<SimulatedFamily> families_;
  std::vector<const KernelFamily*> pointers_;
  Random random_{1};
};

class SimulatedBackend final : public Backend {
 public:
  std::string_view name() const override { return cpu::cpu_backend().name(); }
  const DeviceTraits& traits() const override { return cpu::cpu_backend().traits(); }
  Status available() const override { return cpu::cpu_backend().available(); }
  std::vector<DeviceInfo> devices(const DeviceRequest& request) const override {
    return cpu::cpu_backend().devices(request);
  }
  Result<std::unique_ptr<Device>> open(const DeviceRequest& request) const override {
    auto device = cpu::cpu_backend().open(request);
    if (!device.ok()) return device.status();
    return std::unique_ptr<Device>(std::make_unique<SimulatedDevice>(std::move(*device)));
  }
};

}  // namespace

std::span<const Backend* const> all_backends() {
  static const SimulatedBackend cpu;
  static const std::array<const Backend*, 1> list{&cpu};
  return list;
}

}  // namespace gemmtune
