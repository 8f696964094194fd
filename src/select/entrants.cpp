#include "select/entrants.h"

#include <algorithm>
#include <map>
#include <set>

#include "measure/statistics.h"
#include "select/choose.h"
#include "select/screened_ties.h"

namespace gemmtune {
namespace {

constexpr std::size_t least_finalists = 5;
constexpr double first_look_seconds = 2;  // of the finals' rounds before anyone is dropped
constexpr std::size_t plain_places = 3;   // one of so many finalists

/// How many of `entrants`, best first, go to the finals: policy.finalists, and fewer where a kernel is slow.
std::size_t finalists_of(const std::vector<Entrant>& entrants, const Policy& policy) {
  const auto most = static_cast<std::size_t>(std::max(1, policy.finalists));
  double seconds = 0;
  std::size_t count = 0;
  while (count < std::min(most, entrants.size())) {
    seconds += 1e-6 * round_looks(policy.round_limit).front() *
               std::max(entrants[count].screened_microseconds, policy.sample_microseconds);
    if (count >= least_finalists && seconds > first_look_seconds) break;
    ++count;
  }
  return count;
}

/// Among the candidates that screening cannot tell from the fastest, the plainest take the last places of the
/// first `count`. `entrants`: best first.
void admit_plain_ties(const std::vector<Trial>& trials, const Policy& policy, std::size_t count,
                      std::vector<Entrant>& entrants) {
  if (entrants.size() <= count) return;
  const std::string fastest = entrants.front().listed.candidate.kernel_name();
  const auto names = screened_ties(trials, fastest, {policy.tie_band, 0});
  const std::set<std::string> ties(names.begin(), names.end());
  const auto plain = entrants.begin() + static_cast<std::ptrdiff_t>(count - count / plain_places);
  const auto end = std::stable_partition(plain, entrants.end(), [&](const Entrant& entrant) {
    return ties.contains(entrant.listed.candidate.kernel_name());
  });
  std::stable_sort(plain, end, [](const Entrant& a, const Entrant& b) {
    return a.listed.departures < b.listed.departures;
  });
}

}  // namespace

std::vector<Entrant> best_entrants(const std::vector<ListedCandidate>& candidates,
                                   const std::vector<Trial>& trials, WeightLayout layout,
                                   const Policy& policy) {
  std::map<std::string, double> medians;
  for (const Trial& trial : trials) {
    if (trial.outcome.kind != OutcomeKind::ok || trial.outcome.microseconds.empty()) continue;
    medians[trial.candidate.kernel_name()] = median(trial.outcome.microseconds);
  }
  std::vector<Entrant> entrants;
  for (const ListedCandidate& listed : candidates) {
    const auto found = medians.find(listed.candidate.kernel_name());
    if (listed.layout == layout && found != medians.end()) entrants.push_back({listed, found->second});
  }
  const auto faster = [](const Entrant& a, const Entrant& b) {
    return a.screened_microseconds < b.screened_microseconds;
  };
  std::stable_sort(entrants.begin(), entrants.end(), faster);
  const std::size_t count = finalists_of(entrants, policy);
  admit_plain_ties(trials, policy, count, entrants);
  entrants.resize(count);
  std::stable_sort(entrants.begin(), entrants.end(), faster);
  return entrants;
}

std::optional<std::size_t> add_baseline(const Device& device, const Problem& problem,
                                        const std::vector<Trial>& trials, std::vector<Entrant>& entrants) {
  const auto baseline = device.baseline(problem);
  if (!baseline.ok()) return std::nullopt;
  for (std::size_t i = 0; i < entrants.size(); ++i) {
    if (entrants[i].listed.candidate == *baseline) return i;
  }
  auto listed = describe(device, problem, *baseline);
  if (!listed.ok()) return std::nullopt;
  Entrant entrant{*listed, 0};
  for (const Trial& trial : trials) {
    if (trial.candidate == *baseline && !trial.outcome.microseconds.empty()) {
      entrant.screened_microseconds = median(trial.outcome.microseconds);
    }
  }
  entrants.push_back(std::move(entrant));
  return entrants.size() - 1;
}

}  // namespace gemmtune
