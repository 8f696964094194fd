// Measuring in a worker process: what broken kernels do to it costs one candidate each, and nothing else.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <thread>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "evaluate/worker/worker_evaluator.h"
#include "formats/aiter/tuned_csv.h"
#include "support/faulty_device.h"
#include "support/processes.h"
#include "tuning/tuner.h"

namespace gemmtune::worker_test {
namespace {

using std::chrono::milliseconds;
using testing::candidate_of;
using ::testing::Each;
using testing::Fault;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Clock = std::chrono::steady_clock;

Problem small_problem(std::int64_t m = 5) {
  Problem problem;
  problem.m = m;
  problem.n = 32;
  problem.k = 48;
  return problem;
}

WorkerOptions worker_options() {
  WorkerOptions options;
  options.launch = {GEMMTUNE_FAULTY_WORKER, {}};
  options.min_deadline_seconds = 2;  // a shared machine may give no more than 250 MB of new memory a second
  options.memory_limit_bytes = std::size_t{256} << 20;
  options.evaluation.policy.cache = CacheMode::warm;
  return options;
}

/// For one fault: only the memory takes long to eat.
WorkerOptions worker_options(const Fault& fault) {
  WorkerOptions options = worker_options();
  if (fault.family != "memory_bomb") options.min_deadline_seconds = 1;
  return options;
}

std::vector<Candidate> candidates_of(const std::vector<std::string>& families) {
  std::vector<Candidate> list;
  for (const std::string& family : families) list.push_back(candidate_of(family));
  return list;
}

/// "R", "S", "Z" …; empty where there is no such process.
std::string process_state(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string word;
  while (file >> word) {
    if (word.back() != ')') continue;
    file >> word;
    return word;
  }
  return {};
}

bool is_gone(pid_t pid) {
  for (int i = 0; i < 12000; ++i) {
    const std::string state = process_state(pid);
    if (state.empty() || state == "Z" || state == "X") return true;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return false;
}

/// Processor time, of all threads.
double cpu_seconds_of(pid_t pid) {
  long user = 0;
  long system = 0;
  const int read = std::sscanf(test::stat_of(pid).c_str(),
                               "%*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %ld %ld", &user, &system);
  EXPECT_EQ(read, 2);
  return static_cast<double>(user + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}

struct SilentObserver final : RunObserver {
  void run_started(std::span<const std::size_t>, std::size_t at_once) override { evaluators = at_once; }
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t, const ItemReport&) override {}
  std::size_t evaluators = 0;
};

class FaultyKernel : public ::testing::TestWithParam<Fault> {};

TEST_P(FaultyKernel, CostsItsCandidateAndNothingElse) {
  WorkerEvaluator evaluator(worker_options(GetParam()));
  const auto before = evaluator.screen(small_problem(), candidates_of({"vendor"}), 3, {});
  ASSERT_TRUE(before.ok()) << before.message();
  const pid_t first = evaluator.worker();
  const auto start = Clock::now();
  const auto outcomes =
      evaluator.screen(small_problem(), candidates_of({"good_slow", GetParam().family, "good_fast"}), 3, {});
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(300));
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  ASSERT_THAT(*outcomes, SizeIs(3));
  EXPECT_EQ((*outcomes)[1].kind, GetParam().kind) << (*outcomes)[1].reason;
  EXPECT_THAT((*outcomes)[1].reason, HasSubstr(GetParam().reason));
  EXPECT_EQ((*outcomes)[0].kind, OutcomeKind::ok) << (*outcomes)[0].reason;
  EXPECT_EQ((*outcomes)[2].kind, OutcomeKind::ok) << (*outcomes)[2].reason;
  ASSERT_THAT((*outcomes)[2].microseconds, SizeIs(3));
  EXPECT_NEAR((*outcomes)[2].microseconds[0], 50, 1);
  EXPECT_EQ(evaluator.worker() != first, GetParam().loses_worker);
}

TEST_P(FaultyKernel, AsTheFirstCandidateOfAllToo) {
  WorkerEvaluator evaluator(worker_options(GetParam()));
  const auto outcomes =
      evaluator.screen(small_problem(), candidates_of({GetParam().family, "good_fast"}), 2, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  ASSERT_THAT(*outcomes, SizeIs(2));
  EXPECT_EQ((*outcomes)[0].kind, GetParam().kind) << (*outcomes)[0].reason;
  EXPECT_EQ((*outcomes)[1].kind, OutcomeKind::ok) << (*outcomes)[1].reason;
}

INSTANTIATE_TEST_SUITE_P(Worker, FaultyKernel, ::testing::ValuesIn(testing::faults()),
                         [](const auto& each) { return each.param.family; });

TEST(Worker, HearsOfCandidatesBeforeTheirTurn) {
  WorkerEvaluator evaluator(worker_options());
  const auto candidates = candidates_of({"vendor", "announced"});
  const auto unheard = evaluator.screen(small_problem(4), candidates, 2, {});
  ASSERT_TRUE(unheard.ok()) << unheard.message();
  EXPECT_EQ((*unheard)[1].kind, OutcomeKind::refused);
  evaluator.announce(small_problem(), candidates);
  const auto heard = evaluator.screen(small_problem(), candidates, 2, {});
  ASSERT_TRUE(heard.ok()) << heard.message();
  EXPECT_EQ((*heard)[0].kind, OutcomeKind::ok) << (*heard)[0].reason;
  EXPECT_EQ((*heard)[1].kind, OutcomeKind::ok) << (*heard)[1].reason;
}

// In pieces, each sent before the last one runs out; a list of which a part was sent is replaced by another.
TEST(Worker, HearsOfLongListsInPieces) {
  WorkerEvaluator evaluator(worker_options());
  std::vector<Candidate> list(100, candidate_of("vendor"));
  for (std::size_t i = 0; i < list.size(); ++i) list[i].config.set("place", static_cast<std::int64_t>(i));
  list.push_back(candidate_of("announced"));
  evaluator.announce(small_problem(), list);
  ASSERT_TRUE(evaluator.screen(small_problem(), {&list[0], 1}, 1, {}).ok());
  const pid_t first = evaluator.worker();
  const std::vector<Candidate> ends{list[60], list[100]};
  const auto outcomes = evaluator.screen(small_problem(), ends, 1, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  EXPECT_EQ((*outcomes)[1].kind, OutcomeKind::ok) << (*outcomes)[1].reason;
  evaluator.announce(small_problem(), {});
  EXPECT_EQ(evaluator.worker(), first);
}

TEST(Worker, AnswersWhatTheEvaluatorInProcessAnswers) {
  const auto device = testing::make_faulty_device();
  const WorkerOptions options = worker_options();
  InProcessEvaluator inside(*device, options.evaluation);
  WorkerEvaluator outside(options);
  const auto candidates = candidates_of({"good_slow", "wrong", "good_fast"});
  const auto here = inside.screen(small_problem(), candidates, 4, {});
  const auto there = outside.screen(small_problem(), candidates, 4, {});
  ASSERT_TRUE(here.ok() && there.ok()) << there.message();
  const pid_t first = outside.worker();
  ASSERT_EQ(here->size(), there->size());
  for (std::size_t i = 0; i < here->size(); ++i) {
    EXPECT_EQ((*here)[i].kind, (*there)[i].kind);
    EXPECT_EQ((*here)[i].reason, (*there)[i].reason);
    EXPECT_EQ((*here)[i].err_ratio, (*there)[i].err_ratio);
    EXPECT_EQ((*here)[i].microseconds.size(), (*there)[i].microseconds.size());
  }
  const auto finals_here = inside.finals(small_problem(), candidates, 7);
  const auto finals_there = outside.finals(small_problem(), candidates, 7);
  ASSERT_TRUE(finals_here.ok() && finals_there.ok()) << finals_there.message();
  ASSERT_EQ(finals_there->times.size(), finals_here->times.size());
  for (const auto& round : finals_there->times) {
    ASSERT_THAT(round, SizeIs(3));
    EXPECT_NEAR(round[0], 200, 2);
    EXPECT_TRUE(std::isnan(round[1]));
    EXPECT_NEAR(round[2], 50, 1);
  }
  EXPECT_THAT(finals_there->same_ratios, SizeIs(7));
  const auto energy = outside.energy(small_problem(), candidates, 2);
  ASSERT_TRUE(energy.ok()) << energy.message();
  ASSERT_THAT(energy->joules, SizeIs(2));
  EXPECT_NEAR(energy->joules[1][0], 200e-6 * 100, 1e-3);
  EXPECT_TRUE(std::isnan(energy->joules[1][1]));
  EXPECT_NEAR(energy->times[1][2], 50, 1);
  EXPECT_EQ(outside.check_neighbour_m(small_problem(), candidates[2], 1).kind, OutcomeKind::ok);
  EXPECT_EQ(outside.worker(), first);
}

TEST(Worker, ABuildThatTakesItsTimeIsNoHang) {
  WorkerEvaluator evaluator(worker_options());
  const auto outcomes =
      evaluator.screen(small_problem(), candidates_of({"slow_build", "good_fast", "slow_build"}), 2, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  for (const Outcome& outcome : *outcomes) EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
}

TEST(Worker, ACandidateThatCostAWorkerIsNotTriedAgain) {
  WorkerEvaluator evaluator(worker_options());
  std::vector<pid_t> workers;
  for (int i = 0; i < 3; ++i) {
    const auto outcomes = evaluator.screen(small_problem(), candidates_of({"segfault"}), 2, {});
    ASSERT_TRUE(outcomes.ok()) << outcomes.message();
    EXPECT_EQ(outcomes->front().kind, OutcomeKind::crashed);
    workers.push_back(evaluator.worker());
  }
  const auto finals = evaluator.finals(small_problem(), candidates_of({"segfault"}), 4);
  ASSERT_TRUE(finals.ok()) << finals.message();
  EXPECT_EQ(finals->outcomes.front().kind, OutcomeKind::crashed);
  EXPECT_THAT(finals->times, SizeIs(4));
  const auto energy = evaluator.energy(small_problem(), candidates_of({"segfault"}), 3);
  ASSERT_TRUE(energy.ok()) << energy.message();
  EXPECT_THAT(energy->joules, SizeIs(3));
  EXPECT_THAT(workers, Each(evaluator.worker()));
}

TEST(Worker, FinalsBeginAgainWithoutTheOneThatCrashed) {
  WorkerEvaluator evaluator(worker_options());
  const auto candidates = candidates_of({"good_slow", "late_crash", "good_fast"});
  const auto screened = evaluator.screen(small_problem(), candidates, 3, {});
  ASSERT_TRUE(screened.ok()) << screened.message();
  EXPECT_EQ((*screened)[1].kind, OutcomeKind::ok) << (*screened)[1].reason;
  const pid_t first = evaluator.worker();
  const auto finals = evaluator.finals(small_problem(), candidates, 5);
  ASSERT_TRUE(finals.ok()) << finals.message();
  EXPECT_EQ(finals->outcomes[0].kind, OutcomeKind::ok);
  EXPECT_EQ(finals->outcomes[1].kind, OutcomeKind::crashed);
  EXPECT_THAT(finals->outcomes[1].reason, HasSubstr("SIGSEGV"));
  EXPECT_EQ(finals->outcomes[2].kind, OutcomeKind::ok);
  ASSERT_THAT(finals->times, SizeIs(5));
  for (const auto& round : finals->times) {
    EXPECT_NEAR(round[0], 200, 2);
    EXPECT_TRUE(std::isnan(round[1]));
    EXPECT_NEAR(round[2], 50, 1);
  }
  EXPECT_NE(evaluator.worker(), first);
}

TEST(Worker, ACrashAtAnotherMIsAnOutcome) {
  WorkerEvaluator evaluator(worker_options());
  const Outcome outcome = evaluator.check_neighbour_m(small_problem(), candidate_of("crash_at_m1"), 1);
  EXPECT_EQ(outcome.kind, OutcomeKind::crashed) << outcome.reason;
  EXPECT_EQ(evaluator.check_neighbour_m(small_problem(), candidate_of("crash_at_m1"), 4).kind,
            OutcomeKind::ok);
  EXPECT_EQ(evaluator.check_neighbour_m(small_problem(), candidate_of("good_fast"), 1).kind, OutcomeKind::ok);
}

TEST(Worker, AWholeRunOverFaultyKernelsEndsWithTheRightWinner) {
  std::string pattern = ::testing::TempDir() + "gemmtune_worker_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  const auto device = testing::make_faulty_device();
  WorkerOptions options = worker_options();
  options.min_deadline_seconds = 6;  // the memory is to be eaten within it on a machine with other work, too
  WorkerEvaluator evaluator(options);
  TuneRequest request;
  request.output = folder + "/tuned.csv";
  request.policy = worker_options().evaluation.policy;
  request.strategy = "exhaustive";
  for (const std::int64_t m : {5, 9}) {
    ShapeRow row;
    row.problem = small_problem(m);
    request.shapes.push_back(row);
  }
  SilentObserver observer;
  const auto summary = tune(*device, evaluator, request, observer);
  ASSERT_TRUE(summary.ok()) << summary.message();
  ASSERT_THAT(summary->items, SizeIs(2));
  for (const ItemReport& report : summary->items) {
    ASSERT_TRUE(report.row() != nullptr) << report.reason;
    EXPECT_EQ(report.row()->libtype, "crash_at_m1");  // right at the M asked for and at the others of its row
    for (const Fault& fault : testing::faults()) {
      const auto trial = std::find_if(report.trials.begin(), report.trials.end(), [&](const Trial& each) {
        return each.candidate.family == fault.family;
      });
      ASSERT_NE(trial, report.trials.end()) << fault.family;
      EXPECT_EQ(trial->outcome.kind, fault.kind) << fault.family << ": " << trial->outcome.reason;
    }
  }
  const auto file = read_tuned_csv(request.output);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_THAT(file->entries, SizeIs(2));
  std::filesystem::remove_all(folder);
}

TEST(Worker, KilledFromOutsideTheCandidateGetsAnotherTry) {
  WorkerEvaluator evaluator(worker_options());
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates_of({"vendor"}), 1, {}).ok());
  for (int i = 0; i < 3; ++i) {
    const pid_t killed = evaluator.worker();
    std::thread killer([pid = killed, i] {
      std::this_thread::sleep_for(milliseconds(5 + 7 * i));  // while it runs, which takes at least 20 ms
      kill(pid, SIGKILL);
    });
    const auto outcomes =
        evaluator.screen(small_problem(40 + i), candidates_of({"dawdling", "good_fast"}), 2, {});
    killer.join();
    ASSERT_TRUE(outcomes.ok()) << outcomes.message();
    for (const Outcome& outcome : *outcomes) EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
    // On a busy machine it may have been killed after its work: that shows at the next request.
    ASSERT_TRUE(evaluator.screen(small_problem(60 + i), candidates_of({"good_fast"}), 1, {}).ok());
    EXPECT_NE(evaluator.worker(), killed);
  }
}

TEST(Worker, KilledInFinalsTheFinalsAreDoneAgain) {
  WorkerEvaluator evaluator(worker_options());
  const auto candidates = candidates_of({"dawdling", "good_fast"});
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates, 1, {}).ok());
  const pid_t first = evaluator.worker();
  std::thread killer([pid = first] {
    std::this_thread::sleep_for(milliseconds(30));  // full verification runs the first one for 100 ms
    kill(pid, SIGKILL);
  });
  const auto finals = evaluator.finals(small_problem(), candidates, 3);
  killer.join();
  ASSERT_TRUE(finals.ok()) << finals.message();
  for (const Outcome& outcome : finals->outcomes) EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
  EXPECT_THAT(finals->times, SizeIs(3));
  // On a busy machine it may have been killed after its work: that shows at the next request.
  ASSERT_TRUE(evaluator.screen(small_problem(41), candidates_of({"good_fast"}), 1, {}).ok());
  EXPECT_NE(evaluator.worker(), first);
}

TEST(Worker, KilledWhileIdleNobodyIsToBlame) {
  WorkerEvaluator evaluator(worker_options());
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates_of({"vendor"}), 1, {}).ok());
  const pid_t first = evaluator.worker();
  kill(first, SIGKILL);
  EXPECT_TRUE(is_gone(first));
  const auto outcomes = evaluator.screen(small_problem(), candidates_of({"good_fast"}), 1, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  EXPECT_EQ(outcomes->front().kind, OutcomeKind::ok);
  EXPECT_NE(evaluator.worker(), first);
}

