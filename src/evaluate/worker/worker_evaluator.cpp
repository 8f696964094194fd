#include "evaluate/worker/worker_evaluator.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>
#include <utility>

#include "backends/default_kernels.h"
#include "backends/host.h"
#include "base/clock.h"
#include "base/log.h"

namespace gemmtune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double poll_seconds = 0.1;              // between two checks of a busy worker
constexpr double attention_seconds = 10;          // until a worker has begun a request, or sent what it has
constexpr double pauses_seconds[] = {0, 0.5, 2};  // before each try to replace a worker
constexpr std::size_t announced_at_once = 64;     // candidates; the next ones are sent when half are left
constexpr double default_patience = 12;           // of WorkerOptions::device_of_run's default kernel
constexpr int max_tries = 3;                      // of a request whose worker is lost for reasons outside

double seconds_since(Clock::time_point then) {
  return std::chrono::duration<double>(Clock::now() - then).count();
}

double mebibytes(std::size_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

std::string key_of(const Problem& problem, const Candidate& candidate) {
  return print(problem) + "\n" + candidate.kernel_name();
}

/// The candidates that a request runs.
struct CandidatesOf {
  std::span<const Candidate> operator()(const OpenRequest&) const { return {}; }
  std::span<const Candidate> operator()(const AnnounceRequest&) const { return {}; }
  std::span<const Candidate> operator()(const ScreenRequest& request) const {
    return {&request.candidate, 1};
  }
  std::span<const Candidate> operator()(const NeighbourRequest& request) const {
    return {&request.candidate, 1};
  }
  template <typename Rounds>
  std::span<const Candidate> operator()(const Rounds& request) const {
    return request.candidates;
  }
};

struct ProblemOf {
  const Problem* operator()(const OpenRequest&) const { return nullptr; }
  template <typename Request>
  const Problem* operator()(const Request& request) const {
    return &request.problem;
  }
};

/// The default kernel's place among the candidates that a request runs.
std::optional<std::size_t> default_of(const WorkerRequest& request, const WorkerOptions& options) {
  const std::span<const Candidate> candidates = std::visit(CandidatesOf(), request);
  if (options.device_of_run == nullptr || candidates.empty()) return std::nullopt;
  const auto known = default_kernel(*options.device_of_run, *std::visit(ProblemOf(), request),
                                    options.evaluation.policy.accuracy);
  if (!known.ok()) return std::nullopt;
  const auto found = std::find(candidates.begin(), candidates.end(), *known);
  if (found == candidates.end()) return std::nullopt;
  return static_cast<std::size_t>(found - candidates.begin());
}

}  // namespace

/// Watches the time and memory of one request.
class WorkerEvaluator::Watch {
 public:
  struct Limits {
    double timeout_seconds;
    double min_seconds;
    double factor;
    double expected_seconds;  // of a candidate; 0: none was measured yet
    std::size_t memory_bytes;
    std::optional<std::size_t> default_kernel;  // its place in the request
  };

  Watch(const WorkerProcess& process, std::uint32_t number, const Limits& limits)
      : process_(process), number_(number & 0xffff), limits_(limits) {}

  WorkerState state() const { return process_.state(); }
  bool begun() const { return state().request == number_ && state().step != Step::idle; }

  /// The outcome of a candidate whose worker must be killed now.
  std::optional<Outcome> diagnostic() {
    const WorkerState now = state();
    if (!(now == last_)) {
      last_ = now;
      since_ = Clock::now();
    }
    if (!prepared_seconds_ && begun() && now.step == Step::candidate) {
      prepared_seconds_ = seconds_since(begin_);
    }
    if (const std::size_t resident = process_.resident_bytes(); resident > limits_.memory_bytes) {
      return failed_outcome(
          OutcomeKind::crashed,
          fmt::format("its worker held {:.0f} MiB of memory, more than the limit of {:.0f} MiB, and "
                      "was killed",
                      mebibytes(resident), mebibytes(limits_.memory_bytes)));
    }
    if (const double limit = step_limit(now); seconds_since(since_) > limit) {
      return failed_outcome(OutcomeKind::timed_out,
                            fmt::format("did not end within {:.3g} s; its worker was killed", limit));
    }
    return std::nullopt;
  }

