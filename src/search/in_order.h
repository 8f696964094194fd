// What exhaustive and random search share: every candidate once, in a fixed order, with the same number of
// samples.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "search/strategy.h"

namespace gemmtune {

/// Each candidate is asked for at most once, and not if it has samples before; under a budget in small steps, so
/// that the clock is looked at often.
class InOrder {
 public:
  InOrder(std::vector<std::size_t> order, int samples) : order_(std::move(order)), samples_(samples) {}
  SearchStep next(std::span<const SearchPoint> points, double seconds_left);
  bool is_cut() const { return cursor_ < order_.size(); }

 private:
  std::vector<std::size_t> order_;
  std::size_t cursor_ = 0;
  int samples_;
};

}  // namespace gemmtune
