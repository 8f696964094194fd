#include "select/screened_ties.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "measure/statistics.h"

namespace gemmtune {
namespace {

bool usable(const Trial& trial) {
  return trial.outcome.kind == OutcomeKind::ok && !trial.outcome.microseconds.empty();
}

}  // namespace

double screening_deviation(const std::vector<Trial>& trials) {
  std::vector<double> changes;
  for (const Trial& trial : trials) {
    if (!usable(trial)) continue;
    const auto& samples = trial.outcome.microseconds;
    for (std::size_t i = 1; i < samples.size(); ++i)
      changes.push_back(std::fabs(std::log(samples[i] / samples[i - 1])));
  }
  if (changes.empty()) return 0;
  return median(changes) * deviation_of_median_absolute / std::sqrt(2.0);
}

std::string screening_reference(const std::vector<Trial>& screened, const Settled& settled) {
  const std::string winner = settled.winner->candidate.kernel_name();
  if (winner != settled.default_kernel) return winner;
  std::string fastest = winner;
  double least = std::numeric_limits<double>::infinity();
  for (const Trial& trial : screened) {
    const std::string name = trial.candidate.kernel_name();
    const bool tie = std::find(settled.ties.begin(), settled.ties.end(), name) != settled.ties.end();
    if (!tie || name == winner || trial.outcome.microseconds.empty()) continue;
    if (median(trial.outcome.microseconds) >= least) continue;
    least = median(trial.outcome.microseconds);
    fastest = name;
  }
  return fastest;
}

std::vector<std::string> screened_ties(const std::vector<Trial>& trials, const std::string& reference,
                                       const TieMargin& margin) {
  const auto won = std::ranges::find_if(trials, [&](const Trial& trial) {
    return usable(trial) && trial.candidate.kernel_name() == reference;
  });
  if (won == trials.end()) return {};
  const double deviation = screening_deviation(trials);
  const auto& best = won->outcome.microseconds;
  std::vector<std::string> ties;
  for (const Trial& trial : trials) {
    if (&trial == &*won || !usable(trial)) continue;
    const auto& samples = trial.outcome.microseconds;
    const double of_samples = deviation * std::sqrt(1.0 / static_cast<double>(samples.size()) +
                                                    1.0 / static_cast<double>(best.size()));
    const double limit = margin.ratio * std::exp(normal_99_5 * std::hypot(of_samples, margin.drift));
    if (median(samples) <= limit * median(best)) ties.push_back(trial.candidate.kernel_name());
  }
  return ties;
}

void add_screened_ties(const std::vector<Trial>& screened, const TieMargin& margin, Settled& settled) {
  std::set<std::string> known(settled.ties.begin(), settled.ties.end());
  for (const MeasuredFinalist& finalist : settled.finalists)
    known.insert(finalist.listed.candidate.kernel_name());
  for (const std::string& name : screened_ties(screened, screening_reference(screened, settled), margin)) {
    if (known.insert(name).second) settled.ties.push_back(name);
  }
}

}  // namespace gemmtune
