// staged: one sample of each candidate in the order of the cost model, then successive halving (Jamieson and
// Talwalkar 2016) with more samples for fewer candidates. Every family takes turns in the first stage and
// keeps its best candidate to the end, because cost models of different families are not comparable and a
// weight layout is decided later over several problems.
#include <algorithm>
#include <cmath>
#include <map>

#include "search/strategies.h"

namespace gemmtune {
namespace {

constexpr std::size_t survivors_wanted = 8;  // more than the finalists: a finalist may fail the full gate
constexpr double first_stage_share = 0.6;    // of the problem's time; the rest goes to halving
constexpr std::size_t budget_step = 16;      // candidates between two looks at the clock
// A candidate is dropped at once when even its fastest sample is slower than the incumbent's slowest by this
// share. One or two samples may hold a stall of a shared machine, hence the wider margin.
constexpr double few_samples_margin = 0.25;
constexpr double margin = 0.05;

double median_of(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t half = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
}

bool usable(const SearchPoint& point) { return !point.failed && !point.samples.empty(); }

/// Families take turns; within one the smaller prediction first, candidates without an opinion last, else the
/// order in which they were given.
std::vector<std::size_t> rank(std::span<const SearchPoint> points) {
  std::vector<std::string> families;
  std::map<std::string, std::vector<std::size_t>> by_family;
  for (std::size_t i = 0; i < points.size(); ++i) {
    auto& members = by_family[points[i].candidate.family];
    if (members.empty()) families.push_back(points[i].candidate.family);
    members.push_back(i);
  }
  const auto cost = [&](std::size_t i) { return points[i].predicted > 0 ? points[i].predicted : HUGE_VAL; };
  for (auto& [family, members] : by_family) {
    std::stable_sort(members.begin(), members.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
  }
  std::vector<std::size_t> order;
  for (std::size_t turn = 0; order.size() < points.size(); ++turn) {
    for (const std::string& family : families) {
      if (turn < by_family[family].size()) order.push_back(by_family[family][turn]);
    }
  }
  return order;
}

class Staged final : public Strategy {
 public:
  explicit Staged(const SearchLimits& limits) : samples_(std::max(1, limits.screening_samples)) {}

  std::string_view name() const override { return "staged"; }

  SearchStep next(std::span<const SearchPoint> points, double seconds_left) override {
    if (order_.empty()) {
      order_ = rank(points);
      first_stage_ends_ = seconds_left * (1 - first_stage_share);
    }
    if (seconds_left <= 0) return {};
    if (SearchStep step = first_stage(points, seconds_left); !step.candidates.empty()) return step;
    return halving(points);
  }

 private:
  SearchStep first_stage(std::span<const SearchPoint> points, double seconds_left) {
    SearchStep step;
    const bool budgeted = std::isfinite(seconds_left);
    if (budgeted && seconds_left < first_stage_ends_) return step;
    const std::size_t limit = budgeted ? budget_step : order_.size();
    for (; cursor_ < order_.size() && step.candidates.size() < limit; ++cursor_) {
      if (!points[order_[cursor_]].failed) step.candidates.push_back(order_[cursor_]);
    }
    return step;
  }

  SearchStep halving(std::span<const SearchPoint> points) {
    cursor_ = order_.size();  // the first stage does not come back
    if (passes_ == 0) survivors_ = order_;
    while (true) {
      const std::size_t before = survivors_.size();
      const std::size_t families = reduce(points);
      const bool settled = survivors_.size() <= survivors_wanted + families || survivors_.size() == before;
      if (passes_ > 0 && (settled && finished_)) return {};
      ++passes_;
      target_ += samples_;
      if (settled) finished_ = true;
      SearchStep step = missing_samples(points);
      if (!step.candidates.empty()) return step;
      if (finished_) return {};
    }
  }

  /// Drops what cannot win and, of the rest, the worse half. Returns how many families are left.
  std::size_t reduce(std::span<const SearchPoint> points) {
    std::erase_if(survivors_, [&](std::size_t i) { return !usable(points[i]); });
    const auto cost = [&](std::size_t i) { return median_of(points[i].samples); };
    std::stable_sort(survivors_.begin(), survivors_.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
    if (survivors_.empty()) return 0;
    const auto& incumbent = points[survivors_.front()].samples;
    const double upper = *std::max_element(incumbent.begin(), incumbent.end());
    const std::size_t half = std::max(survivors_wanted, (survivors_.size() + 1) / 2);
    std::vector<std::size_t> kept;
    std::map<std::string, bool> seen;
    for (const std::size_t i : survivors_) {
      const auto& samples = points[i].samples;
      const double lower = *std::min_element(samples.begin(), samples.end());
      const double room = 1 + (samples.size() < 3 ? few_samples_margin : margin);
      const bool best_of_family = !std::exchange(seen[points[i].candidate.family], true);
      if (best_of_family || (kept.size() < half && lower <= upper * room)) kept.push_back(i);
    }
    survivors_ = std::move(kept);
    return seen.size();
  }

  SearchStep missing_samples(std::span<const SearchPoint> points) const {
    SearchStep step;
    step.samples = 0;
    for (const std::size_t i : survivors_) {
      const int missing = target_ - static_cast<int>(points[i].samples.size());
      if (missing <= 0) continue;
      step.candidates.push_back(i);
      step.samples = std::max(step.samples, missing);
    }
    return step;
  }

  int samples_;
  std::vector<std::size_t> order_;
  std::size_t cursor_ = 0;
  double first_stage_ends_ = 0;  // seconds left at which it does
  std::vector<std::size_t> survivors_;
  int target_ = 0;  // samples of each survivor
  int passes_ = 0;
  bool finished_ = false;
};

}  // namespace

std::unique_ptr<Strategy> make_staged(const SearchLimits& limits) { return std::make_unique<Staged>(limits); }

}  // namespace gemmtune