 private:
  double step_limit(const WorkerState& now) const {
    if (!begun()) return attention_seconds;
    if (now.step != Step::candidate) return limits_.timeout_seconds;
    // The first candidate of a problem has nothing before it but the making of operands and references.
    const double limit =
        limits_.expected_seconds > 0
            ? std::max(limits_.min_seconds, limits_.factor * limits_.expected_seconds)
            : std::max(2 * limits_.min_seconds, limits_.factor * prepared_seconds_.value_or(0));
    const bool is_default = limits_.default_kernel && now.candidate == limits_.default_kernel;
    return std::min(is_default ? default_patience * limit : limit, limits_.timeout_seconds);
  }

  const WorkerProcess& process_;
  std::uint32_t number_;
  Limits limits_;
  WorkerState last_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point since_ = begin_;
  std::optional<double> prepared_seconds_;
};

WorkerEvaluator::WorkerEvaluator(WorkerOptions options) : options_(std::move(options)) {
  options_.evaluation.lock_owner = getpid();
}

WorkerEvaluator::~WorkerEvaluator() = default;

Status WorkerEvaluator::start() { return process_ ? Status() : start_worker(); }

Status WorkerEvaluator::start_worker() {
  Status failure;
  for (const double pause : pauses_seconds) {
    for (const auto begin = Clock::now(); seconds_since(begin) < pause && !is_cancelled();)
      std::this_thread::sleep_for(std::chrono::duration<double>(std::min(pause, poll_seconds)));
    if (is_cancelled()) return Status::unsupported("interrupted");
    GEMMTUNE_TRY(process_, WorkerProcess::start(options_.launch));
    requests_ = 0;
    memory_limit_ =
        options_.memory_limit_bytes > 0 ? options_.memory_limit_bytes : free_host_memory_bytes() / 2;
    const auto answer = ask(OpenRequest{options_.backend, options_.device, options_.evaluation});
    if (answer.ok() && std::holds_alternative<WorkerReply>(*answer)) {
      had_worker_ = true;
      return {};
    }
    process_.reset();
    const bool killed_from_outside = answer.ok() && std::get<Loss>(*answer).killed_from_outside;
    if (answer.ok()) {
      failure = Status::internal("no worker ({}): {}", options_.launch.program,
                                 std::get<Loss>(*answer).outcome.reason);
    } else {
      failure = answer.status();
    }
    // A device that just lost a worker may need a moment.
    if (!had_worker_ && !killed_from_outside) break;
  }
  return failure;
}

Result<WorkerEvaluator::Answer> WorkerEvaluator::ask(const WorkerRequest& request) {
  const std::uint32_t number = ++requests_;
  const bool may_cancel = !std::holds_alternative<NeighbourRequest>(request);
  waited_in_request_ = 0;
  waits_since_.reset();
  Watch watch(*process_, number,
              {options_.timeout_seconds, options_.min_deadline_seconds, options_.deadline_factor,
               learnt_count_ > 0 ? learnt_seconds_ / learnt_count_ : 0, memory_limit_,
               default_of(request, options_)});
  if (!process_->send(print_request({number, request})).ok()) return Answer(lose(watch, std::nullopt));
  for (;;) {
    std::string message;
    const WorkerProcess::Event event = process_->wait(poll_seconds, message);
    if (event == WorkerProcess::Event::ended) return Answer(lose(watch, std::nullopt));
    if (event == WorkerProcess::Event::message) {
      auto reply = parse_reply(message);
      if (!reply.ok() || reply->number != number) {
        return Answer(
            lose(watch, failed_outcome(OutcomeKind::crashed, "its worker answered with no valid reply")));
      }
      count_wait(reply->waited_seconds - waited_in_request_);
      processor_seconds_ += reply->processor_seconds;
      if (!reply->status.ok()) return reply->status;
      return Answer(std::move(reply).value());
    }
    note_wait(watch.state());
    if ((may_cancel && is_cancelled()) || (options_.is_spent && options_.is_spent())) {
      process_.reset();
      return Status::unsupported("interrupted");
    }
    if (auto diagnostic = watch.diagnostic()) return Answer(lose(watch, std::move(diagnostic)));
  }
}

