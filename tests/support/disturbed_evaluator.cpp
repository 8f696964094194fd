#include "support/disturbed_evaluator.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace gemmtune::testing {
namespace {

constexpr const char* default_family = "vendor";

Status ended() { return Status::unsupported("interrupted"); }

Outcome right() {
  Outcome outcome;
  outcome.err_ratio = 0;
  return outcome;
}

}  // namespace

bool DisturbedEvaluator::pass(double seconds) {
  now = std::min(now + seconds, std::max(now, cut_off));
  return now < cut_off;
}

bool DisturbedEvaluator::set_up(const Problem& problem) {
  std::string text = print(problem);
  if (text == problem_) return pass(0);
  problem_ = std::move(text);
  checked_.clear();
  return pass(cost.set_up);
}

double DisturbedEvaluator::factor() {
  return std::exp(std::log(disturbance_.min_factor) +
                  random_.uniform() * std::log(disturbance_.max_factor / disturbance_.min_factor));
}

void DisturbedEvaluator::begin_call(std::size_t kernels) {
  if (burst_left_ > 0) {
    --burst_left_;
  } else if (random_.uniform() < disturbance_.burst_share) {
    burst_left_ = 1 + static_cast<int>(random_.uniform() * disturbance_.max_burst);
    burst_of_default_ = random_.uniform() < 0.5;
    burst_factor_ = factor();
  }
  disturbed_ = kernels;
  if (random_.uniform() >= disturbance_.call_share) return;
  disturbed_ = static_cast<std::size_t>(random_.uniform() * static_cast<double>(kernels));
  call_factor_ = factor();
}

double DisturbedEvaluator::sample(const Problem& problem, const Candidate& candidate, std::size_t kernel) {
  double time = true_times_(problem, candidate);
  time *= 1 + disturbance_.jitter * (2 * random_.uniform() - 1);
  if (kernel == disturbed_) time *= call_factor_;
  if (burst_left_ > 0 && (candidate.family == default_family) == burst_of_default_) time *= burst_factor_;
  if (random_.uniform() < disturbance_.sample_share) time *= factor();
  return time;
}

Result<std::vector<Outcome>> DisturbedEvaluator::screen(const Problem& problem,
                                                        std::span<const Candidate> candidates, int samples,
                                                        const std::function<bool()>& stop) {
  std::vector<Outcome> outcomes;
  for (const Candidate& candidate : candidates) {
    if (stop && stop()) break;
    if (!set_up(problem)) return ended();
    const bool is_new = checked_.try_emplace(candidate.kernel_name(), false).second;
    begin_call(1);
    Outcome outcome = right();
    double seconds = is_new ? cost.candidate : 0;
    for (int i = 0; i < samples; ++i) {
      outcome.microseconds.push_back(sample(problem, candidate, 0));
      seconds += std::max(cost.sample, 1e-6 * outcome.microseconds.back());
    }
    if (!pass(seconds)) return ended();
    outcomes.push_back(std::move(outcome));
  }
  return outcomes;
}

Result<FinalsResult> DisturbedEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                     std::span<const Candidate> candidates, int rounds) {
  if (kind.energy || kind.routing) return Status::unsupported("no joules and no routings here");
  if (!set_up(problem)) return ended();
  begin_call(candidates.size());
  FinalsResult result;
  for (const Candidate& candidate : candidates) {
    bool& is_checked = checked_[candidate.kernel_name()];
    if (!std::exchange(is_checked, true) && !pass(cost.check)) return ended();
    result.outcomes.push_back(right());
  }
  for (int round = 0; round < rounds; ++round) {
    auto& times = result.times.emplace_back();
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      times.push_back(sample(problem, candidates[i], i));
      if (!pass(2 * std::max(cost.sample, 1e-6 * times.back()))) return ended();
    }
    result.same_ratios.push_back(times.front() / sample(problem, candidates[0], 0));
  }
  result.quietness.rounds = rounds;
  return result;
}

Outcome DisturbedEvaluator::check_neighbour_m(const Problem& problem, const Candidate&, std::int64_t m) {
  Problem other = problem;
  other.m = m;
  if (!set_up(other) || !pass(cost.candidate + cost.check)) {
    Outcome outcome;
    outcome.kind = OutcomeKind::launch_failed;
    outcome.reason = "interrupted";
    return outcome;
  }
  return right();
}

}  // namespace gemmtune::testing
