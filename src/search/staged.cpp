// staged: few candidates, chosen one after the other, then more samples for the better ones.
//
// 1. Seeds: hints, every family's default and what its cost model likes best, then what differs from the
//    default in one setting.
// 2. Exploration: a surrogate a family learns from the times; the candidate with the largest expected
//    improvement over the fastest so far (Jones, Schonlau and Welch 1998) is measured next, once each, until
//    nothing is expected any more. A small space is simply measured.
// 3. Halving (Jamieson and Talwalkar 2016): more samples for fewer candidates; what is clearly slower than
//    the fastest is dropped at once.
// 4. Before the last of the halving, what makes two runs agree (refinement.h).
//
// Every family keeps its best candidate to the end, because a weight layout is decided later over several
// problems.
#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <map>

#include "search/explored_family.h"
#include "search/refinement.h"
#include "search/samples.h"
#include "search/strategies.h"

namespace gemmtune {
namespace {

constexpr std::size_t small_space = 60;      // is measured whole
constexpr std::size_t seeds_per_family = 4;  // its default among them
constexpr std::size_t max_hints = 6;
constexpr std::size_t min_explored = 60;
constexpr std::size_t max_explored = 150;
constexpr double explored_share = 0.12;  // of the space
constexpr double worthwhile = 0.001;     // expected improvement, as a share of the time
constexpr double clearly_slower = 4;     // times above this multiple of the fastest teach no more than this
constexpr std::size_t survivors_wanted =
    16;                                      // of the usual number of samples; half of them get twice as many
constexpr std::size_t usually_refined = 30;  // candidates beside those that exploration chooses
constexpr double exploring_share = 0.7;      // of the problem's time; the rest goes to halving
constexpr std::size_t max_announced = 16;    // candidates that are named before they are asked for
constexpr std::size_t budget_step = 16;      // candidates between two looks at the clock
// A candidate is dropped at once when even its fastest sample is slower than the incumbent's slowest by this
// share. One or two samples may hold a stall of a shared machine, hence the wider margin.
constexpr double few_samples_margin = 0.5;
constexpr double margin = 0.15;

std::size_t exploration_limit(std::size_t candidates) {
  if (candidates <= small_space) return candidates;
  const auto share = static_cast<std::size_t>(explored_share * static_cast<double>(candidates));
  return std::clamp(share, min_explored, max_explored);
}

/// Members by prediction, those without an opinion last, else in their order.
std::vector<std::size_t> by_prediction(std::span<const SearchPoint> points,
                                       std::vector<std::size_t> members) {
  const auto cost = [&](std::size_t i) { return points[i].predicted > 0 ? points[i].predicted : HUGE_VAL; };
  std::ranges::stable_sort(members, [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
  return members;
}

/// E[max(0, best − t)] of a normal belief about log t, as a share of the time.
double expected_improvement(const Surrogate::Belief& belief, double best) {
  const double gain = best - belief.mean;
  if (belief.deviation <= 0) return std::max(gain, 0.0);
  const double z = gain / belief.deviation;
  const double density = std::exp(-z * z / 2) / std::sqrt(2 * M_PI);
  return gain * std::erfc(-z / M_SQRT2) / 2 + belief.deviation * density;
}

class Staged final : public Strategy {
 public:
  explicit Staged(const SearchLimits& limits) : samples_(std::max(1, limits.screening_samples)) {}

  std::string_view name() const override { return "staged"; }

  SearchStep next(std::span<const SearchPoint> points, double seconds_left) override {
    if (families_.empty()) begin(points, seconds_left);
    learn(points);
    const bool time_is_over = std::isfinite(seconds_left) && seconds_left < exploring_ends_;
    is_cut_ = seconds_left <= 0 || is_cut_ || (time_is_over && !halving_);
    if (seconds_left <= 0) return {};
    if (!halving_ && !time_is_over) {
      if (SearchStep step = first_ones(points, seconds_left); !step.candidates.empty()) return step;
      if (SearchStep step = highest_expected(points); !step.candidates.empty()) return step;
    }
    return halving(points);
  }

  bool is_cut() const override { return is_cut_; }

  std::vector<std::size_t> likely_next(std::span<const SearchPoint> points) const override {
    std::vector<std::pair<double, std::size_t>> expected;
    if (halving_ || !std::isfinite(fastest_)) return {};
    for (const auto& family : families_) {
      for (std::size_t member = 0; member < family->members.size(); ++member) {
        const std::size_t i = family->members[member];
        if (!open(points, i)) continue;
        expected.emplace_back(expected_improvement(family->surrogate.belief(member), std::log(fastest_)), i);
      }
    }
    const std::size_t count = std::min(max_announced, expected.size());
    std::partial_sort(expected.begin(), expected.begin() + static_cast<std::ptrdiff_t>(count), expected.end(),
                      std::greater<>());
    std::vector<std::size_t> likely;
    for (std::size_t i = 0; i < count; ++i) likely.push_back(expected[i].second);
    return likely;
  }

 private:
  void begin(std::span<const SearchPoint> points, double seconds_left) {
    std::vector<std::string> names;
    std::map<std::string, std::vector<std::size_t>> members;
    for (std::size_t i = 0; i < points.size(); ++i) {
      auto& of = members[points[i].candidate.family];
      if (of.empty()) names.push_back(points[i].candidate.family);
      of.push_back(i);
    }
    families_.reserve(names.size());  // surrogates point to their grids
    for (const std::string& name : names)
      families_.push_back(std::make_unique<ExploredFamily>(points, members[name]));
    exploring_ends_ = seconds_left * (1 - exploring_share);
    limit_ = exploration_limit(points.size());
    for (const SearchPoint& point : points) taken_.push_back(point.failed || !point.samples.empty());
    count_ = static_cast<std::size_t>(std::ranges::count(taken_, true));
    learnt_.assign(points.size(), 0);
    seeds(points);
  }

  /// Hints first, then the families in turns; all of a small space.
  void seeds(std::span<const SearchPoint> points) {
    std::vector<std::size_t> hinted;
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (points[i].hint > 0) hinted.push_back(i);
    }
    std::ranges::stable_sort(hinted,
                             [&](std::size_t a, std::size_t b) { return points[a].hint < points[b].hint; });
    if (hinted.size() > max_hints) hinted.resize(max_hints);
    first_ = hinted;
    const bool all = points.size() <= small_space;
    std::vector<std::vector<std::size_t>> queues;
    std::size_t longest = 0;
    for (const auto& family : families_) {
      queues.push_back({family->members.front()});
      for (const std::size_t i : by_prediction(points, family->members)) {
        if (i == family->members.front()) continue;
        if (all || queues.back().size() < seeds_per_family) queues.back().push_back(i);
      }
      if (!all) around_defaults_ += add_around_default(*family, queues.back());
      longest = std::max(longest, queues.back().size());
    }
    for (std::size_t turn = 0; turn < longest; ++turn) {
      for (const auto& queue : queues) {
        if (turn < queue.size()) first_.push_back(queue[turn]);
      }
    }
  }

  /// What differs from the default in one setting: the same in every run, and it teaches what each setting
  /// does.
  static std::size_t add_around_default(const ExploredFamily& family, std::vector<std::size_t>& queue) {
    const std::size_t before = queue.size();
    for (const std::size_t member : family.around(0, SettingsGrid::Reach::any_value)) {
      const std::size_t i = family.members[member];
      if (std::find(queue.begin(), queue.end(), i) == queue.end()) queue.push_back(i);
    }
    return queue.size() - before;
  }

  void learn(std::span<const SearchPoint> points) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      if (is_usable(points[i])) fastest_ = std::min(fastest_, sample_median(points[i].samples));
    }
    for (const auto& family : families_) {
      for (std::size_t member = 0; member < family->members.size(); ++member) {
        const std::size_t i = family->members[member];
        const auto& samples = points[i].samples;
        for (; learnt_[i] < samples.size(); ++learnt_[i]) {
          family->surrogate.observe(member, std::min(samples[learnt_[i]], clearly_slower * fastest_));
        }
      }
    }
  }

