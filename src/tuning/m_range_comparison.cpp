#include "tuning/m_range_comparison.h"

#include <algorithm>
#include <cmath>
#include <optional>

#include "backends/default_kernels.h"
#include "measure/statistics.h"
#include "resolve/errata.h"
#include "select/paired_comparison.h"
#include "select/paired_rounds.h"

namespace gemmtune {
namespace {

constexpr double confidence = 0.95;
constexpr int rounds_per_call = 5;  // of one call if the time is limited

class KernelComparison {
 public:
  KernelComparison(const Device& device, Evaluator& evaluator, const MComparisonRequest& request)
      : evaluator_(evaluator), request_(request) {
    for (const std::string& name : request.kernels) {
      const auto candidate = device.resolve(name, request.problem);
      if (candidate.ok() && check_errata(device, request.problem, *candidate).ok()) add(device, *candidate);
    }
    const auto candidate = request.against_library
                               ? library_kernel(device, request.problem, request.policy.accuracy)
                               : default_kernel(device, request.problem, request.policy.accuracy);
    if (candidate.ok()) add_default(device, *candidate);
    rounds_ = PairedRounds(finalists_.size());
    outcomes_.resize(finalists_.size());
  }

  Status run(const Deadline& deadline);
  MComparison result() const;

 private:
  std::optional<std::size_t> add(const Device& device, const Candidate& candidate) {
    for (std::size_t i = 0; i < finalists_.size(); ++i) {
      if (finalists_[i].candidate == candidate) return i;
    }
    const auto listed = describe(device, request_.problem, candidate);
    if (!listed.ok()) return std::nullopt;
    finalists_.push_back(*listed);
    return finalists_.size() - 1;
  }

  void add_default(const Device& device, const Candidate& baseline) {
    const DeviceErrata errata(device.info());
    if (const Erratum* erratum = errata.find(request_.problem, baseline); erratum != nullptr) {
      default_fault_ = DefaultFault{baseline.kernel_name(), describe(*erratum)};
    } else {
      baseline_ = add(device, baseline);
      if (!baseline_)
        default_fault_ =
            DefaultFault{baseline.kernel_name(), "it is not to be had here", Verdict::default_untimed};
    }
  }

  Status measure(const std::vector<std::size_t>& measured, int rounds, const Deadline& deadline);
  bool ran(std::size_t finalist) const;
  bool fits_layout(std::size_t finalist) const { return finalists_[finalist].layout == request_.layout; }
  std::vector<double> times(std::size_t finalist) const { return rounds_.times(finalist); }
  std::vector<double> ratios(std::size_t a, std::size_t b) const { return rounds_.ratios(a, b); }
  double noise_floor() const { return gemmtune::noise_floor(same_ratios_); }
  RatioLimits limits() const { return ratio_limits(request_.policy, noise_floor()); }
  std::optional<std::size_t> fastest() const;
  /// Finalists of which it is not clear whether they are within the bound, and those that they are compared
  /// with.
  std::vector<std::size_t> unclear() const;
  bool slower_than_default(std::size_t finalist) const;
  std::optional<DefaultFault> default_fault() const;
  Verdict verdict(std::size_t finalist) const;
  Settled row(std::size_t finalist) const;

  Evaluator& evaluator_;
  const MComparisonRequest& request_;
  std::vector<ListedCandidate> finalists_;
  std::optional<std::size_t> baseline_;
  std::optional<DefaultFault> default_fault_;  // why the default is not measured
  PairedRounds rounds_;
  std::vector<Outcome> outcomes_;
  std::vector<double> same_ratios_;
  int calls_ = 0;
};

Status KernelComparison::measure(const std::vector<std::size_t>& measured, int rounds,
                                 const Deadline& deadline) {
  std::vector<Candidate> candidates;
  for (const std::size_t i : measured) candidates.push_back(finalists_[i].candidate);
  for (int done = 0; done < rounds && (done == 0 || !deadline.over());) {
    const bool limited = std::isfinite(deadline.seconds_left());
    const int part = limited ? std::min(rounds_per_call, rounds - done) : rounds - done;
    GEMMTUNE_TRY(const auto result, evaluator_.finals(request_.problem, candidates, part));
    ++calls_;
    done += part;
    rounds_.add(measured, result.times);
    for (std::size_t i = 0; i < measured.size() && i < result.outcomes.size(); ++i)
      outcomes_[measured[i]] = result.outcomes[i];
    same_ratios_.insert(same_ratios_.end(), result.same_ratios.begin(), result.same_ratios.end());
  }
  return {};
}

bool KernelComparison::ran(std::size_t finalist) const {
  return outcomes_[finalist].kind == OutcomeKind::ok && !times(finalist).empty();
}

std::optional<std::size_t> KernelComparison::fastest() const {
  std::optional<std::size_t> best;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!ran(i) || !fits_layout(i)) continue;
    if (!best || median(times(i)) < median(times(*best))) best = i;
  }
  return best;
}

