#include "online/online_evaluator.h"

#include <utility>

namespace gemmtune {
namespace {

struct Stopped {};

constexpr std::int64_t no_run = 0;  // runs are numbered from 1

constexpr const char* stopped_text = "online tuning was stopped";

Outcome crashed_here() {
  return failed_outcome(OutcomeKind::crashed, "its process ended while it was tried online");
}

InProcessOptions stoppable(InProcessOptions options, const std::atomic<bool>* stopping) {
  options.on_step = [stopping](Step, std::string_view) {
    if (stopping != nullptr && stopping->load(std::memory_order_relaxed)) throw Stopped();
  };
  return options;
}

/// The problem as offline tuning writes it: a packed weight's layout is open there.
Problem with_open_layout(const Problem& problem) {
  Problem open = problem;
  if (is_packed(open)) open.weight_layout = WeightLayout::any;
  return open;
}

}  // namespace

OnlineEvaluator::OnlineEvaluator(Device& device, Journal& journal, std::int64_t run,
                                 std::vector<Journal>& others, const OnlineEvaluation& options)
    : OnlineEvaluator(
          std::make_unique<InProcessEvaluator>(device, stoppable(options.in_process, options.stopping)),
          device, journal, run, others, options) {}

OnlineEvaluator::OnlineEvaluator(std::unique_ptr<InProcessEvaluator> evaluator, Device& device,
                                 Journal& journal, std::int64_t run, std::vector<Journal>& others,
                                 const OnlineEvaluation& options)
    : ForwardingEvaluator(*evaluator),
      device_(device),
      journal_(journal),
      run_(run),
      others_(others),
      options_(options),
      evaluator_(std::move(evaluator)) {}

OnlineEvaluator::OnlineEvaluator(Evaluator& worker, Device& device, Journal& journal, std::int64_t run,
                                 std::vector<Journal>& others, const OnlineEvaluation& options)
    : ForwardingEvaluator(worker),
      device_(device),
      journal_(journal),
      run_(run),
      others_(others),
      options_(options) {}

std::string OnlineEvaluator::key_of(const Problem& problem, const Candidate& candidate) const {
  return outcome_key(print(with_open_layout(problem)), options_.device_text, candidate.kernel_name(),
                     device_.family_identity(candidate.family), options_.policy_text);
}

JournaledOutcome OnlineEvaluator::record(const Trial& trial, Outcome outcome) const {
  outcome.microseconds.clear();
  return {trial.stage,
          trial.problem.m,
          trial.candidate.kernel_name(),
          device_.family_identity(trial.candidate.family),
          key_of(trial.problem, trial.candidate),
          std::move(outcome)};
}

std::optional<Outcome> OnlineEvaluator::earlier_failure(const Problem& problem, const Candidate& candidate) {
  if (options_.trusted.contains(candidate.kernel_name())) return std::nullopt;
  const std::string key = key_of(problem, candidate);
  const auto ask = [&](Journal& journal, std::int64_t not_of_run) -> std::optional<Outcome> {
    const auto failure = journal.earlier_failure(key, not_of_run);
    if (!failure.ok() || !*failure) return std::nullopt;
    return failed_outcome(
        (*failure)->outcome.kind,
        fmt::format("{} (known from {}, {})", (*failure)->outcome.reason, journal.path(), (*failure)->at));
  };
  if (auto known = ask(journal_, run_)) return known;
  for (Journal& other : others_) {
    if (auto known = ask(other, no_run)) return known;
  }
  return std::nullopt;
}

bool OnlineEvaluator::is_new(const std::string& what, const Candidate& candidate) {
  return tried_.emplace(what, candidate.kernel_name()).second;
}

Status OnlineEvaluator::leave_trace(const Trial& trial) {
  if (is_isolated() || options_.trusted.contains(trial.candidate.kernel_name())) return {};
  GEMMTUNE_TRY(const auto id, journal_.add_problem(run_, trial.problem, {}));
  return journal_.add(id, record(trial, crashed_here()));
}

void OnlineEvaluator::write(const Trial& trial, const Outcome& outcome) {
  if (options_.trusted.contains(trial.candidate.kernel_name())) return;
  if (is_isolated() && !is_lasting_failure(outcome.kind)) return;
  const auto id = journal_.add_problem(run_, trial.problem, {});
  // A candidate that stays under suspicion is only tried no more.
  if (id.ok()) (void)journal_.add(*id, record(trial, outcome));
}

Result<std::vector<Outcome>> OnlineEvaluator::screen(const Problem& problem,
                                                     std::span<const Candidate> candidates, int samples,
                                                     const std::function<bool()>& stop) {
  std::vector<Outcome> answers;
  if (stopped()) return Status::internal("{}", stopped_text);
  for (const Candidate& candidate : candidates) {
    if (stop && stop()) break;
    const std::string name = candidate.kernel_name();
    const Trial trial{JournalStage::screen, problem, candidate};
    const bool first = is_new("screening", candidate);
    if (first) {
      if (auto known = earlier_failure(problem, candidate)) failed_[name] = std::move(*known);
    }
    if (const auto known = failed_.find(name); known != failed_.end()) {
      answers.push_back(known->second);
      continue;
    }
    if (first) GEMMTUNE_RETURN_IF_ERROR(leave_trace(trial));
    try {
      auto measured = inner().screen(problem, {&candidate, 1}, samples, {});
      if (!measured.ok() || measured->empty()) {
        if (first) write(trial, Outcome());
        return measured.ok() ? Result<std::vector<Outcome>>(std::move(answers)) : measured;
      }
      if (first) write(trial, measured->front());
      if (is_lasting_failure(measured->front().kind)) failed_[name] = measured->front();
      answers.push_back(std::move(measured->front()));
    } catch (const Stopped&) {
      if (first) write(trial, Outcome());
      return Status::internal("{}", stopped_text);
    }
  }
  return answers;
}

/// Each candidate's first rounds of a kind leave a trace.
Result<FinalsResult> OnlineEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                  std::span<const Candidate> candidates, int rounds) {
  if (stopped()) return Status::internal("{}", stopped_text);
  const std::string what = kind.energy    ? "energy"
                           : kind.routing ? fmt::format("finals on {}", to_string(*kind.routing))
                                          : "finals";
  std::vector<Trial> traced;
  for (const Candidate& candidate : candidates) {
    const Trial trial{JournalStage::finals, problem, candidate};
    if (!is_new(what, candidate)) continue;
    GEMMTUNE_RETURN_IF_ERROR(leave_trace(trial));
    traced.push_back(trial);
  }
  const auto clear = [&](const FinalsResult* result) {
    for (const Trial& trial : traced) {
      Outcome outcome;
      for (std::size_t i = 0; result != nullptr && i < result->outcomes.size(); ++i) {
        if (candidates[i] == trial.candidate) outcome = result->outcomes[i];
      }
      write(trial, outcome);
    }
  };
  try {
    auto result = inner().take_rounds(kind, problem, candidates, rounds);
    clear(result.ok() ? &*result : nullptr);
    return result;
  } catch (const Stopped&) {
    clear(nullptr);
    return Status::internal("{}", stopped_text);
  }
}

Outcome OnlineEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                           std::int64_t m) {
  Problem neighbour = problem;
  neighbour.m = m;
  if (stopped()) return failed_outcome(OutcomeKind::launch_failed, stopped_text);
  if (auto known = earlier_failure(neighbour, candidate)) return std::move(*known);
  const Trial trial{JournalStage::neighbour, neighbour, candidate};
  if (const Status status = leave_trace(trial); !status.ok()) {
    return failed_outcome(OutcomeKind::launch_failed, status.message());
  }
  try {
    Outcome outcome = inner().check_neighbour_m(problem, candidate, m);
    write(trial, outcome);
    return outcome;
  } catch (const Stopped&) {
    write(trial, Outcome());
    return failed_outcome(OutcomeKind::launch_failed, stopped_text);
  }
}

}  // namespace gemmtune