TEST(Worker, KilledBeforeItEverWorkedAnotherOneIsStarted) {
  WorkerEvaluator evaluator(worker_options());
  std::atomic<bool> done = false;
  std::thread killer([&] {
    while (!done) {
      const auto children = test::children_of(getpid());
      if (children.empty()) continue;
      kill(children.front(), SIGKILL);
      return;
    }
  });
  const Status started = evaluator.start();
  done = true;
  killer.join();
  EXPECT_TRUE(started.ok()) << started.message();
  EXPECT_TRUE(evaluator.screen(small_problem(), candidates_of({"good_fast"}), 1, {}).ok());
}

TEST(Worker, AProgramOfAnotherKindIsRefusedWithItsWords) {
  WorkerOptions options = worker_options();
  options.launch = {"/bin/true", {}};
  EXPECT_THAT(WorkerEvaluator(options).start().message(), HasSubstr("/bin/true"));
  options.launch = {"/no/such/program", {}};
  EXPECT_THAT(WorkerEvaluator(options).start().message(), HasSubstr("/no/such/program"));
}

TEST(Worker, OneThatHasAShareRestsAndGoesFirstWithoutMemory) {
  WorkerOptions options = worker_options();
  options.evaluation.share = 0.2;
  WorkerEvaluator evaluator(options);
  ASSERT_TRUE(evaluator.start().ok());
  EXPECT_EQ(read_file(fmt::format("/proc/{}/oom_score_adj", evaluator.worker())).value(), "1000\n");
  const auto begin = Clock::now();
  const double before = cpu_seconds_of(evaluator.worker());
  double used = 0;
  for (int m = 40; used < 0.5; ++m) {
    Problem problem = small_problem(m);
    problem.n = problem.k = 256;
    const auto outcomes = evaluator.screen(problem, candidates_of({"good_fast", "good_slow"}), 2, {});
    ASSERT_TRUE(outcomes.ok()) << outcomes.message();
    used = cpu_seconds_of(evaluator.worker()) - before;
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  // What a request does behind its last rest, and the clock's tick, are no part of the bound.
  EXPECT_LE(used, options.evaluation.share * seconds + 0.15);
}

TEST(Worker, TheDefaultKernelHasMoreTimeThanOthers) {
  FakeDevice of_run;
  of_run.add({.name = "loop"});
  WorkerOptions options = worker_options();
  options.min_deadline_seconds = 0.1;
  options.deadline_factor = 0;
  const std::vector<Candidate> kernels = candidates_of({"loop"});
  ASSERT_EQ(*of_run.fallback(small_problem()), kernels.front());
  const auto reason = [&] {
    WorkerEvaluator evaluator(options);
    const auto screened = evaluator.screen(small_problem(), kernels, 1, {});
    return screened.ok() ? screened->front().reason : screened.message();
  };
  EXPECT_THAT(reason(), HasSubstr("did not end within 0.2 s"));
  options.device_of_run = &of_run;
  EXPECT_THAT(reason(), HasSubstr("did not end within 2.4 s"));
}

TEST(Worker, CtrlCIsTheParentsToDecide) {
  WorkerEvaluator evaluator(worker_options());
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates_of({"vendor"}), 1, {}).ok());
  const pid_t first = evaluator.worker();
  kill(first, SIGINT);
  kill(first, SIGTERM);
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates_of({"good_fast"}), 1, {}).ok());
  EXPECT_EQ(evaluator.worker(), first);
}