std::vector<std::size_t> KernelComparison::unclear() const {
  const auto best = fastest();
  if (!best) return {};
  const double limit = 1 + effective_band(request_.regret, noise_floor());
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (i == *best || !ran(i) || !fits_layout(i)) continue;
    const Interval interval = median_interval(ratios(i, *best), confidence);
    if (interval.low <= limit && interval.high > limit) list.push_back(i);
  }
  if (list.empty()) return list;
  list.push_back(*best);
  if (baseline_ && ran(*baseline_) && std::find(list.begin(), list.end(), *baseline_) == list.end())
    list.push_back(*baseline_);
  std::ranges::sort(list);
  return list;
}

Status KernelComparison::run(const Deadline& deadline) {
  std::vector<std::size_t> all;
  for (std::size_t i = 0; i < finalists_.size(); ++i) all.push_back(i);
  if (all.empty()) return Status::unsupported("no kernel takes {}", print(request_.problem));
  const std::vector<int> interim = interim_rounds(request_.policy.round_limit);
  GEMMTUNE_RETURN_IF_ERROR(measure(all, interim.front(), deadline));
  if (interim.size() < 2 || deadline.over()) return {};
  const auto again = unclear();
  return again.empty() ? Status() : measure(again, interim[1] - interim[0], deadline);
}

bool KernelComparison::slower_than_default(std::size_t finalist) const {
  if (!baseline_ || finalist == *baseline_ || !ran(*baseline_) || !fits_layout(*baseline_)) return false;
  return median(ratios(finalist, *baseline_)) > limits().tie;
}

std::optional<DefaultFault> KernelComparison::default_fault() const {
  if (!baseline_) return default_fault_;
  const Candidate& candidate = finalists_[*baseline_].candidate;
  auto fault = default_fault_of(candidate, outcomes_[*baseline_]);
  if (!fault && !ran(*baseline_))
    fault = DefaultFault{candidate.kernel_name(), "it has no time in its rounds", Verdict::default_untimed};
  return fault;
}

Verdict KernelComparison::verdict(std::size_t finalist) const {
  if (const auto fault = default_fault()) return fault->verdict;
  if (!baseline_) return Verdict::only;
  if (finalist == *baseline_) return Verdict::keep_default;
  const bool wins = is_below(ratios(finalist, *baseline_), limits().win, test_alpha);
  return wins ? Verdict::win : Verdict::undecided;
}

Settled KernelComparison::row(std::size_t finalist) const {
  Settled settled;
  settled.winner = finalists_[finalist];
  settled.verdict = verdict(finalist);
  settled.microseconds = median(times(finalist));
  settled.spread = spread(times(finalist));
  settled.err_ratio = outcomes_[finalist].err_ratio;
  settled.error = outcomes_[finalist].error;
  settled.noise_floor = noise_floor();
  if (baseline_ && ran(*baseline_)) {
    settled.default_kernel = finalists_[*baseline_].candidate.kernel_name();
    settled.default_microseconds = median(times(*baseline_));
    settled.speedup = finalist == *baseline_ ? 1 : median(ratios(*baseline_, finalist));
    if (finalist != *baseline_)
      settled.speedup_interval = median_interval(ratios(*baseline_, finalist), confidence);
  }
  settled.default_fault = default_fault();
  if (settled.default_fault) settled.default_kernel = settled.default_fault->kernel_name;
  return settled;
}

MComparison KernelComparison::result() const {
  MComparison comparison;
  comparison.finals_calls = calls_;
  comparison.noise_floor = noise_floor();
  const auto best = fastest();
  if (!best) return comparison;
  for (std::size_t i = 0; i < finalists_.size(); ++i) {
    if (!ran(i)) continue;
    const std::string name = finalists_[i].candidate.kernel_name();
    const double regret = i == *best ? 0 : std::max(0.0, median(ratios(i, *best)) - 1);
    const bool may_answer = fits_layout(i) && !slower_than_default(i);
    comparison.regrets.push_back({name, regret, may_answer});
    if (may_answer) comparison.rows.emplace(name, row(i));
  }
  return comparison;
}

}  // namespace

Result<MComparison> compare_kernels(const Device& device, Evaluator& evaluator,
                                    const MComparisonRequest& request, const Deadline& deadline) {
  KernelComparison comparison(device, evaluator, request);
  GEMMTUNE_RETURN_IF_ERROR(comparison.run(deadline));
  return comparison.result();
}

}  // namespace gemmtune
