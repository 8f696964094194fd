#include "evaluate/journal/journaled_evaluator.h"

#include <algorithm>
#include <utility>

#include "backends/default_kernels.h"
#include "base/log.h"
#include "measure/statistics.h"

namespace gemmtune {
namespace {

Problem at_m(const Problem& problem, std::int64_t m) {
  Problem other = problem;
  other.m = m;
  return other;
}

}  // namespace

JournaledEvaluator::JournaledEvaluator(Evaluator& inner, Journal& journal, const Device& device,
                                       JournalOptions options)
    : ForwardingEvaluator(inner), journal_(journal), device_(device), options_(std::move(options)) {}

void JournaledEvaluator::written(const Status& status) {
  if (status.ok() || !writes_) return;
  writes_ = false;
  log(LogLevel::warning, "the journal of measurements cannot be written any more, measuring goes on: {}",
      status.message());
}

JournaledEvaluator::Bench& JournaledEvaluator::bench_of(const Problem& problem) {
  const auto [found, is_new] = benches_.try_emplace(print(problem));
  Bench& bench = found->second;
  if (!is_new) return bench;
  const auto reference = default_kernel(device_, problem, AccuracyPolicy::keep);
  if (reference.ok()) bench.reference = reference->kernel_name();
  const auto id = journal_.add_problem(options_.run, problem, bench.reference);
  written(id.status());
  if (!id.ok()) return bench;
  bench.id = *id;
  load(bench);
  return bench;
}

void JournaledEvaluator::load(Bench& bench) {
  auto outcomes = journal_.outcomes(bench.id);
  auto finals = journal_.finals(bench.id);
  written(outcomes.status());
  written(finals.status());
  if (!outcomes.ok() || !finals.ok()) return;
  for (JournaledOutcome& past : *outcomes) {
    if (options_.retry_failed && is_lasting_failure(past.outcome.kind)) continue;
    if (past.stage == JournalStage::neighbour) {
      bench.neighbours[{past.candidate, past.m}] = std::move(past.outcome);
    } else if (past.stage == JournalStage::screen) {
      Past& known = bench.screened[past.candidate];
      const auto& samples = past.outcome.microseconds;
      known.samples.insert(known.samples.end(), samples.begin(), samples.end());
      const MeasuredError before = known.latest.error;
      known.latest = without_samples(past.outcome);
      known.latest.error = worst_of(before, known.latest.error);
      known.asked_earlier_runs = true;
      if (past.candidate == bench.reference) bench.reference_samples = known.samples;
    }
  }
  const bool failed = options_.retry_failed && std::ranges::any_of(*finals, [](const JournaledFinals& call) {
                        return std::ranges::any_of(call.result.outcomes, [](const Outcome& one) {
                          return is_lasting_failure(one.kind);
                        });
                      });
  if (!failed) bench.finals = std::move(*finals);
}

std::string JournaledEvaluator::key_of(const Problem& problem, const Candidate& candidate) const {
  return outcome_key(print(problem), options_.device, candidate.kernel_name(),
                     device_.family_identity(candidate.family), options_.policy);
}

JournaledOutcome JournaledEvaluator::record(JournalStage stage, const Problem& problem,
                                            const Candidate& candidate, Outcome outcome) const {
  return {stage,
          problem.m,
          candidate.kernel_name(),
          device_.family_identity(candidate.family),
          key_of(problem, candidate),
          std::move(outcome)};
}

std::optional<Outcome> JournaledEvaluator::earlier_failure(const Problem& problem,
                                                           const Candidate& candidate) {
  if (options_.retry_failed || !writes_) return std::nullopt;
  auto failure = journal_.earlier_failure(key_of(problem, candidate), options_.run);
  written(failure.status());
  if (!failure.ok() || !*failure) return std::nullopt;
  Outcome outcome = without_samples((*failure)->outcome);
  const std::string known = " (known from ";
  if (outcome.reason.find(known) == std::string::npos)
    outcome.reason += fmt::format("{}{}; --retry-failed tries it again)", known, (*failure)->at);
  return outcome;
}

/// The answer, as far as it was known before this process began: all requested samples, or the failure
/// that came after the last one.
std::optional<Outcome> JournaledEvaluator::from_past(Past& past, int samples) {
  const std::size_t left = past.samples.size() - past.used;
  const auto wanted = static_cast<std::size_t>(std::max(0, samples));
  const bool ok = past.latest.kind == OutcomeKind::ok;
  if (left == 0 && ok) return std::nullopt;
  if (left < wanted && ok) return std::nullopt;
  Outcome outcome = past.latest;
  if (left < wanted) return outcome;
  const auto begin = past.samples.begin() + static_cast<std::ptrdiff_t>(past.used);
  if (left > 0) {
    outcome.kind = OutcomeKind::ok;
    outcome.reason.clear();
  }
  outcome.microseconds.assign(begin, begin + static_cast<std::ptrdiff_t>(wanted));
  past.used += wanted;
  return outcome;
}

void JournaledEvaluator::note_reference(Bench& bench, const Candidate& candidate,
                                        const std::vector<double>& samples) {
  if (candidate.kernel_name() != bench.reference || samples.empty()) return;
  bench.reference_samples.insert(bench.reference_samples.end(), samples.begin(), samples.end());
  written(journal_.set_reference(bench.id, median(bench.reference_samples)));
}

void JournaledEvaluator::announce(const Problem& problem, std::span<const Candidate> candidates) {
  const Bench& bench = bench_of(problem);
  std::vector<Candidate> unknown;
  for (const Candidate& candidate : candidates) {
    const auto past = bench.screened.find(candidate.kernel_name());
    const bool known = past != bench.screened.end() && (past->second.used < past->second.samples.size() ||
                                                        past->second.latest.kind != OutcomeKind::ok);
    if (!known) unknown.push_back(candidate);
  }
  inner().announce(problem, unknown);
}

Result<std::vector<Outcome>> JournaledEvaluator::screen(const Problem& problem,
                                                        std::span<const Candidate> candidates, int samples,
                                                        const std::function<bool()>& stop) {
  Bench& bench = bench_of(problem);
  std::vector<Outcome> answers;
  for (const Candidate& candidate : candidates) {
    Past& past = bench.screened[candidate.kernel_name()];
    std::optional<Outcome> known = from_past(past, samples);
    if (!known && !std::exchange(past.asked_earlier_runs, true)) {
      known = earlier_failure(problem, candidate);
      if (known) past.latest = *known;
    }
    if (known) {
      if (stop && stop()) break;
      answers.push_back(std::move(*known));
      continue;
    }
    std::vector<double> had(past.samples.begin() + static_cast<std::ptrdiff_t>(past.used),
                            past.samples.end());
    auto measured = inner().screen(problem, {&candidate, 1}, samples - static_cast<int>(had.size()), stop);
    if (!measured.ok()) {
      // What the journal has by then is answered; the next call meets the error again.
      if (!answers.empty()) break;
      return measured.status();
    }
    if (measured->empty()) break;
    Outcome& outcome = measured->front();
    past.used = past.samples.size();
    if (writes_) {
      written(journal_.add(bench.id, record(JournalStage::screen, problem, candidate, outcome)));
      note_reference(bench, candidate, outcome.microseconds);
    }
    past.latest = without_samples(outcome);
    outcome.microseconds.insert(outcome.microseconds.begin(), had.begin(), had.end());
    answers.push_back(std::move(outcome));
  }
  return answers;
}

Result<FinalsResult> JournaledEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                     std::span<const Candidate> candidates, int rounds) {
  Bench& bench = bench_of(problem);
  std::vector<std::string> names;
  for (const Candidate& candidate : candidates) names.push_back(candidate.kernel_name());
  // Calls between are of a part of the run that need not be repeated: the problem has its row by now.
  for (std::size_t next = bench.finals_used; next < bench.finals.size(); ++next) {
    const JournaledFinals& past = bench.finals[next];
    if (past.candidates != names || past.rounds != rounds || past.result.joules.empty() == kind.energy ||
        past.result.routing != kind.routing)
      continue;
    bench.finals_used = next + 1;
    return past.result;
  }
  bench.finals_used = bench.finals.size();  // another course than before: the rest does not fit it
  auto result = inner().take_rounds(kind, problem, candidates, rounds);
  if (!result.ok() || !writes_) return result;
  std::vector<JournaledOutcome> failures;
  for (std::size_t i = 0; i < candidates.size() && i < result->outcomes.size(); ++i) {
    const Outcome& outcome = result->outcomes[i];
    if (outcome.kind == OutcomeKind::ok) continue;
    failures.push_back(record(JournalStage::finals, problem, candidates[i], outcome));
  }
  written(journal_.add(bench.id, {std::move(names), rounds, *result}, failures));
  return result;
}

Outcome JournaledEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                              std::int64_t m) {
  Bench& bench = bench_of(problem);
  const auto known = bench.neighbours.find({candidate.kernel_name(), m});
  if (known != bench.neighbours.end()) return known->second;
  const Problem neighbour = at_m(problem, m);
  if (auto failure = earlier_failure(neighbour, candidate)) return *failure;
  Outcome outcome = inner().check_neighbour_m(problem, candidate, m);
  if (writes_ && outcome.kind != OutcomeKind::too_slow)  // the time was over, which is nothing of the kernel
    written(journal_.add(bench.id, record(JournalStage::neighbour, neighbour, candidate, outcome)));
  return outcome;
}

}  // namespace gemmtune
