#include "evaluate/replay/replay_evaluator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/hash.h"
#include "measure/statistics.h"

namespace gemmtune {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

Outcome not_recorded(std::string_view what) {
  return failed_outcome(OutcomeKind::refused, fmt::format("{} is not in the recording", what));
}

double pick(const std::vector<double>& samples, Random& random) {
  return samples[random.below(samples.size())];
}

}  // namespace

ReplayEvaluator::ReplayEvaluator(const Recording& recording, std::uint64_t seed, bool shuffled)
    : recording_(recording), seed_(seed), shuffled_(shuffled) {
  for (const RecordedProblem& record : recording.problems) records_[print(record.problem)] = &record;
}

/// A batch lasts as long as the policy says; what surrounds it is in the recorded overheads.
double ReplayEvaluator::sample_seconds(double microseconds) const {
  return 1e-6 * std::max(microseconds, recording_.run.policy.sample_microseconds);
}

ReplayEvaluator::Bench ReplayEvaluator::make_bench(const RecordedProblem& record) const {
  Bench bench;
  bench.random = Random(hash64(print(record.problem)) ^ seed_);
  bench.record = &record;
  for (const RecordedScreening& call : record.screenings) {
    Screened& screened = bench.screened[call.candidate];
    double in_samples = 0;
    for (const double sample : call.outcome.microseconds) {
      screened.samples.push_back(sample);
      in_samples += sample_seconds(sample);
    }
    screened.overheads.push_back(std::max(0.0, call.seconds - in_samples));
    screened.latest = without_samples(call.outcome);
  }
  std::vector<double> first_overheads;  // of each candidate
  for (const auto& [name, screened] : bench.screened) first_overheads.push_back(screened.overheads.front());
  if (!first_overheads.empty()) {
    const double first = bench.screened.at(record.screenings.front().candidate).overheads.front();
    bench.set_up_seconds = std::max(0.0, first - median(first_overheads));
  }
  for (const RecordedFinals& call : record.finals) {
    for (std::size_t i = 0; i < call.candidates.size(); ++i) {
      bench.verified[call.candidates[i]] = without_samples(call.result.outcomes[i]);
    }
    for (std::size_t r = 0; r < call.result.times.size(); ++r) {
      Round& round = bench.rounds.emplace_back();
      round.candidates = &call.candidates;
      round.same_ratio = r < call.result.same_ratios.size() ? call.result.same_ratios[r] : none;
      round.seconds = call.seconds / static_cast<double>(call.result.times.size());
      for (std::size_t i = 0; i < call.candidates.size(); ++i) {
        if (std::isfinite(call.result.times[r][i])) round.times[call.candidates[i]] = call.result.times[r][i];
      }
    }
  }
  if (shuffled_) {
    for (auto& [name, screened] : bench.screened) shuffle(screened.samples, bench.random);
    shuffle(bench.rounds, bench.random);
  }
  return bench;
}

Result<ReplayEvaluator::Bench*> ReplayEvaluator::bench_of(const Problem& problem) {
  const std::string text = print(problem);
  if (const auto made = benches_.find(text); made != benches_.end()) {
    Bench* const bench = &made->second;
    if (std::exchange(latest_, bench) != bench) seconds_ += bench->set_up_seconds;
    return bench;
  }
  const auto record = records_.find(text);
  if (record == records_.end()) return Status::not_found("{}: not in the recording", text);
  Bench* const bench = &benches_.emplace(text, make_bench(*record->second)).first->second;
  latest_ = bench;
  return bench;
}

Outcome ReplayEvaluator::screen_one(Bench& bench, const std::string& candidate, int samples) {
  const auto found = bench.screened.find(candidate);
  if (found == bench.screened.end()) return not_recorded(candidate);
  Screened& screened = found->second;
  if (screened.calls_used < screened.overheads.size()) seconds_ += screened.overheads[screened.calls_used++];
  Outcome outcome = screened.latest;
  const bool more_recorded = screened.samples_used < screened.samples.size();
  if (outcome.kind != OutcomeKind::ok && !more_recorded) return outcome;
  outcome.kind = OutcomeKind::ok;
  outcome.reason.clear();
  if (screened.samples.empty()) return samples > 0 ? not_recorded(candidate + " with a time") : outcome;
  for (int i = 0; i < samples; ++i) {
    const double sample = screened.samples_used < screened.samples.size()
                              ? screened.samples[screened.samples_used++]
                              : pick(screened.samples, bench.random);
    seconds_ += sample_seconds(sample);
    outcome.microseconds.push_back(sample);
  }
  return outcome;
}

