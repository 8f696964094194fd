// Online tuning through the C interface, on the machine's own CPU, by a worker of the gemmtune program and in
// the process itself, and by several processes. These are this program again, with a filter and a folder.
#include <gemmtune/tuning.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "support/processes.h"
#include "support/subprocess.h"

namespace gemmtune {
namespace {

using test::children_of;
using test::Subprocess;
using test::SubprocessOptions;
using test::TemporaryFolder;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr auto patience = std::chrono::seconds(120);
constexpr const char* folder_variable = "GEMMTUNE_TEST_ONLINE_FOLDER";
constexpr std::int64_t n = 96;
constexpr std::int64_t k = 160;

struct Lines {
  std::mutex mutex;
  std::vector<std::string> all;
  static void add(void* lines, int, const char* line) {
    auto* const self = static_cast<Lines*>(lines);
    const std::lock_guard lock(self->mutex);
    self->all.emplace_back(line);
  }
  int count(const std::string& part) {
    const std::lock_guard lock(mutex);
    return static_cast<int>(std::count_if(all.begin(), all.end(), [&](const std::string& line) {
      return line.find(part) != std::string::npos;
    }));
  }
};

template <typename Condition>
bool comes_true(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

/// The worker of this process; 0 if none comes.
pid_t worker_of(pid_t parent) {
  std::vector<pid_t> children;
  const bool came = comes_true([&] {
    children = children_of(parent);
    return !children.empty();
  });
  return came ? children.front() : 0;
}

bool goes_first_without_memory(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/oom_score_adj");
  int adjustment = 0;
  return static_cast<bool>(file >> adjustment) && adjustment == 1000;
}

bool ends(pid_t process) {
  return comes_true([&] { return test::has_ended(process); });
}

/// A context on two cores' threads with a config folder of its own.
class Service {
 public:
  /// With locks of its own: other tests of the machine time kernels too.
  explicit Service(const std::string& folder) {
    ::setenv("XDG_RUNTIME_DIR", folder.c_str(), 1);
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.config_folder = folder.c_str();
    options.backend = "cpu";
    options.threads = 2;
    options.log = &Lines::add;
    options.log_context = &lines;
    EXPECT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
  }
  ~Service() { gemmtune_context_destroy(context); }

  /// In this process.
  void enable(std::int64_t budget_milliseconds = 300) const {
    gemmtune_online_options online{};
    online.size = sizeof online;
    online.budget_milliseconds = budget_milliseconds;
    online.share = -1;
    ASSERT_EQ(gemmtune_enable_online_tuning(context, &online), GEMMTUNE_OK);
  }
  void enable_worker(std::int64_t budget_milliseconds = 300, double share = 0.5,
                     const char* program = GEMMTUNE_PROGRAM) const {
    gemmtune_online_options online{};
    online.size = sizeof online;
    online.budget_milliseconds = budget_milliseconds;
    online.share = share;
    online.worker_program = program;
    ASSERT_EQ(gemmtune_enable_online_tuning(context, &online), GEMMTUNE_OK);
  }
  static gemmtune_problem problem(std::int64_t m) {
    gemmtune_problem asked{};
    asked.size = sizeof asked;
    asked.x_type = GEMMTUNE_F32;
    asked.m = m;
    asked.n = n;
    asked.k = k;
    return asked;
  }
  std::shared_ptr<gemmtune_plan> plan(std::int64_t m) const {
    const gemmtune_problem asked = problem(m);
    gemmtune_plan* made = nullptr;
    EXPECT_EQ(gemmtune_plan_create(context, &asked, &made), GEMMTUNE_OK) << gemmtune_last_error();
    return {made, gemmtune_plan_release};
  }
  static gemmtune_plan_info info(const std::shared_ptr<gemmtune_plan>& plan) {
    gemmtune_plan_info known{};
    known.size = sizeof known;
    EXPECT_EQ(gemmtune_plan_get_info(plan.get(), &known), GEMMTUNE_OK);
    return known;
  }
  /// The plan once a row answers, or the last one there was.
  std::shared_ptr<gemmtune_plan> plan_with_row(std::int64_t m) const {
    const auto end = std::chrono::steady_clock::now() + patience;
    auto made = plan(m);
    while (info(made).match == GEMMTUNE_MATCH_UNTUNED && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
      made = plan(m);
    }
    return made;
  }

  gemmtune_context* context = nullptr;
  Lines lines;
};

/// y = x · wᵀ of small integers, which every order of addition gets right.
void expect_right(const std::shared_ptr<gemmtune_plan>& plan, std::int64_t m) {
  const auto floats = [](std::int64_t count) { return std::vector<float>(static_cast<std::size_t>(count)); };
  auto x = floats(m * k + 16);
  auto w = floats(n * k + 16);
  auto y = floats(m * n + 16);
  const auto aligned = [](std::vector<float>& values) {
    const auto address = reinterpret_cast<std::uintptr_t>(values.data());
    return values.data() + (64 - address % 64) % 64 / sizeof(float);
  };
  float* const xs = aligned(x);
  float* const ws = aligned(w);
  for (std::int64_t i = 0; i < m * k; ++i) xs[i] = static_cast<float>(i % 7 - 3);
  for (std::int64_t i = 0; i < n * k; ++i) ws[i] = static_cast<float>(i % 5 - 2);
  gemmtune_operands operands{};
  operands.size = sizeof operands;
  operands.x = xs;
  operands.w = ws;
  operands.y = aligned(y);
  std::vector<float> workspace(Service::info(plan).workspace_bytes / sizeof(float) + 32);
  ASSERT_EQ(gemmtune_plan_run(plan.get(), &operands, aligned(workspace), nullptr), GEMMTUNE_OK)
      << gemmtune_last_error();
  for (std::int64_t row = 0; row < m; ++row) {
    for (std::int64_t column = 0; column < n; ++column) {
      float sum = 0;
      for (std::int64_t i = 0; i < k; ++i) sum += xs[row * k + i] * ws[column * k + i];
      ASSERT_EQ(static_cast<float*>(operands.y)[row * n + column], sum) << row << " " << column;
    }
  }
}

std::vector<std::string> files_of(const std::string& folder) {
  std::vector<std::string> names;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    names.push_back(file.path().filename());
  return names;
}

std::size_t rows_of(const std::string& path) {
  const auto file = read_tuned_csv(path, {.operation = OperationForm(Operation::a16w16), .strict = true});
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? file->entries.size() : 0;
}

TEST(OnlineContext, IsOffByDefaultWithoutThreadsOrFiles) {
  const TemporaryFolder folder;
  const Service service(folder.path());
  (void)service.plan(4);
  const std::size_t threads = test::threads_of_this_process();
  (void)service.plan(5);
  EXPECT_EQ(test::threads_of_this_process(), threads);
  EXPECT_THAT(files_of(folder.path()), IsEmpty());
}

TEST(OnlineContext, TheFallbackAnswersAtOnceAndTheRowWhenItIsThere) {
  const TemporaryFolder folder;
  Service service(folder.path());
  service.enable();
  const auto first = service.plan(4);
  EXPECT_EQ(Service::info(first).match, GEMMTUNE_MATCH_UNTUNED);
  expect_right(first, 4);
  const auto later = service.plan_with_row(4);
  EXPECT_EQ(Service::info(later).match, GEMMTUNE_MATCH_EXACT) << Service::info(later).rule;
  EXPECT_EQ(Service::info(later).file, folder.file("online_tuning.csv"));
  expect_right(later, 4);
  expect_right(first, 4);  // in flight while its entry was replaced
  EXPECT_EQ(rows_of(folder.file("online_tuning.csv")), 1U);
  EXPECT_EQ(service.lines.count("tuned online in"), 1);
  // The row outlives the service.
  Service next(folder.path());
  next.enable();
  EXPECT_EQ(Service::info(next.plan(4)).match, GEMMTUNE_MATCH_EXACT);
}

TEST(OnlineContext, ThreadsOfManyCallersTuneOnceAndNoThreadStays) {
  const TemporaryFolder folder;
  Service service(folder.path());
  (void)service.plan(300);
  const std::size_t before = test::threads_of_this_process();
  service.enable();
  std::vector<std::thread> callers;
  for (int i = 0; i < 8; ++i) callers.emplace_back([&] { (void)service.plan_with_row(6); });
  for (std::thread& caller : callers) caller.join();
  EXPECT_EQ(service.lines.count("tuned online in"), 1);
  EXPECT_EQ(rows_of(folder.file("online_tuning.csv")), 1U);
  const auto end = std::chrono::steady_clock::now() + patience;
  while (test::threads_of_this_process() > before && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_LE(test::threads_of_this_process(), before);
}

TEST(OnlineContext, DestroyingEndsATuningThatRuns) {
  const TemporaryFolder folder;
  {
    Service service(folder.path());
    service.enable(1000000);
    for (std::int64_t m = 1; m < 40; ++m) (void)service.plan(m);
  }
  // What was decided by then is whole.
  if (file_exists(folder.file("online_tuning.csv"))) {
    EXPECT_LT(rows_of(folder.file("online_tuning.csv")), 39U);
  }
}

TEST(OnlineContext, AnUnwritableFolderIsOneLineAndServiceGoesOn) {
  const TemporaryFolder folder;
  const std::string blocked = folder.write("file", "in the way") + "/config";
  Service service(blocked);
  service.enable();
  const auto end = std::chrono::steady_clock::now() + patience;
  std::int64_t m = 1;
  while (service.lines.count("online tuning is off") == 0 && std::chrono::steady_clock::now() < end) {
    m = m % 8 + 1;
    expect_right(service.plan(m), m);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  for (m = 9; m < 12; ++m) expect_right(service.plan(m), m);
  EXPECT_EQ(service.lines.count("online tuning is off"), 1);
}

TEST(OnlineContext, BadOptionsAreRefused) {
  const TemporaryFolder folder;
  const Service service(folder.path());
  gemmtune_online_options online{};
  EXPECT_EQ(gemmtune_enable_online_tuning(service.context, &online), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("size is 0"));
  online.size = sizeof online;
  online.budget_milliseconds = -5;
  EXPECT_EQ(gemmtune_enable_online_tuning(service.context, &online), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("-5"));
  online.budget_milliseconds = 0;
  online.share = 1.5;
  EXPECT_EQ(gemmtune_enable_online_tuning(service.context, &online), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("share is 1.5, expected at most 1"));
  online.share = 0;
  ::setenv("GEMMTUNE_ONLINE_SHARE", "25%", 1);
  EXPECT_EQ(gemmtune_enable_online_tuning(service.context, &online), GEMMTUNE_INVALID_ARGUMENT);
  ::unsetenv("GEMMTUNE_ONLINE_SHARE");
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("GEMMTUNE_ONLINE_SHARE 25%: expected a number from 0 to 1"));
  EXPECT_EQ(gemmtune_enable_online_tuning(nullptr, &online), GEMMTUNE_NULL_POINTER);
}

// ---- by a worker -----------------------------------------------------------------------------------------

TEST(OnlineWorkerProcess, MeasuresBesideTheServiceAndIsGoneWhenAllIsTuned) {
  const TemporaryFolder folder;
  Service service(folder.path());
  service.enable_worker();
  const auto first = service.plan(4);
  EXPECT_EQ(Service::info(first).match, GEMMTUNE_MATCH_UNTUNED);
  const pid_t worker = worker_of(::getpid());
  EXPECT_NE(worker, 0);
  EXPECT_NE(worker, ::getpid());
  const auto later = service.plan_with_row(4);
  EXPECT_EQ(Service::info(later).match, GEMMTUNE_MATCH_EXACT) << Service::info(later).rule;
  expect_right(later, 4);
  EXPECT_TRUE(comes_true([] { return children_of(::getpid()).empty(); }));
  EXPECT_EQ(rows_of(folder.file("online_tuning.csv")), 1U);
  EXPECT_EQ(service.lines.count("measures in this process"), 0);
}

TEST(OnlineWorkerProcess, KilledAgainAndAgainTheServiceAnswersAndTheRowComes) {
  const TemporaryFolder folder;
  Service service(folder.path());
  service.enable_worker(3000);
  const auto first = service.plan(4);
  for (int i = 0; i < 2; ++i) {
    const pid_t worker = worker_of(::getpid());
    ASSERT_NE(worker, 0);
    ASSERT_TRUE(comes_true([&] { return goes_first_without_memory(worker); }));  // it opens its device
    ASSERT_EQ(::kill(worker, SIGKILL), 0);
    expect_right(first, 4);
    ASSERT_TRUE(comes_true([&] { return children_of(::getpid()) != std::vector{worker}; }));
  }
  const auto later = service.plan_with_row(4);
  EXPECT_EQ(Service::info(later).match, GEMMTUNE_MATCH_EXACT) << Service::info(later).rule;
  expect_right(later, 4);
  EXPECT_TRUE(comes_true([] { return children_of(::getpid()).empty(); }));  // no zombie either
}

TEST(OnlineWorkerProcess, DestroyingTheContextEndsOneThatHangs) {
  const TemporaryFolder folder;
  pid_t worker = 0;
  {
    Service service(folder.path());
    service.enable_worker(1000000);
    for (std::int64_t m = 1; m < 10; ++m) (void)service.plan(m);
    worker = worker_of(::getpid());
    ASSERT_NE(worker, 0);
    // It runs the program: a child that is stopped before that holds the thread that started it (vfork(2)).
    ASSERT_TRUE(comes_true([&] { return goes_first_without_memory(worker); }));
    ASSERT_EQ(::kill(worker, SIGSTOP), 0);
  }
  EXPECT_TRUE(children_of(::getpid()).empty());
  EXPECT_TRUE(ends(worker));
}

TEST(OnlineWorkerProcess, GivesWayToTheServicesThreads) {
  constexpr int worker_nice = 5;  // a quarter of busy processors
  if (::getpriority(PRIO_PROCESS, 0) >= worker_nice) GTEST_SKIP() << "this process has as much itself";
  const TemporaryFolder folder;
  Service service(folder.path());
  service.enable_worker(1000000, 0.25);
  (void)service.plan(4);
  const pid_t worker = worker_of(::getpid());
  ASSERT_NE(worker, 0);
  EXPECT_EQ(::getpriority(PRIO_PROCESS, static_cast<id_t>(worker)), worker_nice);
  EXPECT_LT(::getpriority(PRIO_PROCESS, 0), worker_nice);
}

TEST(OnlineWorkerProcess, AForkOfTheServiceDisturbsNeither) {
  const TemporaryFolder folder;
  Service service(folder.path());
  service.enable_worker(3000);
  (void)service.plan(4);
  const pid_t worker = worker_of(::getpid());
  ASSERT_NE(worker, 0);
  const pid_t child = ::fork();
  if (child == 0) {
    gemmtune_context_destroy(service.context);  // the parent's worker is none of its own
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  const auto later = service.plan_with_row(4);
  EXPECT_EQ(Service::info(later).match, GEMMTUNE_MATCH_EXACT) << Service::info(later).rule;
  EXPECT_TRUE(comes_true([] { return children_of(::getpid()).empty(); }));
}

TEST(OnlineWorkerProcess, AHostThatReapsAllChildrenGetsItsRow) {
  const TemporaryFolder folder;
  const auto before = std::signal(SIGCHLD, SIG_IGN);
  {
    Service service(folder.path());
    service.enable_worker();
    const auto later = service.plan_with_row(4);
    EXPECT_EQ(Service::info(later).match, GEMMTUNE_MATCH_EXACT) << Service::info(later).rule;
  }
  std::signal(SIGCHLD, before);
  EXPECT_TRUE(comes_true([] { return children_of(::getpid()).empty(); }));
}

TEST(OnlineWorkerProcess, WithoutOneItIsSaidOnceAndTheRowComesAllTheSame) {
  const TemporaryFolder folder;
  Service service(folder.path());
  service.enable_worker(300, 0.5, "/no/such/gemmtune");
  for (const std::int64_t m : {4, 6}) {
    const auto later = service.plan_with_row(m);
    EXPECT_EQ(Service::info(later).match, GEMMTUNE_MATCH_EXACT) << Service::info(later).rule;
  }
  EXPECT_EQ(service.lines.count("online tuning measures in this process"), 1);
  EXPECT_EQ(service.lines.count("/no/such/gemmtune"), 1);
}

// ---- several processes -----------------------------------------------------------------------------------

/// What the started processes do; no part of a plain run of the tests.
TEST(OnlineChild, DISABLED_AsksForOneProblemUntilARowAnswers) {
  const char* folder = std::getenv(folder_variable);
  ASSERT_NE(folder, nullptr);
  Service service(folder);
  service.enable();
  const auto plan = service.plan_with_row(12);
  ASSERT_EQ(Service::info(plan).match, GEMMTUNE_MATCH_EXACT);
  expect_right(plan, 12);
  std::printf("tuned: %d\n", service.lines.count("tuned online in"));
}

TEST(OnlineChild, DISABLED_AsksForManyProblems) {
  const char* folder = std::getenv(folder_variable);
  ASSERT_NE(folder, nullptr);
  Service service(folder);
  service.enable();
  for (std::int64_t m = 1; m <= 64; ++m) (void)service.plan_with_row(m);
}

TEST(OnlineChild, DISABLED_TunesByAWorkerForEver) {
  const char* folder = std::getenv(folder_variable);
  ASSERT_NE(folder, nullptr);
  Service service(folder);
  service.enable_worker(1000000, 0.05);
  (void)service.plan(12);
  std::this_thread::sleep_for(10 * patience);
}

TEST(OnlineChild, DISABLED_WaitsForItsRow) {
  const char* folder = std::getenv(folder_variable);
  ASSERT_NE(folder, nullptr);
  Service service(folder);
  gemmtune_online_options by_environment{};
  by_environment.size = sizeof by_environment;
  ASSERT_EQ(gemmtune_enable_online_tuning(service.context, &by_environment), GEMMTUNE_OK);
  const auto plan = service.plan(12);  // the very first one
  EXPECT_EQ(Service::info(plan).match, GEMMTUNE_MATCH_EXACT);
  EXPECT_THAT(Service::info(plan).file, ::testing::EndsWith("/hip_online_tuning_res.csv"));
  expect_right(plan, 12);
}

std::unique_ptr<Subprocess> start(const std::string& test, const std::string& folder,
                                  SubprocessOptions options = {}) {
  options.environment[folder_variable] = folder;
  const std::string self = std::filesystem::read_symlink("/proc/self/exe");
  return std::make_unique<Subprocess>(std::vector<std::string>{self, "--gtest_also_run_disabled_tests",
                                                               "--gtest_filter=OnlineChild.DISABLED_" + test},
                                      options);
}

TEST(OnlineProcesses, TuneAProblemOnceAndAllGetItsRow) {
  const TemporaryFolder folder;
  const auto first = start("AsksForOneProblemUntilARowAnswers", folder.path());
  const auto second = start("AsksForOneProblemUntilARowAnswers", folder.path());
  int tuned = 0;
  for (const auto& child : {first.get(), second.get()}) {
    const auto result = child->wait();
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    tuned += result.out.find("tuned: 1") != std::string::npos ? 1 : 0;
  }
  EXPECT_EQ(tuned, 1);
  EXPECT_EQ(rows_of(folder.file("online_tuning.csv")), 1U);
}

TEST(OnlineProcesses, AKillLeavesAReadableFileAndNoClaim) {
  const TemporaryFolder folder;
  const std::string file = folder.file("online_tuning.csv");
  for (int round = 0; round < 2; ++round) {
    const auto child = start("AsksForManyProblems", folder.path());
    const auto end = std::chrono::steady_clock::now() + patience;
    while (!file_exists(file) && child->running() && std::chrono::steady_clock::now() < end) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20 + 45 * round));
    child->send(SIGKILL);
    (void)child->wait();
    EXPECT_GT(rows_of(file), 0U);
  }
  const std::size_t before = rows_of(file);
  Service service(folder.path());
  service.enable();
  for (std::int64_t m = 1; m <= 64; m += 9) {
    const auto plan = service.plan_with_row(m);
    EXPECT_NE(Service::info(plan).match, GEMMTUNE_MATCH_UNTUNED) << m;
    expect_right(plan, m);
  }
  EXPECT_GE(rows_of(file), before);
}

TEST(OnlineProcesses, AWorkerDiesWithItsService) {
  const TemporaryFolder folder;
  const auto child = start("TunesByAWorkerForEver", folder.path());
  const pid_t service = worker_of(::getpid());
  ASSERT_NE(service, 0);
  const pid_t worker = worker_of(service);
  ASSERT_NE(worker, 0);
  child->send(SIGKILL);
  (void)child->wait();
  EXPECT_TRUE(ends(worker));
}

TEST(OnlineProcesses, AitersVariableWaitsAndWritesAitersFile) {
  const TemporaryFolder folder;
  SubprocessOptions options;
  options.environment["HIP_ONLINE_TUNING"] = "1";
  options.environment["GEMMTUNE_ONLINE_BUDGET_MS"] = "20000";  // a caller waits three times as long
  options.working_folder = folder.path();
  const auto result = start("WaitsForItsRow", folder.path(), options)->wait();
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto table = read_hipblaslt_csv(folder.file("hip_online_tuning_res.csv"));
  ASSERT_TRUE(table.ok()) << table.message();
  ASSERT_THAT(table->rows, SizeIs(1));
  EXPECT_EQ(table->rows.front().m, n);
  EXPECT_EQ(table->rows.front().n, 12);
  EXPECT_EQ(table->rows.front().a_type, "f32_r");
}

}  // namespace
}  // namespace gemmtune
