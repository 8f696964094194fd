#include "evaluate/worker/worker_main.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "base/duty_cycle.h"
#include "evaluate/worker/message_channel.h"
#include "evaluate/worker/worker_protocol.h"

namespace gemmtune {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int exit_device_lost = 3;

/// Notes each step on the page, and how long candidates took.
class StepLog {
 public:
  explicit StepLog(WorkerPage page) : page_(std::move(page)) {}

  void begin(std::uint32_t request, std::vector<std::string> kernel_names) {
    kernel_names_ = std::move(kernel_names);
    state_.request = request;
    candidate_seconds_ = 0;
    waited_seconds_ = 0;
    note(Step::preparing, {});
  }
  void end() { note(Step::idle, {}); }
  void note(Step step, std::string_view kernel_name) {
    const auto now = Clock::now();
    if (state_.step == Step::candidate)
      candidate_seconds_ += std::chrono::duration<double>(now - since_).count();
    since_ = now;
    state_.step = step;
    ++state_.steps;
    state_.candidate.reset();
    const auto found = std::find(kernel_names_.begin(), kernel_names_.end(), kernel_name);
    if (found != kernel_names_.end()) {
      state_.candidate = static_cast<std::size_t>(found - kernel_names_.begin());
    }
    page_.write(state_);
  }
  double candidate_seconds() const { return candidate_seconds_; }
  void add_wait(double seconds) { waited_seconds_ += seconds; }
  double waited_seconds() const { return waited_seconds_; }

 private:
  WorkerPage page_;
  WorkerState state_;
  std::vector<std::string> kernel_names_;  // of the request's candidates
  Clock::time_point since_{};
  double candidate_seconds_ = 0;
  double waited_seconds_ = 0;
};

struct NamesOf {
  std::vector<std::string> operator()(const OpenRequest&) const { return {}; }
  std::vector<std::string> operator()(const AnnounceRequest&) const { return {}; }
  std::vector<std::string> operator()(const ScreenRequest& request) const {
    return {request.candidate.kernel_name()};
  }
  std::vector<std::string> operator()(const NeighbourRequest& request) const {
    return {request.candidate.kernel_name()};
  }
  std::vector<std::string> operator()(const FinalsRequest& request) const {
    std::vector<std::string> names;
    for (const Candidate& candidate : request.candidates) names.push_back(candidate.kernel_name());
    return names;
  }
};

class Worker {
 public:
  Worker(const DeviceOpener& open, WorkerPage page) : open_(open), steps_(std::move(page)) {}

  WorkerReply answer(const NumberedRequest& request) {
    steps_.begin(request.number, std::visit(NamesOf(), request.content));
    const double processor_seconds = process_cpu_seconds();
    WorkerReply reply;
    reply.number = request.number;
    auto result = std::visit([&](const auto& content) { return this->result_of(content); }, request.content);
    leave_if_lost();
    steps_.end();
    reply.candidate_seconds = steps_.candidate_seconds();
    reply.waited_seconds = steps_.waited_seconds();
    reply.processor_seconds = process_cpu_seconds() - processor_seconds;
    if (result.ok()) {
      reply.result = std::move(result).value();
    } else {
      reply.status = result.status();
    }
    return reply;
  }

 private:
  Result<FinalsResult> result_of(const OpenRequest& request) {
    if (request.version != gemmtune_version_text()) {
      return Status::unsupported("this program is gemmtune {}, expected {}", gemmtune_version_text(),
                                 request.version);
    }
    if (request.evaluation.policy.processor_time) let_openmp_sleep();
    GEMMTUNE_TRY(device_, open_(request.backend, request.device));
    InProcessOptions options = request.evaluation;
    options.on_step = [this](Step step, std::string_view kernel_name) {
      leave_if_lost();
      steps_.note(step, kernel_name);
    };
    options.on_waited = [this](double seconds) { steps_.add_wait(seconds); };
    if (options.share < 1) {
      go_first_without_memory();
      duty_.emplace(options.share, device_->info().cu_num);
      options.on_pause = [this] {
        steps_.note(Step::resting, {});
        duty_->rest();
      };
    }
    evaluator_ = std::make_unique<InProcessEvaluator>(*device_, options);
    const Problem probe = device_->probe_problem();
    GEMMTUNE_TRY(const auto good, device_->fallback(probe));
    const Outcome outcome = evaluator_->check_neighbour_m(probe, good, probe.m);
    if (outcome.kind == OutcomeKind::ok) return FinalsResult();
    return Status::unsupported("{}: a kernel that is known to be good, {}, is {}: {}", device_->info().name,
                               good.kernel_name(), to_string(outcome.kind), outcome.reason);
  }

