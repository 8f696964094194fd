// exhaustive: every candidate that the constraints allow, with the same number of samples.
#include <numeric>

#include "search/in_order.h"
#include "search/strategies.h"

namespace gemmtune {
namespace {

class Exhaustive final : public Strategy {
 public:
  explicit Exhaustive(const SearchLimits& limits) : samples_(limits.screening_samples) {}

  std::string_view name() const override { return "exhaustive"; }

  SearchStep next(std::span<const SearchPoint> points, double seconds_left) override {
    if (!order_) {
      std::vector<std::size_t> order(points.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      order_.emplace(std::move(order), samples_);
    }
    return order_->next(points, seconds_left);
  }
  bool is_cut() const override { return order_ && order_->is_cut(); }

 private:
  int samples_;
  std::optional<InOrder> order_;
};

}  // namespace

std::unique_ptr<Strategy> make_exhaustive(const SearchLimits& limits) {
  return std::make_unique<Exhaustive>(limits);
}

}  // namespace gemmtune
