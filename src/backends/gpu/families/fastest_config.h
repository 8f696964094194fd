// The default of a family whose cost model chooses it.
#pragma once

#include <optional>

#include "candidates/config.h"

namespace gemmtune::gpu {

/// Of the configs that are considered one after the other, the one that is predicted to be the fastest; of equal ones the
/// first.
class FastestConfig {
 public:
  void consider(const Config& config, double microseconds) {
    if (microseconds_ && microseconds >= *microseconds_) return;
    microseconds_ = microseconds;
    config_ = config;
  }
  /// Empty if none was considered.
  const Config& config() const { return config_; }

 private:
  Config config_;
  std::optional<double> microseconds_;
};

}  // namespace gemmtune::gpu
