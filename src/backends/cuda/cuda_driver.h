// gpu::Driver over libcuda, and what only CUDA has beside it.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "backends/cuda/cuda_api.h"
#include "backends/cuda/hopper_launch.h"
#include "backends/gpu/driver.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

/// Uses the device's primary context, which CUDA's own libraries use too.
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

class CudaDriver final : public gpu::Driver {
 public:
  /// Over the functions of an initialized libcuda (libraries.h: driver()).
  static Result<std::unique_ptr<CudaDriver>> open(const api::Driver& functions, int ordinal);
  /// Without a device: kernels can be compiled for one, and not be loaded. `clusters`: of that one.
  explicit CudaDriver(const api::Driver& functions, const ClusterCounts& clusters = {})
      : f_(functions), clusters_(clusters) {}
  ~CudaDriver() override;
  CudaDriver(const CudaDriver&) = delete;
  CudaDriver& operator=(const CudaDriver&) = delete;

  const api::Driver& functions() const { return f_; }
  int compute_capability() const { return capability_; }  // 90
  const ClusterCounts& clusters() const { return clusters_; }
  /// How many clusters of such a launch run at the same time (its grid does not matter). 0: not known.
  int clusters_at_once(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape) const;
  api::CudaStream stream_of(Stream stream) const {
    return stream.handle != nullptr ? static_cast<api::CudaStream>(stream.handle) : stream_;
  }

  const gpu::Properties& properties() const override { return properties_; }
  std::map<std::string, double> observe() const override;
  Result<double> joules() const override;
  void enter() const override { f_.context_set(context_); }

  std::size_t free_memory_bytes() override;
  Result<void*> allocate(std::size_t bytes) override;
  void free(void* memory) override;
  Result<gpu::Mapping> map_page_end(std::size_t bytes) override;
  void unmap(const gpu::Mapping& mapping) override;
  Status copy_in(void* device, const void* host, std::size_t bytes) override;
  Status copy_out(void* host, const void* device, std::size_t bytes) override;
  Status copy_within(void* to, const void* from, std::size_t bytes) override;
  Status fill(void* device, int byte, std::size_t bytes) override;
  Status synchronize() override;

  Result<gpu::LoadedKernel> load(const std::string& code, const std::string& kernel) override;
  void unload(const gpu::LoadedKernel& kernel) override;
  Status reserve_shared(const gpu::LoadedKernel& kernel, std::size_t bytes) override;
  Status launch(const gpu::LoadedKernel& kernel, const gpu::LaunchShape& shape, void** arguments,
                Stream stream) override;

  /// From Hopper on, if the driver can capture such launches.
  const gpu::LaunchExtension* dependent_launch() const override {
    return dependent_launches_ && capability_ >= 90 ? &starts_early() : nullptr;
  }

  Stream own_stream() const override { return {stream_}; }
  Status wait(Stream stream) override;
  bool is_capturing(Stream stream) override;
  Status begin_capture(Stream stream) override;
  Result<gpu::Graph> end_capture(Stream stream) override;
  void abandon_capture(Stream stream) override;
  Status launch_graph(gpu::Graph graph, Stream stream) override;
  void destroy(gpu::Graph graph) override;
  Result<gpu::Event> create_event() override;
  void destroy(gpu::Event event) override;
  Status record(gpu::Event event, Stream stream) override;
  Result<double> milliseconds_between(gpu::Event begin, gpu::Event end) override;

 private:
  using Attributes = std::array<api::LaunchAttribute, 3>;

  Status start(int ordinal);
  void count_clusters();
  /// A number that a card may lack; 0: it does.
  double stated(int attribute) const;
  /// The device as NVML has it; null where NVML is missing or does not know it.
  api::NvmlDevice monitored() const;
  api::LaunchConfig config_of(const gpu::LaunchShape& shape, Attributes& attributes) const;
  Status map(gpu::Mapping& mapping, std::size_t bytes);

  api::Driver f_;
  int ordinal_ = 0;
  api::Device device_ = 0;
  api::Context context_ = nullptr;
  api::CudaStream stream_ = nullptr;
  int capability_ = 0;
  bool dependent_launches_ = false;  // whether the driver has them, in graphs too
  ClusterCounts clusters_{};
  gpu::Properties properties_;
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
