// silu_and_mul on a GPU: one small kernel, compiled at the first call of a type.
#pragma once

#include <array>
#include <memory>
#include <mutex>

#include "backends/gpu/driver.h"
#include "backends/gpu/runtime.h"
#include "backends/silu_and_mul.h"

namespace gemmtune::gpu {

/// `dependent`: for a programmatic dependent launch.
Source silu_and_mul_source(DataType type, bool dependent);

/// Safe from any thread. `runtime` must outlive it.
class SiluAndMulKernels {
 public:
  /// `dependent`: Driver::dependent_launch().
  SiluAndMulKernels(Runtime& runtime, const LaunchExtension* dependent)
      : runtime_(runtime), dependent_(dependent) {}

  /// Whether run() of this type compiles and loads nothing.
  bool is_loaded(DataType type) const;
  /// Enqueues. Requires a call that check() takes, with pointers at multiples of an element. `unsupported` without a compiler.
  Status run(const SiluAndMul& call, Stream stream);

 private:
  Result<std::shared_ptr<Program>> program(DataType type);

  Runtime& runtime_;
  const LaunchExtension* dependent_;
  mutable std::mutex loading_;
  std::array<std::shared_ptr<Program>, 3> programs_;  // by element_code(); guarded by loading_
};

}  // namespace gemmtune::gpu