void WorkerEvaluator::note_wait(const WorkerState& state) {
  if (state.step != Step::waiting_for_other) {
    waits_since_.reset();
    return;
  }
  const double now = steady_seconds();
  if (waits_since_) count_wait(now - *waits_since_);
  waits_since_ = now;
}

void WorkerEvaluator::count_wait(double seconds) {
  constexpr double worth_a_line = 1;  // of all waits together
  if (seconds <= 0) return;
  waited_ += seconds;
  waited_in_request_ += seconds;
  if (options_.on_waited) options_.on_waited(seconds);
  const std::string& path = options_.evaluation.timing_lock;
  if (waited_ < worth_a_line || lock_holder(path) == getpid()) return;
  const std::string holder = describe_lock_holder(path);
  if (named_holders_.insert(holder).second)
    log(LogLevel::warning, "{}: waiting for {}, which has the lock; this time is counted apart", path,
        holder);
}

WorkerEvaluator::Loss WorkerEvaluator::lose(const Watch& watch, std::optional<Outcome> killed_for) {
  Loss loss;
  const bool begun = watch.begun();
  if (begun) loss.candidate = watch.state().candidate;
  if (killed_for) process_->kill();
  const WorkerEnding ending = process_->ending();
  loss.outcome =
      killed_for ? std::move(*killed_for) : failed_outcome(OutcomeKind::crashed, ending_text(ending));
  loss.killed_from_outside = !killed_for && ending.signal == SIGKILL && !ending.killed_by_us;
  loss.may_try_again = !begun || loss.killed_from_outside;
  process_.reset();
  announced_.clear();
  sent_ = 0;
  return loss;
}

Result<WorkerEvaluator::Answer> WorkerEvaluator::ask_stubbornly(const WorkerRequest& request) {
  Loss loss;
  for (int attempt = 0; attempt < max_tries; ++attempt) {
    if (!process_) GEMMTUNE_RETURN_IF_ERROR(start_worker());
    auto answer = ask(request);
    if (!answer.ok() || std::holds_alternative<WorkerReply>(*answer)) return answer;
    loss = std::get<Loss>(std::move(answer).value());
    // What all candidates share may have been stopped from outside too: once more, not for ever.
    if (!loss.may_try_again && (loss.candidate || attempt > 0)) break;
  }
  if (loss.candidate) return Answer(std::move(loss));
  return Status::internal("the worker was lost before a candidate ran: {}", loss.outcome.reason);
}

Result<WorkerReply> WorkerEvaluator::ask_of_one(const WorkerRequest& request, const std::string& key) {
  WorkerReply known;
  if (const auto lost = lost_.find(key); lost != lost_.end()) {
    known.result.outcomes.push_back(lost->second);
    return known;
  }
  GEMMTUNE_TRY(auto answer, ask_stubbornly(request));
  if (auto* reply = std::get_if<WorkerReply>(&answer)) {
    if (reply->result.outcomes.size() == 1) return std::move(*reply);
    return Status::internal("the worker answered {} outcomes for one candidate",
                            reply->result.outcomes.size());
  }
  known.result.outcomes.push_back(std::get<Loss>(answer).outcome);
  lost_[key] = known.result.outcomes.front();
  return known;
}

void WorkerEvaluator::learn(const Problem& problem, const WorkerReply& reply) {
  if (reply.candidate_seconds <= 0 || reply.result.outcomes.front().kind != OutcomeKind::ok) return;
  std::string text = print(problem);
  if (text != learnt_problem_) {
    learnt_problem_ = std::move(text);
    learnt_seconds_ = 0;
    learnt_count_ = 0;
  }
  learnt_seconds_ += reply.candidate_seconds;
  ++learnt_count_;
}

void WorkerEvaluator::announce(const Problem& problem, std::span<const Candidate> candidates) {
  const bool cancels = candidates.empty() && sent_ > 0 && process_ != nullptr;
  announced_problem_ = problem;
  announced_.assign(candidates.begin(), candidates.end());
  sent_ = 0;
  // Whether it arrives does not matter: a worker that is lost is missed by the next request.
  if (cancels) (void)ask(AnnounceRequest{problem, {}});
}

