// Families whose kernels are compiled at run time: what they compile can be had without building.
#pragma once

#include <vector>

#include "backends/backend.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

class CompiledFamily : public KernelFamily {
 public:
  /// What build() gives to Runtime::load; requires what build() requires.
  virtual Source source(const Problem& problem, const Config& config) const = 0;
  /// All of them, where a kernel is made of several programs.
  virtual std::vector<Source> sources(const Problem& problem, const Config& config) const {
    return {source(problem, config)};
  }
};

}  // namespace gemmtune::gpu
