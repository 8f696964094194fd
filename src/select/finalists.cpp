#include "select/finalists.h"

#include <algorithm>
#include <map>
#include <set>

#include "backends/default_kernels.h"
#include "measure/statistics.h"
#include "resolve/errata.h"
#include "select/choose.h"
#include "select/screened_ties.h"

namespace gemmtune {
namespace {

constexpr std::size_t min_finalists = 5;
constexpr double max_first_seconds = 2;  // of the rounds before the first finalist is dropped
constexpr std::size_t plain_places = 3;  // one of so many finalists

/// How many of `finalists`, best first, are kept: policy.finalists, and fewer if a kernel is slow.
std::size_t finalist_count(const std::vector<Finalist>& finalists, const Policy& policy) {
  const auto max_count = static_cast<std::size_t>(std::max(1, policy.finalists));
  double seconds = 0;
  std::size_t count = 0;
  while (count < std::min(max_count, finalists.size())) {
    seconds += 1e-6 * interim_rounds(policy.round_limit).front() *
               std::max(finalists[count].screened_microseconds, policy.sample_microseconds);
    if (count >= min_finalists && seconds > max_first_seconds) break;
    ++count;
  }
  return count;
}

/// Puts the plainest of the candidates that screening cannot distinguish from the fastest at the last places
/// of the first `count`. `finalists`: best first.
void admit_plain_ties(const std::vector<Trial>& trials, const Policy& policy, std::size_t count,
                      std::vector<Finalist>& finalists) {
  if (finalists.size() <= count) return;
  const std::string fastest = finalists.front().listed.candidate.kernel_name();
  const auto names = screened_ties(trials, fastest, {1 + policy.tie_band, 0});
  const std::set<std::string> ties(names.begin(), names.end());
  const auto plain = finalists.begin() + static_cast<std::ptrdiff_t>(count - count / plain_places);
  const auto end = std::stable_partition(plain, finalists.end(), [&](const Finalist& finalist) {
    return ties.contains(finalist.listed.candidate.kernel_name());
  });
  std::stable_sort(plain, end, [](const Finalist& a, const Finalist& b) {
    return a.listed.departures < b.listed.departures;
  });
}

}  // namespace

std::vector<Finalist> choose_finalists(const std::vector<ListedCandidate>& candidates,
                                       const std::vector<Trial>& trials, WeightLayout layout,
                                       const Policy& policy) {
  std::map<std::string, const std::vector<double>*> samples;
  for (const Trial& trial : trials) {
    if (trial.outcome.kind != OutcomeKind::ok || trial.outcome.microseconds.empty()) continue;
    samples[trial.candidate.kernel_name()] = &trial.outcome.microseconds;
  }
  std::vector<Finalist> finalists;
  for (const ListedCandidate& listed : candidates) {
    const auto found = samples.find(listed.candidate.kernel_name());
    if (listed.layout == layout && found != samples.end())
      finalists.push_back(as_finalist(listed, *found->second));
  }
  const auto faster = [](const Finalist& a, const Finalist& b) {
    return a.screened_microseconds < b.screened_microseconds;
  };
  std::ranges::stable_sort(finalists, faster);
  const std::size_t count = finalist_count(finalists, policy);
  admit_plain_ties(trials, policy, count, finalists);
  finalists.resize(count);
  std::ranges::stable_sort(finalists, faster);
  return finalists;
}

namespace {

std::optional<std::size_t> place_of(const Candidate& candidate, const std::vector<Finalist>& finalists) {
  const auto found =
      std::ranges::find_if(finalists, [&](const Finalist& one) { return one.listed.candidate == candidate; });
  if (found == finalists.end()) return std::nullopt;
  return static_cast<std::size_t>(found - finalists.begin());
}

const Trial* trial_of(const Candidate& candidate, const std::vector<Trial>& trials) {
  const auto found =
      std::ranges::find_if(trials, [&](const Trial& one) { return one.candidate == candidate; });
  return found == trials.end() ? nullptr : &*found;
}

Finalist finalist_of(const ListedCandidate& listed, const Trial* trial) {
  if (trial == nullptr || trial->outcome.microseconds.empty()) return {listed, 0};
  return as_finalist(listed, trial->outcome.microseconds);
}

void add_default(const Device& device, const std::vector<Trial>& trials, FinalsTask& task) {
  const auto baseline = default_kernel(device, task.problem, task.policy.accuracy);
  if (!baseline.ok()) return;
  const DeviceErrata errata(device.info());
  if (const Erratum* erratum = errata.find(task.problem, *baseline); erratum != nullptr) {
    task.default_fault = DefaultFault{baseline->kernel_name(), describe(*erratum)};
    return;
  }
  task.baseline = place_of(*baseline, task.finalists);
  if (task.baseline) return;
  const auto listed = describe(device, task.problem, *baseline);
  if (!listed.ok()) {
    task.default_fault = DefaultFault{baseline->kernel_name(), listed.message(), Verdict::default_untimed};
    return;
  }
  task.baseline = task.finalists.size();
  task.finalists.push_back(finalist_of(*listed, trial_of(*baseline, trials)));
}

void add_library(const Device& device, const std::vector<ListedCandidate>& candidates,
                 const std::vector<Trial>& trials, FinalsTask& task) {
  const auto library = library_kernel(device, task.problem, task.policy.accuracy);
  if (!library.ok() || place_of(*library, task.finalists)) return;
  const auto listed =
      std::ranges::find_if(candidates, [&](const auto& one) { return one.candidate == *library; });
  if (listed == candidates.end() || listed->layout != task.layout) return;
  const Trial* trial = trial_of(*library, trials);
  if (trial != nullptr && trial->outcome.kind != OutcomeKind::ok) return;
  task.finalists.push_back(finalist_of(*listed, trial));
}

}  // namespace

void add_opponents(const Device& device, const std::vector<ListedCandidate>& candidates,
                   const std::vector<Trial>& trials, FinalsTask& task) {
  add_default(device, trials, task);
  add_library(device, candidates, trials, task);
}

}  // namespace gemmtune