void WorkerEvaluator::announce_from(const Candidate& candidate) {
  const auto found = std::find(announced_.begin(), announced_.end(), candidate);
  if (found == announced_.end() || sent_ == announced_.size()) return;
  const auto at = static_cast<std::size_t>(found - announced_.begin());
  if (sent_ > at + announced_at_once / 2) return;
  if (!process_ && !start_worker().ok()) return;
  sent_ = std::min(announced_.size(), at + announced_at_once);
  (void)ask(
      AnnounceRequest{announced_problem_, {found, announced_.begin() + static_cast<std::ptrdiff_t>(sent_)}});
}

Result<std::vector<Outcome>> WorkerEvaluator::screen(const Problem& problem,
                                                     std::span<const Candidate> candidates, int samples,
                                                     const std::function<bool()>& stop) {
  if (print(problem) != learnt_problem_) learnt_count_ = 0;
  std::vector<Outcome> outcomes;
  for (const Candidate& candidate : candidates) {
    if (stop && stop()) break;
    announce_from(candidate);
    GEMMTUNE_TRY(auto reply,
                 ask_of_one(ScreenRequest{problem, candidate, samples}, key_of(problem, candidate)));
    learn(problem, reply);
    outcomes.push_back(std::move(reply.result.outcomes.front()));
  }
  return outcomes;
}

Result<FinalsResult> WorkerEvaluator::take_rounds(const RoundsKind& kind, const Problem& problem,
                                                  std::span<const Candidate> candidates, int rounds) {
  FinalsRequest request{problem, {}, rounds, kind};
  if (print(problem) != learnt_problem_) learnt_count_ = 0;
  FinalsResult result;
  result.outcomes.resize(candidates.size());
  std::vector<std::size_t> running;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    const auto lost = lost_.find(key_of(problem, candidates[i]));
    if (lost == lost_.end()) {
      running.push_back(i);
    } else {
      result.outcomes[i] = lost->second;
    }
  }
  const std::vector<double> nothing(candidates.size(), std::numeric_limits<double>::quiet_NaN());
  while (!running.empty()) {
    request.candidates.clear();
    for (const std::size_t i : running) request.candidates.push_back(candidates[i]);
    GEMMTUNE_TRY(auto answer, ask_stubbornly(request));
    if (const auto* loss = std::get_if<Loss>(&answer)) {
      const std::size_t culprit = running[std::min(*loss->candidate, running.size() - 1)];
      result.outcomes[culprit] = loss->outcome;
      lost_[key_of(problem, candidates[culprit])] = loss->outcome;
      std::erase(running, culprit);
      continue;
    }
    FinalsResult& part = std::get<WorkerReply>(answer).result;
    for (std::size_t k = 0; k < running.size() && k < part.outcomes.size(); ++k)
      result.outcomes[running[k]] = std::move(part.outcomes[k]);
    const auto place = [&](const std::vector<std::vector<double>>& from,
                           std::vector<std::vector<double>>& to) {
      for (const auto& round : from) {
        to.push_back(nothing);
        for (std::size_t k = 0; k < running.size() && k < round.size(); ++k) to.back()[running[k]] = round[k];
      }
    };
    place(part.times, result.times);
    place(part.joules, result.joules);
    result.same_ratios = std::move(part.same_ratios);
    result.quietness = part.quietness;
    result.routing = part.routing;
    return result;
  }
  // All were lost.
  result.times.assign(static_cast<std::size_t>(std::max(0, rounds)), nothing);
  if (kind.energy) result.joules = result.times;
  return result;
}

Outcome WorkerEvaluator::check_neighbour_m(const Problem& problem, const Candidate& candidate,
                                           std::int64_t m) {
  Problem neighbour = problem;
  neighbour.m = m;
  auto reply = ask_of_one(NeighbourRequest{problem, candidate, m}, key_of(neighbour, candidate));
  if (!reply.ok()) return failed_launch(reply.status());
  return std::move(reply->result.outcomes.front());
}

}  // namespace gemmtune
