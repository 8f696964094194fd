// The journal: what it keeps, that a killed run goes on without measuring twice, that failures are not tried
// again, and what becomes of damaged files.
#include "evaluate/journal/journal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <filesystem>

#include "base/file.h"
#include "base/process.h"
#include "evaluate/journal/journal_report.h"
#include "evaluate/journal/journaled_evaluator.h"
#include "support/paper_device.h"
#include "tuning/tuner.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using testing::failure;
using testing::FakeEvaluator;
using ::testing::HasSubstr;

constexpr const char* device_text = "paper";

struct SilentObserver final : RunObserver {
  void problem_started(std::size_t, std::size_t, const ShapeRow&) override {}
  void candidate_done(std::size_t, const Trial&, std::int64_t) override {}
  void problem_done(std::size_t, const ItemReport&) override {}
};

Problem problem_of(std::int64_t m) {
  Problem problem;
  problem.m = m;
  problem.n = 64;
  problem.k = 64;
  return problem;
}

Candidate tiled(const std::string& kc) {
  Candidate candidate{"tiled", 1, {}};
  candidate.config.set("kc", kc);
  return candidate;
}

class JournalTest : public ::testing::Test {
 protected:
  JournalTest() {
    std::string pattern = ::testing::TempDir() + "gemmtune_journal_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    path_ = folder_ + "/tuned.csv.journal";
    add_families(device_, "a");
    set_up(evaluator_);
  }
  ~JournalTest() override { std::filesystem::remove_all(folder_); }

  static void add_families(testing::PaperDevice& device, const std::string& source) {
    device.add({.name = "vendor", .tie_rank = 0, .parameters = {}});
    device.add({.name = "tiled", .source = source, .parameters = {{"kc", {"128", "256", "512"}, "", ""}}});
    device.baseline_of = [](const Problem&) { return Candidate{"vendor", 1, {}}; };
  }
  static void set_up(FakeEvaluator& evaluator) {
    evaluator.time = [](const Problem&, const Candidate& candidate) {
      return candidate.family == "vendor" ? 100.0 : static_cast<double>(candidate.config.number("kc")) / 4;
    };
  }
  Journal open() const {
    auto journal = Journal::open(path_);
    EXPECT_TRUE(journal.ok()) << journal.message();
    return std::move(*journal);
  }
  static RunStart begin(Journal& journal, bool go_on, const std::string& request = "r") {
    const auto run = journal.begin_run({request, "test", "policy", "env", device_text}, go_on);
    EXPECT_TRUE(run.ok()) << run.message();
    return run.ok() ? *run : RunStart{};
  }
  JournaledEvaluator around(FakeEvaluator& inner, Journal& journal, std::int64_t run,
                            bool retry_failed = false) const {
    return {inner, journal, device_, {run, "policy", device_text, retry_failed}};
  }
  static std::vector<Outcome> screen(Evaluator& evaluator, const Problem& problem,
                                     const std::vector<Candidate>& candidates, int samples) {
    auto outcomes = evaluator.screen(problem, candidates, samples, {});
    EXPECT_TRUE(outcomes.ok()) << outcomes.message();
    return outcomes.ok() ? *outcomes : std::vector<Outcome>();
  }
  std::vector<JournalLine> lines() const {
    std::vector<JournalLine> all;
    auto database = open_existing_journal(path_);
    EXPECT_TRUE(database.ok()) << database.message();
    if (!database.ok()) return all;
    EXPECT_TRUE(for_each_outcome(*database, [&](const JournalLine& line) { all.push_back(line); }).ok());
    return all;
  }

  std::string folder_;
  std::string path_;
  /// A run in which one candidate of problem_of(8) was screened; its file is then changed by `sql`.
  void leave_screened_and_change(const char* sql) {
    Journal journal = open();
    const RunStart run = begin(journal, false);
    auto evaluator = around(evaluator_, journal, run.id);
    screen(evaluator, problem_of(8), {tiled("128")}, 1);
    auto database = SqlDatabase::open(path_);
    ASSERT_TRUE(database->execute(sql).ok());
  }