TEST(Worker, ARequestThatIsCancelledEndsAtOnce) {
  WorkerOptions options = worker_options();
  std::atomic<bool> cancelled = false;
  options.min_deadline_seconds = 600;
  options.cancelled = [&] { return cancelled.load(); };
  WorkerEvaluator evaluator(options);
  std::thread user([&] {
    std::this_thread::sleep_for(milliseconds(300));
    cancelled = true;
  });
  const auto start = Clock::now();
  const auto outcomes = evaluator.screen(small_problem(), candidates_of({"loop"}), 1, {});
  user.join();
  EXPECT_FALSE(outcomes.ok());
  EXPECT_THAT(outcomes.message(), HasSubstr("interrupted"));
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(300)) << "half of the deadline";
}

TEST(Worker, DiesWithItsParent) {
  int report[2];
  ASSERT_EQ(pipe(report), 0);
  const pid_t parent = fork();
  if (parent == 0) {
    WorkerOptions options = worker_options();
    options.min_deadline_seconds = 600;
    WorkerEvaluator evaluator(options);
    if (!evaluator.screen(small_problem(), candidates_of({"vendor"}), 1, {}).ok()) _exit(1);
    const pid_t worker = evaluator.worker();
    if (write(report[1], &worker, sizeof worker) != sizeof worker) _exit(1);
    (void)evaluator.screen(small_problem(), candidates_of({"loop"}), 1, {});
    _exit(0);
  }
  close(report[1]);
  pid_t worker = 0;
  ASSERT_EQ(read(report[0], &worker, sizeof worker), static_cast<ssize_t>(sizeof worker));
  close(report[0]);
  EXPECT_FALSE(process_state(worker).empty());
  std::this_thread::sleep_for(milliseconds(100));  // into the loop, where it asks for nothing
  kill(parent, SIGKILL);
  int status = 0;
  waitpid(parent, &status, 0);
  EXPECT_TRUE(is_gone(worker));
}