  bool open(std::span<const SearchPoint> points, std::size_t i) const {
    return !taken_[i] && !points[i].failed;
  }

  SearchStep take(std::vector<std::size_t> candidates) {
    for (const std::size_t i : candidates) taken_[i] = true;
    count_ += candidates.size();
    return {std::move(candidates), 1};
  }

  SearchStep first_ones(std::span<const SearchPoint> points, double seconds_left) {
    std::vector<std::size_t> step;
    const std::size_t limit = std::isfinite(seconds_left) ? budget_step : first_.size();
    for (; cursor_ < first_.size() && step.size() < limit; ++cursor_) {
      const std::size_t i = first_[cursor_];
      if (open(points, i) && std::find(step.begin(), step.end(), i) == step.end()) step.push_back(i);
    }
    return take(std::move(step));
  }

  /// The candidate of all families from which most is expected; none where that is little.
  SearchStep highest_expected(std::span<const SearchPoint> points) {
    const std::size_t chosen_count = count_ - std::min(count_, around_defaults_);
    if (chosen_count >= limit_ || !std::isfinite(fastest_)) return {};
    const double best = std::log(fastest_);
    double most = chosen_count < min_explored ? 0 : worthwhile;
    std::optional<std::size_t> chosen;
    for (const auto& family : families_) {
      for (std::size_t member = 0; member < family->members.size(); ++member) {
        if (!open(points, family->members[member])) continue;
        const double expected = expected_improvement(family->surrogate.belief(member), best);
        if (expected <= most) continue;
        most = expected;
        chosen = family->members[member];
      }
    }
    return chosen ? take({*chosen}) : SearchStep{};
  }