  testing::PaperDevice device_;
  FakeEvaluator evaluator_;
};

TEST_F(JournalTest, SamplesOfAnUnfinishedRunAreNotTakenAgain) {
  std::vector<double> first;
  {
    Journal journal = open();
    auto evaluator = around(evaluator_, journal, begin(journal, true).id);
    first = screen(evaluator, problem_of(8), {tiled("128")}, 3)[0].microseconds;
  }
  Journal journal = open();
  const RunStart run = begin(journal, true);
  EXPECT_TRUE(run.goes_on);
  FakeEvaluator fresh;
  set_up(fresh);
  auto evaluator = around(fresh, journal, run.id);
  const auto two = screen(evaluator, problem_of(8), {tiled("128"), tiled("256")}, 2);
  EXPECT_THAT(two[0].microseconds, ElementsAre(first[0], first[1]));
  EXPECT_EQ(fresh.screened.count("tiled_r1_kc128"), 0U);
  EXPECT_EQ(fresh.screened["tiled_r1_kc256"], 1);
  // Three more: one is left, two are measured.
  const auto three = screen(evaluator, problem_of(8), {tiled("128")}, 3)[0].microseconds;
  ASSERT_EQ(three.size(), 3U);
  EXPECT_EQ(three[0], first[2]);
  EXPECT_EQ(fresh.screened["tiled_r1_kc128"], 1);
  std::size_t samples = 0;
  for (const JournalLine& line : lines()) {
    if (line.candidate == "tiled_r1_kc128") samples += line.samples.size();
  }
  EXPECT_EQ(samples, 5U) << "three, and the two that were missing";
}

TEST_F(JournalTest, AnotherRequestAndAnEndedRunBeginAnew) {
  Journal journal = open();
  const RunStart first = begin(journal, true);
  auto evaluator = around(evaluator_, journal, first.id);
  screen(evaluator, problem_of(8), {tiled("128")}, 1);
  EXPECT_FALSE(begin(journal, true, "other").goes_on);
  EXPECT_FALSE(begin(journal, false).goes_on) << "--all, --no-resume";
  ASSERT_TRUE(journal.end_run(first.id, true).ok());
  EXPECT_NE(begin(journal, true).id, first.id);
}