TEST(Worker, WaitsForWhoeverIsTimingAndIsNotBlamedForIt) {
  WorkerOptions options = worker_options();
  options.min_deadline_seconds = 1;
  std::string pattern = ::testing::TempDir() + "gemmtune_lock_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  options.evaluation.timing_lock = folder + "/timing.lock";
  WorkerEvaluator evaluator(options);
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates_of({"vendor"}), 1, {}).ok());
  std::atomic<bool> done = false;
  std::optional<FileLock> lock = FileLock::acquire(options.evaluation.timing_lock).value();
  std::thread measuring([&] {
    const auto outcomes = evaluator.screen(small_problem(), candidates_of({"good_fast"}), 2, {});
    EXPECT_TRUE(outcomes.ok() && outcomes->front().kind == OutcomeKind::ok);
    done = true;
  });
  std::this_thread::sleep_for(milliseconds(3000));  // far above the deadline of a candidate
  EXPECT_FALSE(done);
  lock.reset();
  measuring.join();
  EXPECT_TRUE(done);
  std::filesystem::remove_all(folder);
}

TEST(Worker, AWaitForAnotherTunerIsCountedApartAndSaidOnce) {
  std::string said;
  set_log_sink([](LogLevel, std::string_view line,
                  void* context) { static_cast<std::string*>(context)->append(line).append("\n"); },
               &said);
  std::string pattern = ::testing::TempDir() + "gemmtune_lock_XXXXXX";
  const std::string folder = mkdtemp(pattern.data());
  WorkerOptions options = worker_options();
  options.evaluation.timing_lock = folder + "/timing.lock";
  std::atomic<double> waited = 0;
  options.on_waited = [&](double seconds) { waited.fetch_add(seconds); };
  WorkerEvaluator evaluator(options);
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates_of({"vendor"}), 1, {}).ok());
  EXPECT_EQ(waited, 0);
  const pid_t other = getppid();  // of a tuner that is not this process
  const auto wait_for = [&](std::int64_t holder, const char* family, const std::function<bool()>& is_enough) {
    std::optional<FileLock> lock = FileLock::acquire(options.evaluation.timing_lock, holder).value();
    std::thread measuring(
        [&] { EXPECT_TRUE(evaluator.screen(small_problem(), candidates_of({family}), 1, {}).ok()); });
    for (int tries = 0; tries < 600 && !is_enough(); ++tries) std::this_thread::sleep_for(milliseconds(100));
    lock.reset();
    measuring.join();
  };
  int polls = 0;
  wait_for(0, "good_fast", [&] { return ++polls > 4; });  // its own worker on another partition
  EXPECT_EQ(waited, 0);
  wait_for(other, "good_slow", [&] { return waited > 1.05; });
  EXPECT_GE(waited, 1);
  const std::string line = options.evaluation.timing_lock + ": waiting for process " + std::to_string(other);
  EXPECT_THAT(said, HasSubstr(line));
  said.clear();
  wait_for(other, "dawdling", [&] { return waited > 1.3; });
  set_log_sink(nullptr, nullptr);
  EXPECT_EQ(said.find(line), std::string::npos) << "once is enough";
  std::filesystem::remove_all(folder);
}