  Result<FinalsResult> result_of(const AnnounceRequest& request) {
    if (!evaluator_) return not_open();
    evaluator_->announce(request.problem, request.candidates);
    return FinalsResult();
  }

  Result<FinalsResult> result_of(const ScreenRequest& request) {
    if (!evaluator_) return not_open();
    const Candidate candidates[] = {request.candidate};
    GEMMTUNE_TRY(auto outcomes, evaluator_->screen(request.problem, candidates, request.samples, {}));
    FinalsResult result;
    result.outcomes = std::move(outcomes);
    return result;
  }

  Result<FinalsResult> result_of(const FinalsRequest& request) {
    if (!evaluator_) return not_open();
    return evaluator_->take_rounds(request.kind, request.problem, request.candidates, request.rounds);
  }

  Result<FinalsResult> result_of(const NeighbourRequest& request) {
    if (!evaluator_) return not_open();
    FinalsResult result;
    result.outcomes.push_back(evaluator_->check_neighbour_m(request.problem, request.candidate, request.m));
    return result;
  }

  /// After a device fault nothing of this process can use the device any more: it ends while the page still
  /// names the candidate that did it, and the parent starts another one.
  void leave_if_lost() const {
    if (!device_) return;
    if (const Status health = device_->health(); !health.ok()) {
      fmt::print(stderr, "the device was lost: {}\n", health.message());
      std::fflush(stderr);
      std::_Exit(exit_device_lost);
    }
  }

  /// Threads of an OpenMP runtime that is loaded later sleep while they wait, whatever the program's do: what they spin would be
  /// processor time. The process has one thread yet.
  static void let_openmp_sleep() {
    ::setenv("OMP_WAIT_POLICY", "passive", 1);
    ::unsetenv("GOMP_SPINCOUNT");
    ::setenv("KMP_BLOCKTIME", "0", 1);
  }

  /// Beside a service it is this process that the system ends where memory runs out.
  static void go_first_without_memory() {
    std::FILE* file = std::fopen("/proc/self/oom_score_adj", "we");
    if (file == nullptr) return;
    std::fputs("1000", file);
    std::fclose(file);
  }

  static Status not_open() { return Status::internal("the worker was asked before its device was opened"); }

  const DeviceOpener& open_;
  StepLog steps_;
  std::optional<DutyCycle> duty_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<InProcessEvaluator> evaluator_;  // after the device: it goes first
};

WorkerReply answer(Worker& worker, const NumberedRequest& request) {
  WorkerReply reply;
  try {
    return worker.answer(request);
  } catch (const std::bad_alloc&) {
    reply.status = Status(StatusCode::out_of_memory, "the worker is out of memory");
  } catch (const std::exception& error) {
    reply.status = Status::internal("the worker failed: {}", error.what());
  }
  reply.number = request.number;
  return reply;
}

/// They came blocked from the parent, so that none could end this process before.
void ignore_interrupts() {
  sigset_t both;
  sigemptyset(&both);
  for (const int signal : {SIGINT, SIGTERM}) {
    std::signal(signal, SIG_IGN);
    sigaddset(&both, signal);
  }
  sigprocmask(SIG_UNBLOCK, &both, nullptr);
}

}  // namespace

bool has_worker_descriptors() {
  struct stat socket {};
  struct stat page {};
  return fstat(worker_socket, &socket) == 0 && S_ISSOCK(socket.st_mode) && fstat(worker_page, &page) == 0 &&
         S_ISREG(page.st_mode);
}

int run_worker(const DeviceOpener& open) {
  ignore_interrupts();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const rlimit no_core{0, 0};  // of gigabytes of weights
  setrlimit(RLIMIT_CORE, &no_core);
  fcntl(worker_socket, F_SETFD, FD_CLOEXEC);
  fcntl(worker_page, F_SETFD, FD_CLOEXEC);
  MessageChannel channel(worker_socket);
  auto page = WorkerPage::attach(worker_page);
  if (!page.ok()) return 1;
  Worker worker(open, std::move(page).value());
  while (const auto message = channel.receive()) {
    const auto request = parse_request(*message);
    if (!request.ok()) {
      fmt::print(stderr, "{}; is this another version of gemmtune than its parent, {}?\n", request.message(),
                 gemmtune_version_text());
      return 1;
    }
    if (!channel.send(print_reply(answer(worker, *request))).ok()) return 0;
  }
  return 0;
}

}  // namespace gemmtune