TEST_F(JournalTest, ARunThatALivingProcessWorksOnIsNotGoneOnWith) {
  Journal journal = open();
  begin(journal, true);
  const pid_t child = fork();
  if (child == 0) {
    auto own = Journal::open(path_);
    const auto run = own.ok() ? own->begin_run({"r", "", "", "", ""}, true) : Result<RunStart>(own.status());
    _exit(!run.ok() ? 1 : run->goes_on ? 2 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_TRUE(process_runs(process_identity()));
  EXPECT_FALSE(process_runs("another-boot 1 2"));
}

TEST_F(JournalTest, ARunOfAnotherContainerIsAliveWhileItHoldsItsLock) {
  const auto forget_process = [&] {  // as another container's list of processes has it
    ASSERT_TRUE(SqlDatabase::open(path_)->execute("UPDATE runs SET owner = 'boot 1 1'").ok());
  };
  std::int64_t id = 0;
  {
    Journal theirs = open();
    id = begin(theirs, true).id;
    forget_process();
    Journal ours = open();
    EXPECT_FALSE(begin(ours, true).goes_on);
    EXPECT_TRUE(run_is_live(path_, id, "boot 1 1"));
    EXPECT_FALSE(run_is_live(path_, id, "")) << "the run was given back";
  }
  forget_process();
  EXPECT_FALSE(run_is_live(path_, id, "boot 1 1"));
  Journal later = open();
  EXPECT_TRUE(begin(later, true).goes_on);
}

TEST_F(JournalTest, FailuresOfEarlierRunsAreNotTriedAgainUnlessAskedOrRepaired) {
  evaluator_.outcome = [](const Problem&, const Candidate& candidate) {
    if (candidate == tiled("128")) return failure(OutcomeKind::crashed, "signal 11");
    if (candidate == tiled("512")) return failure(OutcomeKind::too_slow, "slow");
    return Outcome{};
  };
  {
    Journal journal = open();
    const RunStart run = begin(journal, true);
    auto evaluator = around(evaluator_, journal, run.id);
    screen(evaluator, problem_of(8), {tiled("128"), tiled("256"), tiled("512")}, 1);
    ASSERT_TRUE(journal.end_run(run.id, true).ok());
  }
  Journal journal = open();
  const auto again = [&](const testing::PaperDevice& device, const std::string& policy, bool retry) {
    FakeEvaluator fresh;
    set_up(fresh);
    JournaledEvaluator evaluator(fresh, journal, device,
                                 {begin(journal, false).id, policy, device_text, retry});
    const auto outcomes = screen(evaluator, problem_of(8), {tiled("128"), tiled("256"), tiled("512")}, 1);
    EXPECT_EQ(fresh.screened.count("tiled_r1_kc256"), 1U) << "times of another run are not used";
    EXPECT_EQ(fresh.screened.count("tiled_r1_kc512"), 1U) << "too slow then may be fast enough now";
    const bool tried = fresh.screened.contains("tiled_r1_kc128");
    EXPECT_EQ(outcomes[0].kind, tried ? OutcomeKind::ok : OutcomeKind::crashed);
    if (!tried) {
      EXPECT_THAT(outcomes[0].reason, HasSubstr("signal 11"));
    }
    return tried;
  };
  EXPECT_FALSE(again(device_, "policy", false));
  EXPECT_TRUE(again(device_, "policy", true)) << "--retry-failed; and then it was right";
  EXPECT_TRUE(again(device_, "policy", false)) << "the latest outcome counts";
}

TEST_F(JournalTest, ARepairedKernelIsTriedAgainAnUnchangedOneIsNot) {
  evaluator_.outcome = [](const Problem&, const Candidate& candidate) {
    return candidate == tiled("128") ? failure(OutcomeKind::wrong, "NaN") : Outcome{};
  };
  Journal journal = open();
  auto first = around(evaluator_, journal, begin(journal, false).id);
  screen(first, problem_of(8), {tiled("128")}, 1);
  const auto tries = [&](const std::string& source, const std::string& policy) {
    testing::PaperDevice device;
    add_families(device, source);
    FakeEvaluator fresh;
    set_up(fresh);
    JournaledEvaluator evaluator(fresh, journal, device,
                                 {begin(journal, false).id, policy, device_text, false});
    screen(evaluator, problem_of(8), {tiled("128")}, 1);
    return fresh.screened.count("tiled_r1_kc128") == 1;
  };
  EXPECT_FALSE(tries("a", "policy"));
  EXPECT_TRUE(tries("b", "policy"));
  EXPECT_TRUE(tries("a", "another policy"));
}

TEST_F(JournalTest, WholeCallsOfFinalsAreAnsweredAgainInTheirOrder) {
  const std::vector<Candidate> both = {tiled("128"), tiled("256")};
  FinalsResult first;
  {
    Journal journal = open();
    auto evaluator = around(evaluator_, journal, begin(journal, true).id);
    first = *evaluator.finals(problem_of(8), both, 4);
    EXPECT_EQ(evaluator.check_neighbour_m(problem_of(8), both[0], 7).kind, OutcomeKind::ok);
  }
  Journal journal = open();
  FakeEvaluator fresh;
  set_up(fresh);
  auto evaluator = around(fresh, journal, begin(journal, true).id);
  EXPECT_EQ(evaluator.finals(problem_of(8), both, 4)->times, first.times);
  EXPECT_TRUE(fresh.finals_calls.empty());
  EXPECT_TRUE(evaluator.finals(problem_of(8), both, 4).ok());
  EXPECT_EQ(fresh.finals_calls.size(), 1U) << "further calls are measured";
  bool asked = false;
  fresh.at_m = [&](const Problem&, const Candidate&, std::int64_t) {
    asked = true;
    return Outcome{};
  };
  evaluator.check_neighbour_m(problem_of(8), both[0], 7);
  EXPECT_FALSE(asked);
  evaluator.check_neighbour_m(problem_of(8), both[0], 5);
  EXPECT_TRUE(asked);
}

TEST_F(JournalTest, RoundsOnAnotherRoutingAreAnsweredAgainAndAreNoFinals) {
  const std::vector<Candidate> both = {tiled("128"), tiled("256")};
  const auto time_on = [](RoutingKind routing, const Candidate&) {
    return routing == RoutingKind::zipf ? 20.0 : 10.0;
  };
  evaluator_.time_on = time_on;
  FinalsResult first;
  {
    Journal journal = open();
    auto evaluator = around(evaluator_, journal, begin(journal, true).id);
    first = *evaluator.finals_on(RoutingKind::zipf, problem_of(8), both, 3);
    EXPECT_EQ(first.routing, RoutingKind::zipf);
  }
  Journal journal = open();
  FakeEvaluator fresh;
  set_up(fresh);
  fresh.time_on = time_on;
  const auto run = begin(journal, true);
  auto evaluator = around(fresh, journal, run.id);
  EXPECT_EQ(evaluator.finals_on(RoutingKind::zipf, problem_of(8), both, 3)->times, first.times);
  EXPECT_TRUE(fresh.routed_calls.empty());
  EXPECT_EQ(evaluator.finals_on(RoutingKind::uniform, problem_of(8), both, 3)->routing, RoutingKind::uniform);
  EXPECT_EQ(fresh.routed_calls.size(), 1U);
  EXPECT_FALSE(evaluator.finals(problem_of(8), both, 3)->routing);
  EXPECT_EQ(fresh.finals_calls.size(), 1U) << "neither is one of finals";
}

TEST_F(JournalTest, EnergyBatchesAreAnsweredAgainAndAreNoFinals) {
  const std::vector<Candidate> both = {tiled("128"), tiled("256")};
  const auto joules = [](const Problem&, const Candidate& candidate) {
    return static_cast<double>(candidate.config.number("kc"));
  };
  evaluator_.joules = joules;
  FinalsResult first;
  {
    Journal journal = open();
    auto evaluator = around(evaluator_, journal, begin(journal, true).id);
    first = *evaluator.energy(problem_of(8), both, 3);
    ASSERT_EQ(first.joules.size(), 3U);
  }
  Journal journal = open();
  FakeEvaluator fresh;
  set_up(fresh);
  fresh.joules = joules;
  const auto run = begin(journal, true);
  {
    auto evaluator = around(fresh, journal, run.id);
    EXPECT_EQ(evaluator.energy(problem_of(8), both, 3)->joules, first.joules);
    EXPECT_TRUE(fresh.energy_calls.empty());
  }
  auto evaluator = around(fresh, journal, run.id);
  EXPECT_TRUE(evaluator.finals(problem_of(8), both, 3)->joules.empty());
  EXPECT_EQ(fresh.finals_calls.size(), 1U) << "the batches are no rounds of finals";
}

TEST_F(JournalTest, AFinalistThatFailedIsKnownToLaterRuns) {
  evaluator_.full_outcome = [](const Problem&, const Candidate& candidate) {
    return candidate == tiled("128") ? failure(OutcomeKind::wrong, "a race") : Outcome{};
  };
  Journal journal = open();
  auto first = around(evaluator_, journal, begin(journal, true).id);
  ASSERT_TRUE(first.finals(problem_of(8), std::vector{tiled("128"), tiled("256")}, 2).ok());
  FakeEvaluator fresh;
  set_up(fresh);
  auto later = around(fresh, journal, begin(journal, false).id);
  EXPECT_THAT(screen(later, problem_of(8), {tiled("128")}, 1)[0].reason, HasSubstr("a race"));
  EXPECT_TRUE(fresh.screened.empty());
}

TEST_F(JournalTest, HintsAreTheBestOfThisProblemAndThenOfTheNearestM) {
  Journal journal = open();
  const std::int64_t run = begin(journal, true).id;
  auto evaluator = around(evaluator_, journal, run);
  const std::vector<Candidate> all = {{"vendor", 1, {}}, tiled("256"), tiled("128")};
  for (const std::int64_t m : {8, 64, 4096}) screen(evaluator, problem_of(m), all, 3);
  const auto hints = journal.hints(device_text, problem_of(32), 4);
  ASSERT_TRUE(hints.ok()) << hints.message();
  ASSERT_EQ(hints->size(), 4U);
  EXPECT_EQ((*hints)[0].candidate, "tiled_r1_kc128");
  EXPECT_EQ((*hints)[0].m, 64);
  EXPECT_NEAR((*hints)[0].relative, 0.32, 0.01);
  EXPECT_EQ((*hints)[3].m, 8);
  EXPECT_TRUE(journal.hints("another device", problem_of(32), 4)->empty());
  EXPECT_TRUE(journal.hints(device_text, problem_of(32), 4, run)->empty())
      << "a run that goes on gets no hints from itself: the order of its search must stay as it was";
}

/// Tunes three problems into one journal, its evaluator ending the process at the `step`-th question. False:
/// it finished.
bool run_and_die(const testing::PaperDevice& device, const TuneRequest& request, const std::string& path,
                 int step) {
  const pid_t child = fork();
  if (child == 0) {
    auto journal = Journal::open(path);
    const auto run = journal->begin_run({"r", "", "policy", "env", device_text}, true);
    FakeEvaluator inner;
    inner.time = [](const Problem&, const Candidate& candidate) {
      return candidate.family == "vendor" ? 100.0 : static_cast<double>(candidate.config.number("kc")) / 4;
    };
    int questions = 0;
    inner.before = [&](const Problem&) {
      if (++questions == step) kill(getpid(), SIGKILL);
    };
    JournaledEvaluator evaluator(inner, *journal, device, {run->id, "policy", device_text, false});
    SilentObserver observer;
    const bool ok = tune(const_cast<testing::PaperDevice&>(device), evaluator, request, observer).ok();
    _exit(ok ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

TEST_F(JournalTest, KilledAtEveryQuestionNothingIsMeasuredTwice) {
  TuneRequest request;
  request.output = folder_ + "/tuned.csv";
  request.strategy = "exhaustive";
  for (const std::int64_t m : {8, 16, 32}) request.shapes.push_back({problem_of(m), 1, {}, 0});
  int kills = 0;
  for (int step = 2; run_and_die(device_, request, path_, step); ++step) {
    ASSERT_LT(++kills, 100) << "a run that goes on gets further";
    if (file_exists(request.output)) {
      EXPECT_TRUE(read_tuned_csv(request.output).ok());
    }
  }
  EXPECT_GT(kills, 3);
  EXPECT_EQ(read_tuned_csv(request.output)->entries.size(), 3U);
  std::map<std::string, std::size_t> samples;
  for (const JournalLine& line : lines()) {
    if (line.stage == "screen") samples[line.problem + line.candidate] += line.samples.size();
  }
  EXPECT_EQ(samples.size(), 12U);
  for (const auto& [candidate, count] : samples)
    EXPECT_EQ(count, static_cast<std::size_t>(request.policy.screening_samples)) << candidate;
}

TEST_F(JournalTest, TwoProcessesShareAJournal) {
  open();
  // Neither screens before both have begun: one that begins after the other's end goes on with its run.
  std::array<int, 2> begun{};
  std::array<int, 2> start{};
  ASSERT_EQ(pipe(begun.data()), 0);
  ASSERT_EQ(pipe(start.data()), 0);
  std::vector<pid_t> children;
  for (int child = 0; child < 2; ++child) {
    children.push_back(fork());
    if (children.back() != 0) continue;
    auto journal = Journal::open(path_);
    bool ok = journal.ok();
    if (ok) {
      const auto run = journal->begin_run({"r", "", "policy", "env", device_text}, true);
      close(start[1]);
      char byte = 0;
      ok = run.ok() && write(begun[1], &byte, 1) == 1 && read(start[0], &byte, 1) == 0;
      JournaledEvaluator evaluator(evaluator_, *journal, device_, {run->id, "policy", device_text, false});
      for (std::int64_t m = 1; m <= 50; ++m)
        ok = ok && evaluator.screen(problem_of(m), std::vector{tiled("128"), tiled("256")}, 2, {}).ok();
    }
    _exit(ok ? 0 : 1);
  }
  close(begun[1]);
  char byte = 0;
  for (int child = 0; child < 2; ++child) EXPECT_EQ(read(begun[0], &byte, 1), 1);
  for (const int end : {begun[0], start[0], start[1]}) close(end);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  EXPECT_EQ(lines().size(), 200U) << "no outcome of either is lost";
}

TEST_F(JournalTest, ADamagedFileIsMovedAsideAndBegunAnew) {
  {
    Journal journal = open();
    auto evaluator = around(evaluator_, journal, begin(journal, true).id);
    for (std::int64_t m = 1; m <= 100; ++m) screen(evaluator, problem_of(m), {tiled("128")}, 3);
  }
  const auto whole = *read_file(path_);
  ASSERT_GT(whole.size(), 20000U);
  std::string flipped = whole;
  for (std::size_t i = 8192; i < 16384; ++i) flipped[i] = static_cast<char>(flipped[i] ^ 0x5a);
  for (const std::string& content : {std::string("no database at all, but long enough to be one......"),
                                     whole.substr(0, whole.size() / 2), flipped}) {
    for (const char* ending : {"-wal", "-shm", ".damaged"}) std::filesystem::remove(path_ + ending);
    ASSERT_TRUE(write_file_atomically(path_, content).ok());
    Journal journal = open();
    EXPECT_FALSE(begin(journal, true).goes_on);
    EXPECT_EQ(*read_file(path_ + ".damaged"), content);
  }
}

TEST_F(JournalTest, ErrorsComeBeforeAnythingSlow) {
  open();
  {
    auto database = SqlDatabase::open(path_);
    ASSERT_TRUE(database->execute("PRAGMA user_version=4").ok());
  }
  EXPECT_THAT(Journal::open(path_).message(), HasSubstr("journal version 4"));
  EXPECT_TRUE(file_exists(path_)) << "a newer journal is left alone";
  const std::string other = folder_ + "/other.journal";
  {
    auto database = SqlDatabase::open(other);
    ASSERT_TRUE(database->execute("CREATE TABLE mine (a)").ok());
  }
  EXPECT_THAT(Journal::open(other).message(), HasSubstr("another program's"));
  const auto nowhere = Journal::open(folder_ + "/no/such/folder/x.journal");
  EXPECT_EQ(nowhere.code(), StatusCode::io_error);
  EXPECT_THAT(nowhere.message(), HasSubstr("the journal of measurements: "));
  EXPECT_THAT(nowhere.message(), HasSubstr("no/such/folder"));
}

// Version 1: other names of two columns, and none for errors.
TEST_F(JournalTest, AJournalOfTheFirstVersionIsReadOn) {
  leave_screened_and_change(
      "ALTER TABLE problems RENAME COLUMN reference TO canary;"
      "ALTER TABLE problems RENAME COLUMN reference_us TO canary_us;"
      "ALTER TABLE outcomes DROP COLUMN errors;"
      "PRAGMA user_version=1");
  EXPECT_EQ(lines().size(), 1U);
  Journal journal = open();
  const RunStart run = begin(journal, true);
  EXPECT_TRUE(run.goes_on);
  const auto past = journal.undecided(run.id, problem_of(8));
  ASSERT_TRUE(past.ok()) << past.message();
  ASSERT_EQ(past->size(), 1U);
  EXPECT_TRUE(std::isnan(past->front().outcome.error.rms));
}

// Version 2: no errors.
TEST_F(JournalTest, AJournalOfTheSecondVersionIsReadOn) {
  leave_screened_and_change("ALTER TABLE outcomes DROP COLUMN errors; PRAGMA user_version=2");
  Journal journal = open();
  const auto past = journal.undecided(begin(journal, true).id, problem_of(8));
  ASSERT_TRUE(past.ok()) << past.message();
  EXPECT_EQ(past->size(), 1U);
}

// Both of the run that goes on and of those that only read them.
TEST_F(JournalTest, ErrorsOfScreenedCandidatesOutliveTheRun) {
  {
    Journal journal = open();
    auto evaluator = around(evaluator_, journal, begin(journal, true).id);
    evaluator_.outcome = [](const Problem&, const Candidate&) {
      Outcome outcome;
      outcome.error = {0.25, 0.5, std::nan("")};
      outcome.bits.id = "f32-0123456789ab";
      return outcome;
    };
    screen(evaluator, problem_of(8), {tiled("128")}, 2);
  }
  Journal journal = open();
  const RunStart run = begin(journal, true);
  const auto past = journal.undecided(run.id, problem_of(8));
  ASSERT_TRUE(past.ok()) << past.message();
  ASSERT_EQ(past->size(), 1U);
  EXPECT_EQ(past->front().outcome.error.rms, 0.25);
  FakeEvaluator fresh;
  set_up(fresh);
  auto evaluator = around(fresh, journal, run.id);
  const Outcome resumed = screen(evaluator, problem_of(8), {tiled("128")}, 2)[0];
  EXPECT_TRUE(fresh.screened.empty());
  EXPECT_EQ(resumed.error.rms, 0.25);
  EXPECT_EQ(resumed.error.max, 0.5);
  EXPECT_EQ(resumed.bits.id, "f32-0123456789ab");
  EXPECT_TRUE(std::isnan(resumed.error.one_sign));
}

TEST_F(JournalTest, PruneKeepsTheNewestAndThoseThatRun) {
  Journal journal = open();
  for (int i = 0; i < 4; ++i) {
    const RunStart run = begin(journal, false);
    auto evaluator = around(evaluator_, journal, run.id);
    screen(evaluator, problem_of(8), {tiled("128")}, 1);
    if (i != 0) {
      ASSERT_TRUE(journal.end_run(run.id, i == 3).ok());
    }
  }
  auto database = open_existing_journal(path_);
  ASSERT_TRUE(database.ok());
  EXPECT_EQ(*prune_older(*database, 1), 0);
  EXPECT_EQ(*prune_to(*database, 1), 2) << "the first is of this process, which lives";
  const auto runs = list_runs(*database);
  ASSERT_EQ(runs->size(), 2U);
  EXPECT_TRUE((*runs)[0].running);
  EXPECT_NE((*runs)[1].finished, "");
  EXPECT_EQ((*runs)[1].candidates, 1);
  EXPECT_EQ(lines().size(), 2U) << "outcomes go with their run";
}

TEST(LastingFailure, MemoryThatWasShortIsNotOne) {
  const Outcome short_memory = failed_launch(Status::out_of_memory("cannot allocate {} bytes", 8));
  EXPECT_EQ(short_memory.kind, OutcomeKind::refused);
  EXPECT_EQ(short_memory.reason, "cannot allocate 8 bytes");
  EXPECT_FALSE(is_lasting_failure(short_memory.kind));
  EXPECT_TRUE(is_lasting_failure(failed_launch(Status::internal("the device was lost")).kind));
}

}  // namespace
}  // namespace gemmtune