TEST(Worker, ASpentBudgetEndsACheckAtAnotherM) {
  WorkerOptions options = worker_options();
  options.timeout_seconds = 60;
  options.min_deadline_seconds = 60;
  std::atomic<bool> spent = false;
  options.is_spent = [&] { return spent.load(); };
  WorkerEvaluator evaluator(options);
  ASSERT_TRUE(evaluator.screen(small_problem(), candidates_of({"vendor"}), 1, {}).ok());
  spent = true;
  const Outcome outcome = evaluator.check_neighbour_m(small_problem(), candidates_of({"loop"}).front(), 3);
  EXPECT_NE(outcome.kind, OutcomeKind::ok);
  EXPECT_THAT(outcome.reason, HasSubstr("interrupted"));
}

TEST(Worker, SeveralOfThemShareOutTheShapesOfARun) {
  const auto device = testing::make_faulty_device();
  WorkerEvaluator first(worker_options());
  WorkerEvaluator second(worker_options());
  Evaluator* const evaluators[] = {&first, &second};
  TuneRequest request;
  request.policy = worker_options().evaluation.policy;
  request.libtypes = {"vendor", "good_fast", "good_slow", "segfault", "dawdling"};
  for (const std::int64_t m : {5, 9, 11, 13, 17}) {
    ShapeRow row;
    row.problem = small_problem(m);
    request.shapes.push_back(row);
  }
  SilentObserver observer;
  const auto summary = tune(*device, evaluators, request, observer);
  ASSERT_TRUE(summary.ok()) << summary.message();
  for (const ItemReport& report : summary->items) {
    ASSERT_TRUE(report.row() != nullptr) << report.reason;
    EXPECT_EQ(report.row()->libtype, "good_fast");
  }
  EXPECT_EQ(observer.evaluators, 2U);
  EXPECT_NE(first.worker(), 0);
  EXPECT_NE(second.worker(), 0);
}

TEST(Worker, AProgramThatIsNoWorkerIsAnError) {
  WorkerOptions options = worker_options();
  options.launch = {"/bin/true", {}};
  const auto ended = WorkerEvaluator(options).screen(small_problem(), candidates_of({"vendor"}), 1, {});
  EXPECT_FALSE(ended.ok());
  EXPECT_THAT(ended.message(), HasSubstr("/bin/true"));
  options.launch = {"/nowhere/gemmtune", {"worker"}};
  const auto missing = WorkerEvaluator(options).screen(small_problem(), candidates_of({"vendor"}), 1, {});
  EXPECT_FALSE(missing.ok());
  EXPECT_THAT(missing.message(), HasSubstr("No such file"));
}

}  // namespace
}  // namespace gemmtune::worker_test
