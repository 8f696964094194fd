// random: candidates in a seeded random order; under a budget that ends early, a uniform share of the space.
#include <numeric>

#include "search/in_order.h"
#include "search/strategies.h"

namespace gemmtune {
namespace {

class RandomOrder final : public Strategy {
 public:
  explicit RandomOrder(const SearchLimits& limits)
      : samples_(limits.screening_samples), random_(limits.seed) {}

  std::string_view name() const override { return "random"; }

  SearchStep next(std::span<const SearchPoint> points, double seconds_left) override {
    if (!order_) order_.emplace(shuffled(points.size()), samples_);
    return order_->next(points, seconds_left);
  }
  bool is_cut() const override { return order_ && order_->is_cut(); }

 private:
  std::vector<std::size_t> shuffled(std::size_t count) {
    std::vector<std::size_t> order(count);
    std::iota(order.begin(), order.end(), std::size_t{0});
    shuffle(order, random_);
    return order;
  }

  int samples_;
  Random random_;
  std::optional<InOrder> order_;
};

}  // namespace

std::unique_ptr<Strategy> make_random(const SearchLimits& limits) {
  return std::make_unique<RandomOrder>(limits);
}

}  // namespace gemmtune
