// Families whose kernels are compiled at run time: what they compile can be had without building.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

class CompiledFamily : public LeafFamily {
 public:
  /// What build() gives to Runtime::load, all programs of the kernel, the main one first; requires what build() requires.
  virtual std::vector<Source> sources(const Problem& problem, const Config& config) const = 0;
};

}  // namespace gemmtune::gpu
