#include "search/in_order.h"

#include <cmath>

namespace gemmtune {

SearchStep InOrder::next(std::span<const SearchPoint> points, double seconds_left) {
  constexpr std::size_t budget_step = 16;
  SearchStep step;
  step.samples = samples_;
  if (seconds_left <= 0) return step;
  const std::size_t limit = std::isfinite(seconds_left) ? budget_step : order_.size();
  for (; cursor_ < order_.size() && step.candidates.size() < limit; ++cursor_) {
    const SearchPoint& point = points[order_[cursor_]];
    if (!point.failed && point.samples.empty()) step.candidates.push_back(order_[cursor_]);
  }
  return step;
}

}  // namespace gemmtune
