// A GPU that compiles, keeps and launches programs, over any driver and compiler.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "backends/gpu/driver.h"
#include "backends/gpu/jit/compile_queue.h"
#include "backends/gpu/jit/kernel_cache.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

class GpuRuntime final : public Runtime {
 public:
  /// `compiler`: or why there is none; then load() answers that. `compile_threads` compile ahead; 0: one a core
  /// but one.
  GpuRuntime(std::unique_ptr<Driver> driver, Result<std::unique_ptr<Compiler>> compiler, KernelCache cache,
             int compile_threads = 0);
  ~GpuRuntime() override;
  GpuRuntime(const GpuRuntime&) = delete;
  GpuRuntime& operator=(const GpuRuntime&) = delete;

  const Limits& limits() const override { return driver_->properties().limits; }
  const std::string& architecture() const override { return driver_->properties().architecture; }
  Result<std::shared_ptr<Program>> load(const Source& source) override;
  /// The source under its key. Requires compiles().ok().
  KeyedSource keyed(Source source) const;
  /// These will be loaded next, in this order: they are compiled on other cores. Replaces what was ordered
  /// before and has not begun.
  void compile_ahead(std::vector<KeyedSource> sources);

  Driver& driver() const { return *driver_; }
  /// Why there is no compiler; ok where there is one.
  const Status& compiles() const { return compiler_status_; }

 private:
  std::unique_ptr<Driver> driver_;
  std::unique_ptr<Compiler> compiler_;
  Status compiler_status_;
  KernelCache cache_;
  std::unique_ptr<CompileQueue> queue_;  // where there is a compiler
  std::mutex loading_;
  std::map<std::string, std::shared_ptr<Program>> programs_;  // by cache key; guarded by loading_
};

}  // namespace gemmtune::gpu
