// Families whose kernels are compiled at run time: what they compile can be had without building.
#pragma once

#include "backends/backend.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

class CompiledFamily : public KernelFamily {
 public:
  /// What build() gives to Runtime::load; requires what build() requires.
  virtual Source source(const Problem& problem, const Config& config) const = 0;
};

}  // namespace gemmtune::gpu
