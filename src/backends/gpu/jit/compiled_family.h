// Families whose kernels are compiled at run time: what they compile can be had without building.
#pragma once

#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/runtime.h"
#include "candidates/space.h"

namespace gemmtune::gpu {

class CompiledFamily : public LeafFamily {
 public:
  /// What build() gives to Runtime::load; requires what build() requires.
  virtual Source source(const Problem& problem, const Config& config) const = 0;
  /// All of them, where a kernel is made of several programs.
  virtual std::vector<Source> sources(const Problem& problem, const Config& config) const {
    return {source(problem, config)};
  }

 protected:
  /// Refuses in a search what the cost model says takes more than `times` as long as the default. Holds this family.
  Constraint refuse_slow(const Problem& problem, double times) const {
    const double slowest = times * predicted_microseconds(problem, default_config(problem));
    return {"slow",
            [this, problem, slowest](const Config& config) -> std::string {
              return predicted_microseconds(problem, config) <= slowest
                         ? ""
                         : "the cost model says much slower than the default";
            },
            Rule::search};
  }
};

}  // namespace gemmtune::gpu
