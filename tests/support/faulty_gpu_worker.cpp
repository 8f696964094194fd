// A worker program whose GPU has two families more: `illegal` writes where nothing is mapped, `endless` never
// ends. Everything else is the GPU's own.
#include <memory>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/forwarding_device.h"
#include "evaluate/worker/worker_main.h"

namespace gemmtune {
namespace {

class FaultyKernel final : public Kernel {
 public:
  FaultyKernel(std::shared_ptr<gpu::Program> program, bool ends)
      : program_(std::move(program)), ends_(ends) {}
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands& operands, void*, Stream stream) const override {
    // An address that no allocation has.
    void* at = ends_ ? reinterpret_cast<void*>(std::uintptr_t{0x10}) : operands.y;
    void* arguments[] = {&at};
    return program_->launch({}, arguments, stream);
  }

 private:
  std::shared_ptr<gpu::Program> program_;
  bool ends_;
};

class FaultyFamily final : public LeafFamily {
 public:
  FaultyFamily(gpu::Runtime& runtime, std::string name, std::string text, bool ends)
      : runtime_(runtime), name_(std::move(name)), text_(std::move(text)), ends_(ends) {}
  std::string_view name() const override { return name_; }
  int tie_rank() const override { return 99; }
  Status accepts(const Problem&) const override { return {}; }
  std::optional<WeightLayout> packed_layout(const Problem&) const override { return std::nullopt; }
  Space space(const Problem&) const override { return {}; }
  Config default_config(const Problem&) const override { return {}; }
  Result<std::unique_ptr<Kernel>> build(const Problem&, const Config&) const override {
    auto program = runtime_.load({name_, text_, {}, "k"});
    if (!program.ok()) return program.status();
    return std::unique_ptr<Kernel>(std::make_unique<FaultyKernel>(std::move(*program), ends_));
  }
  std::string_view thread_pool() const override { return "gpu"; }

 private:
  gpu::Runtime& runtime_;
  std::string name_;
  std::string text_;
  bool ends_;
};

/// Another device with families added.
class FaultyGpu final : public ForwardingDevice {
 public:
  FaultyGpu(std::unique_ptr<Device> real, std::unique_ptr<gpu::GpuRuntime> runtime)
      : ForwardingDevice(*real), runtime_(std::move(runtime)), real_(std::move(real)) {
    faulty_.push_back(std::make_unique<FaultyFamily>(
        *runtime_, "illegal", "extern \"C\" __global__ void k(int* p) { *p = 1; }\n", true));
    faulty_.push_back(std::make_unique<FaultyFamily>(
        *runtime_, "endless",
        "extern \"C\" __global__ void k(volatile int* p) { while (*p != 0x7fedcba9) __nanosleep(1000); }\n",
        false));
    for (const KernelFamily* family : real_->families()) families_.push_back(family);
    for (const auto& family : faulty_) families_.push_back(family.get());
  }
  std::span<const KernelFamily* const> families() const override { return families_; }

 private:
  std::unique_ptr<gpu::GpuRuntime> runtime_;
  std::unique_ptr<Device> real_;
  std::vector<std::unique_ptr<KernelFamily>> faulty_;
  std::vector<const KernelFamily*> families_;
};

Result<std::unique_ptr<Device>> open_faulty(const std::string& backend, const DeviceRequest& request) {
  auto device = open_device(backend, request);
  if (!device.ok()) return device.status();
  DeviceRequest uncached;
  uncached.module_folder = request.module_folder;
  auto runtime = cuda::open_runtime(0, uncached);
  if (!runtime.ok()) return runtime.status();
  return std::unique_ptr<Device>(std::make_unique<FaultyGpu>(std::move(*device), std::move(*runtime)));
}

}  // namespace
}  // namespace gemmtune

int main() { return gemmtune::run_worker(gemmtune::open_faulty); }
