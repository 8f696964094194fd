// One GPU's context: loads and launches programs, allocates, copies.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/cuda/libraries.h"
#include "backends/gpu/jit/compile_queue.h"
#include "backends/gpu/jit/kernel_cache.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

struct RuntimeOptions {
  int ordinal = 0;
  std::string cache_folder;
  bool rebuild = false;
  std::string library_folder;
};

/// Safe from any thread. Uses the device's primary context, which CUDA's own libraries use too.
class CudaRuntime final : public gpu::Runtime {
 public:
  static Result<std::unique_ptr<CudaRuntime>> open(const RuntimeOptions& options);
  ~CudaRuntime() override;
  CudaRuntime(const CudaRuntime&) = delete;
  CudaRuntime& operator=(const CudaRuntime&) = delete;

  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override;
  /// The source under its key. Requires compiles().ok().
  gpu::KeyedSource keyed(gpu::Source source) const;
  /// These will be loaded next, in this order: they are compiled on other cores. Replaces what was asked for
  /// before and has not begun.
  void compile_ahead(std::vector<gpu::KeyedSource> sources);

  /// Makes the context the calling thread's.
  void enter() const { driver_.context_set(context_); }
  const api::Driver& driver() const { return driver_; }
  /// What a call without a stream runs on.
  api::CudaStream stream() const { return stream_; }
  api::CudaStream stream_of(Stream stream) const {
    return stream.handle != nullptr ? static_cast<api::CudaStream>(stream.handle) : stream_;
  }
  int ordinal() const { return options_.ordinal; }
  int compute_capability() const { return capability_; }  // 90
  /// Whether the driver starts a kernel before the one in front of it has ended, also in a graph.
  bool launches_dependents() const { return launches_dependents_; }
  /// Why there is no compiler; ok where there is one.
  Status compiles() const { return compiler_status_; }

 private:
  CudaRuntime(const api::Driver& driver, RuntimeOptions options);
  Status start();
  void count_clusters();

  const api::Driver& driver_;
  RuntimeOptions options_;
  api::Device device_ = 0;
  api::Context context_ = nullptr;
  api::CudaStream stream_ = nullptr;
  gpu::Limits limits_;
  int capability_ = 0;
  bool launches_dependents_ = false;
  std::string architecture_;
  std::unique_ptr<gpu::Compiler> compiler_;
  Status compiler_status_;
  gpu::KernelCache cache_;
  std::unique_ptr<gpu::CompileQueue> queue_;  // where there is a compiler
  std::mutex loading_;
  std::map<std::string, std::shared_ptr<gpu::Program>> programs_;  // by cache key; guarded by loading_
};

/// "sm_90a" for 90: where an architecture has features of its own, those of the `a` form.
std::string nvrtc_architecture(int compute_capability);

}  // namespace gemmtune::cuda