Result<std::vector<Outcome>> ReplayEvaluator::screen(const Problem& problem,
                                                     std::span<const Candidate> candidates, int samples,
                                                     const std::function<bool()>& stop) {
  GEMMTUNE_TRY(const auto bench, bench_of(problem));
  std::vector<Outcome> outcomes;
  for (const Candidate& candidate : candidates) {
    if (stop && stop()) break;
    outcomes.push_back(screen_one(*bench, candidate.kernel_name(), samples));
  }
  return outcomes;
}

Outcome ReplayEvaluator::outcome_of(const Bench& bench, const std::string& candidate) const {
  if (const auto verified = bench.verified.find(candidate); verified != bench.verified.end())
    return verified->second;
  const auto screened = bench.screened.find(candidate);
  return screened == bench.screened.end() ? not_recorded(candidate) : screened->second.latest;
}

/// The next recorded round of exactly these candidates, else of these among others, else one made of their
/// samples.
ReplayEvaluator::Round ReplayEvaluator::next_round(Bench& bench, const std::vector<std::string>& candidates) {
  std::vector<Round*> fitting;
  Round* unused = nullptr;
  for (Round& round : bench.rounds) {
    const bool all =
        std::ranges::all_of(candidates, [&](const std::string& name) { return round.times.contains(name); });
    if (!all) continue;
    fitting.push_back(&round);
    if (round.used) continue;
    const bool exact = *round.candidates == candidates;
    if (unused == nullptr || (exact && *unused->candidates != candidates)) unused = &round;
  }
  if (fitting.empty()) return unpaired_round(bench, candidates);
  if (unused != nullptr) unused->used = true;
  Round round = unused != nullptr ? *unused : *fitting[bench.random.below(fitting.size())];
  // Its recorded seconds are those of all candidates of the round.
  round.seconds *= static_cast<double>(candidates.size()) / static_cast<double>(round.times.size());
  return round;
}

ReplayEvaluator::Round ReplayEvaluator::unpaired_round(Bench& bench,
                                                       const std::vector<std::string>& candidates) const {
  Round made;
  made.same_ratio = none;
  for (const std::string& name : candidates) {
    std::vector<double> samples;
    for (const Round& round : bench.rounds) {
      if (const auto time = round.times.find(name); time != round.times.end())
        samples.push_back(time->second);
    }
    if (const auto screened = bench.screened.find(name); samples.empty() && screened != bench.screened.end())
      samples = screened->second.samples;
    if (samples.empty()) continue;
    made.times[name] = pick(samples, bench.random);
    if (std::isnan(made.same_ratio)) made.same_ratio = pick(samples, bench.random) / made.times[name];
    made.seconds += sample_seconds(made.times[name]);
  }
  return made;
}

Result<FinalsResult> ReplayEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                  std::span<const Candidate> candidates, int rounds) {
  if (kind.energy) return Status::unsupported("a recording has no joules");
  if (kind.routing)
    return Status::unsupported("a recording has no rounds on {} routing", to_string(*kind.routing));
  GEMMTUNE_TRY(const auto bench, bench_of(problem));
  FinalsResult result;
  std::vector<std::string> names;
  std::vector<std::string> running;
  for (const Candidate& candidate : candidates) {
    names.push_back(candidate.kernel_name());
    result.outcomes.push_back(outcome_of(*bench, names.back()));
    if (result.outcomes.back().kind == OutcomeKind::ok) running.push_back(names.back());
  }
  for (int i = 0; i < rounds && !running.empty(); ++i) {
    const Round round = next_round(*bench, running);
    seconds_ += round.seconds;
    if (std::isfinite(round.same_ratio)) result.same_ratios.push_back(round.same_ratio);
    std::vector<double>& times = result.times.emplace_back();
    for (std::size_t c = 0; c < names.size(); ++c) {
      const auto time = round.times.find(names[c]);
      const bool has = result.outcomes[c].kind == OutcomeKind::ok && time != round.times.end();
      times.push_back(has ? time->second : none);
      if (has) result.outcomes[c].microseconds.push_back(time->second);
    }
  }
  for (int i = 0; i < rounds && running.empty(); ++i) result.times.emplace_back(names.size(), none);
  result.quietness.rounds = static_cast<int>(result.times.size());
  return result;
}

Outcome ReplayEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                           std::int64_t m) {
  const auto bench = bench_of(problem);
  const std::string name = candidate.kernel_name();
  if (!bench.ok()) return not_recorded(name);
  for (const RecordedNeighbour& check : (*bench)->record->neighbours) {
    if (check.candidate != name || check.m != m) continue;
    seconds_ += check.seconds;
    return check.outcome;
  }
  return not_recorded(fmt::format("{} at M = {}", name, m));
}

}  // namespace gemmtune
