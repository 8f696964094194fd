// all_backends() of gemmtune_simulated: the program's commands on a CPU whose clock is simulated. Families, spaces, kernels
// and their outputs are those of the CPU here; a sample is what the family's cost model predicts, with seeded noise, and
// costs no time. So what a command decides is the same in every run and on a busy machine.
#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/forwarding_device.h"
#include "backends/forwarding_family.h"
#include "base/random.h"

namespace gemmtune {
namespace {

constexpr double noise = 0.01;                              // of one sample, to either side
constexpr double vendor_operations_per_microsecond = 20e3;  // vendors' families have no cost model
constexpr std::size_t cache_bytes = 1 << 16;
constexpr double watts = 100;

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

class SimulatedFamily final : public ForwardingFamily {
 public:
  explicit SimulatedFamily(const KernelFamily& family) : ForwardingFamily(family) {}
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    auto kernel = ForwardingFamily::build(problem, config);
    if (!kernel.ok()) return kernel.status();
    const double predicted = predicted_microseconds(problem, config);
    const double time = predicted > 0 ? predicted : 1 + flops(problem) / vendor_operations_per_microsecond;
    return std::unique_ptr<Kernel>(std::make_unique<SimulatedKernel>(std::move(*kernel), time));
  }
};

class SimulatedDevice final : public ForwardingDevice {
 public:
  explicit SimulatedDevice(std::unique_ptr<Device> device)
      : ForwardingDevice(*device), device_(std::move(device)) {
    families_.reserve(device_->families().size());
    for (const KernelFamily* family : device_->families()) families_.emplace_back(*family);
    for (const SimulatedFamily& family : families_) pointers_.push_back(&family);
  }
  std::span<const KernelFamily* const> families() const override { return pointers_; }
  Result<double> sample(const SampleRequest& request) override {
    return microseconds_of(request) * (1 + noise * (2 * random_.uniform() - 1));
  }
  /// In proportion to the time, where the CPU counts joules. Takes no time either.
  Result<EnergySample> sample_energy(const SampleRequest& request, double) override {
    GEMMTUNE_RETURN_IF_ERROR(counts_energy());
    const double time = microseconds_of(request);
    return EnergySample{time, 1e-6 * watts * time * (1 + noise * (2 * random_.uniform() - 1))};
  }
  std::map<std::string, double> observe() override { return {}; }
  /// Nothing to wait for: no clock runs, and a thread that waits for a processor makes no sample longer.
  void quiesce(std::string_view) override {}
  void begin_processor_waits() override {}
  double processor_waits() override { return 0; }
  bool gather_threads() override { return true; }
  std::size_t last_level_cache_bytes() override { return cache_bytes; }

 private:
  static double microseconds_of(const SampleRequest& request) {
    return static_cast<const SimulatedKernel&>(*request.kernel).microseconds();
  }

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