  /// Rungs: how many samples the survivors get, and how many survive. The last one is beyond the usual
  /// number, because the best of many single samples is the luckiest as often as the fastest.
  SearchStep halving(std::span<const SearchPoint> points) {
    if (!halving_) {
      halving_ = true;
      for (std::size_t i = 0; i < points.size(); ++i) survivors_.push_back(i);
    }
    const std::array<std::pair<int, std::size_t>, 3> rungs{{{std::min(2, samples_), 2 * survivors_wanted},
                                                            {samples_, survivors_wanted},
                                                            {2 * samples_, survivors_wanted / 2}}};
    while (rung_ < rungs.size()) {
      if (rung_ + 1 == rungs.size()) {
        if (SearchStep step = refine(points); !step.candidates.empty()) return step;
      }
      const auto [samples, survivors] = rungs[rung_++];
      reduce(points, survivors);
      if (SearchStep step = missing_samples(points, samples); !step.candidates.empty()) return step;
    }
    return {};
  }

  /// What is left to do for candidates that are as fast as each other; none at the end, with what was found
  /// among the survivors.
  SearchStep refine(std::span<const SearchPoint> points) {
    if (!refinement_) {
      std::vector<std::size_t> usable = survivors_;
      std::erase_if(usable, [&](std::size_t i) { return !is_usable(points[i]); });
      refinement_.emplace(points, families_, std::move(usable), samples_);
    }
    SearchStep step = refinement_->next(points);
    for (const std::size_t i : step.candidates) taken_[i] = true;
    if (!step.candidates.empty()) return step;
    for (const std::size_t i : refinement_->found()) {
      if (std::find(survivors_.begin(), survivors_.end(), i) == survivors_.end()) survivors_.push_back(i);
    }
    return {};
  }

  /// Keeps the fastest `most` that may still win, and every family's best.
  void reduce(std::span<const SearchPoint> points, std::size_t most) {
    std::erase_if(survivors_, [&](std::size_t i) { return !is_usable(points[i]); });
    const auto cost = [&](std::size_t i) { return sample_median(points[i].samples); };
    std::ranges::stable_sort(survivors_, [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
    if (survivors_.empty()) return;
    // Of three, because a single sample that is far too low would end the search.
    std::vector<double> uppers;
    for (std::size_t i = 0; i < std::min<std::size_t>(3, survivors_.size()); ++i)
      uppers.push_back(std::ranges::max(points[survivors_[i]].samples));
    const double upper = sample_median(std::move(uppers));
    std::vector<std::size_t> kept;
    std::map<std::string, bool> seen;
    for (const std::size_t i : survivors_) {
      const auto& samples = points[i].samples;
      const double lower = *std::ranges::min_element(samples);
      const double room = 1 + (samples.size() < 3 ? few_samples_margin : margin);
      const bool best_of_family = !std::exchange(seen[points[i].candidate.family], true);
      if (best_of_family || (kept.size() < most && lower <= upper * room)) kept.push_back(i);
    }
    survivors_ = std::move(kept);
  }

  SearchStep missing_samples(std::span<const SearchPoint> points, int target) const {
    SearchStep step;
    step.samples = 0;
    for (const std::size_t i : survivors_) {
      const int missing = target - static_cast<int>(points[i].samples.size());
      if (missing <= 0) continue;
      step.candidates.push_back(i);
      step.samples = std::max(step.samples, missing);
    }
    return step;
  }

  int samples_;
  std::vector<std::unique_ptr<ExploredFamily>> families_;
  std::vector<std::size_t> first_;  // seeds, in their order
  std::size_t cursor_ = 0;
  std::vector<bool> taken_;          // was asked for
  std::vector<std::size_t> learnt_;  // samples that the surrogate has seen
  std::size_t count_ = 0;            // asked for
  std::size_t around_defaults_ = 0;  // of these, beside the ones that are chosen
  std::size_t limit_ = 0;
  double fastest_ = HUGE_VAL;  // median of a candidate
  double exploring_ends_ = 0;  // seconds left at which it does
  bool halving_ = false;
  bool is_cut_ = false;
  std::vector<std::size_t> survivors_;
  std::size_t rung_ = 0;
  std::optional<Refinement> refinement_;  // once begun
};

}  // namespace

std::unique_ptr<Strategy> make_staged(const SearchLimits& limits) { return std::make_unique<Staged>(limits); }

std::size_t staged_trials(std::size_t candidates) {
  return std::min(candidates, exploration_limit(candidates) + usually_refined);
}

}  // namespace gemmtune
