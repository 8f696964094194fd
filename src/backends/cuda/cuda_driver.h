// gpu::Driver over libcuda, and what only CUDA has beside it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/hopper_launch.h"
#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/library_driver.h"

namespace gemmtune::cuda {

/// While it exists, this thread's calls do not end a capture into a graph that the caller has begun on a stream of his:
/// cuMemAlloc or cuModuleLoadData would, on any thread, if the capture is in CUDA's global mode (PyTorch's).
class CaptureUntouched {
 public:
  explicit CaptureUntouched(const api::Driver& functions) : exchange_(functions.exchange_capture_mode) {
    exchange_(&mode_);
  }
  ~CaptureUntouched() { exchange_(&mode_); }
  CaptureUntouched(const CaptureUntouched&) = delete;
  CaptureUntouched& operator=(const CaptureUntouched&) = delete;

 private:
  decltype(api::Driver::exchange_capture_mode) exchange_;
  int mode_ = api::capture_mode_relaxed;
};

/// What gpu::LibraryDriver asks of libcuda.
struct DriverLibrary {
  using Functions = api::Driver;
  using DevicePointer = api::DevicePointer;
  using MemoryHandle = api::MemoryHandle;
  using MemoryProperties = api::MemoryProperties;
  using Untouched = CaptureUntouched;
  static constexpr std::string_view prefix = "cu";
  static constexpr std::string_view allocation = "cuMemAlloc";
  static Status status(api::Result result, std::string_view what);
  static void forget_error(const api::Driver&) {}
};

/// Uses the device's primary context, which CUDA's own libraries use too.
class CudaDriver final : public gpu::LibraryDriver<DriverLibrary> {
 public:
  /// Over the functions of an initialized libcuda (libraries.h: driver()).
  static Result<std::unique_ptr<CudaDriver>> open(const api::Driver& functions, int ordinal);
  /// Without a device: kernels can be compiled for one, and not be loaded. `clusters`: of that one.
  explicit CudaDriver(const api::Driver& functions, const ClusterCounts& clusters = {})
      : LibraryDriver(functions), clusters_(clusters) {}
  ~CudaDriver() override;

  const api::Driver& functions() const { return f_; }
  int compute_capability() const { return capability_; }  // 90
  const ClusterCounts& clusters() const { return clusters_; }
  /// How many clusters of such a launch run at the same time (its grid does not matter). 0: not known.
  int clusters_at_once(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape) const;

  std::map<std::string, double> observe() const override;
  Result<double> joules() const override;
  void enter() const override { f_.context_set(context_); }

  Status synchronize() override;

  Status reserve_shared(const gpu::LoadedKernel& kernel, std::size_t bytes) override;
  Status launch(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape, void** arguments,
                Stream stream) override;

  /// From Hopper on, if the driver can capture such launches.
  const gpu::LaunchExtension* dependent_launch() const override {
    return dependent_launches_ && capability_ >= 90 ? &starts_early() : nullptr;
  }

  Status record(gpu::Event event, Stream stream) override;

 private:
  using Attributes = std::array<api::LaunchAttribute, 3>;

  Status start(int ordinal);
  void count_clusters();
  /// A number that a card may lack; 0: it does.
  double stated(int attribute) const;
  /// The device as NVML has it; null where NVML is missing or does not know it.
  api::NvmlDevice monitored() const;
  api::LaunchConfig config_of(const gpu::LaunchShape& shape, Attributes& attributes) const;

  api::Device device_ = 0;
  api::Context context_ = nullptr;
  int capability_ = 0;
  bool dependent_launches_ = false;  // whether the driver has them, in graphs too
  ClusterCounts clusters_{};
  mutable std::once_flag looked_up_;
  mutable api::NvmlDevice monitored_ = nullptr;
};

/// The driver of a family that the cuda backend makes.
inline const CudaDriver& driver_of(const gpu::FamilyContext& context) {
  return static_cast<const CudaDriver&>(context.driver);
}

/// "sm_90a" for 90: where an architecture has features of its own, those of the `a` form.
std::string nvrtc_architecture(int compute_capability);

}  // namespace gemmtune::cuda

extern template class gemmtune::gpu::LibraryDriver<gemmtune::cuda::DriverLibrary>;
