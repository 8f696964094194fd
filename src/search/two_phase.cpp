// two_phase: a fast pass over all candidates, one sample each, then an accurate pass over the best 20, as
// AITER's tuner screens the solutions of a vendor library.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "search/in_order.h"
#include "search/strategies.h"

namespace gemmtune {
namespace {

constexpr std::size_t accurate_candidates = 20;
constexpr double fast_share = 0.7;  // of a budget; the rest is for the accurate pass

class TwoPhase final : public Strategy {
 public:
  explicit TwoPhase(const SearchLimits& limits) : samples_(std::max(1, limits.screening_samples)) {}

  std::string_view name() const override { return "two_phase"; }

  SearchStep next(std::span<const SearchPoint> points, double seconds_left) override {
    if (!fast_) {
      std::vector<std::size_t> order(points.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      fast_.emplace(std::move(order), 1);
      fast_ends_ = std::isfinite(seconds_left) ? seconds_left * (1 - fast_share) : 0;
    }
    if (SearchStep step = fast_->next(points, seconds_left - fast_ends_); !step.candidates.empty())
      return step;
    if (accurate_ || seconds_left <= 0) return {};
    accurate_ = true;
    return accurate_pass(points);
  }
  bool is_cut() const override { return fast_ && (fast_->is_cut() || !accurate_); }

 private:
  SearchStep accurate_pass(std::span<const SearchPoint> points) const {
    SearchStep step{{}, samples_ - 1};
    if (step.samples == 0) return step;
    const auto wanted = static_cast<std::size_t>(samples_);
    for (std::size_t i = 0; i < points.size(); ++i) {
      const std::size_t has = points[i].samples.size();
      if (!points[i].failed && has > 0 && has < wanted) step.candidates.push_back(i);
    }
    std::ranges::stable_sort(step.candidates, [&](std::size_t a, std::size_t b) {
      return points[a].samples.front() < points[b].samples.front();
    });
    if (step.candidates.size() > accurate_candidates) step.candidates.resize(accurate_candidates);
    return step;
  }

  int samples_;
  std::optional<InOrder> fast_;
  double fast_ends_ = 0;  // seconds left at which it does
  bool accurate_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_two_phase(const SearchLimits& limits) {
  return std::make_unique<TwoPhase>(limits);
}

}  // namespace gemmtune
