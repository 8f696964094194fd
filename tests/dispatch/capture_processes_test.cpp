// Capture by many processes: this program starts itself as capturers and publishers of one config folder.
// GEMMTUNE_SOAK_SECONDS says how long (default 3).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "capi/c_support.h"
#include "formats/aiter/schema.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/csv/csv.h"
#include "support/captures.h"
#include "support/dispatch_fake_device.h"
#include "support/subprocess.h"

namespace gemmtune {
namespace {

using test::Subprocess;
using ::testing::IsEmpty;
using Clock = std::chrono::steady_clock;
using Calls = std::map<std::string, std::uint64_t>;  // by the problem's text

constexpr std::array<OperationForm, 4> operations{Operation::a16w16, Operation::a8w8, Operation::batched_bf16,
                                                  Operation::fused_moe};

double soak_seconds() {
  const char* text = std::getenv("GEMMTUNE_SOAK_SECONDS");
  return text == nullptr ? 3 : parse_number(text).value_or(3);
}

// ---- what the started processes do
// --------------------------------------------------------------------------

std::unique_ptr<Context> open_capturing(const std::string& folder) {
  ContextOptions options;
  options.capture = true;
  options.config_folder = folder;
  return std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>());
}

Problem problem_of(OperationForm operation, std::int64_t m, std::int64_t n) {
  Problem problem = default_problem(operation);
  problem.m = m;
  problem.n = n;
  problem.k = 64;
  if (operation == Operation::batched_bf16) problem.batch = 3;
  if (operation == Operation::fused_moe) {
    problem.moe.experts = 8;
    problem.moe.topk = 2;
  }
  return problem;
}

/// Of each operation a few that all processes ask for and a few that only this one does.
std::vector<Problem> problems_of_process(int id) {
  std::vector<Problem> problems;
  for (const OperationForm operation : operations) {
    for (std::int64_t m = 1; m <= 6; ++m) {
      problems.push_back(problem_of(operation, m, 512));
      problems.push_back(problem_of(operation, m, 1024 + 16 * id));
    }
  }
  return problems;
}

void write_calls(const std::string& path, const Calls& calls) {
  std::string text;
  for (const auto& [name, count] : calls) text += std::to_string(count) + "\t" + name + "\n";
  if (!write_file_atomically(path, text).ok()) std::abort();
}

/// Plans at random; `log` always holds what is certainly in the files.
int capture(const std::string& folder, int id, double seconds, const std::string& log) {
  std::mt19937 random(static_cast<unsigned>(id));
  const auto problems = problems_of_process(id);
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  auto context = open_capturing(folder);
  Calls calls;
  while (Clock::now() < end) {
    for (int i = 0; i < 200; ++i) {
      const Problem& problem = problems[random() % problems.size()];
      (void)context->plan(problem);
      ++calls[print(problem_of_row(problem))];
    }
    if (random() % 4 == 0 && context->flush_capture().ok()) write_calls(log, calls);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  context.reset();
  write_calls(log, calls);
  return 0;
}

/// Publishes row after row of its own, and now and then an older one again.
int publish_rows(const std::string& folder, int id, double seconds, const std::string& log) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  Calls published;
  for (std::int64_t m = 1; Clock::now() < end; ++m) {
    TunedEntry entry;
    entry.gfx = "x86-fake";
    entry.cu_num = 2;
    entry.problem = problem_of(Operation::a16w16, m % 5 == 0 ? m / 2 : m, 4096 + 16 * id);
    entry.libtype = "alpha";
    entry.kernel_name = "alpha_r1_a1";
    entry.us = 7;
    if (!publish(folder + "/" + tuned_file_name(Operation::a16w16), {entry}, {}).ok()) return 1;
    ++published[print(entry.problem)];
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  write_calls(log, published);
  return 0;
}

/// Two calls of the default context, which nobody destroys.
int use_default_context() {
  gemmtune_context* context = nullptr;
  if (gemmtune_default_context(&context) != GEMMTUNE_OK) return 1;
  gemmtune_problem problem{};
  problem.size = sizeof problem;
  problem.x_type = GEMMTUNE_BF16;
  problem.m = problem.n = problem.k = 32;
  for (int i = 0; i < 2; ++i) {
    gemmtune_plan* plan = nullptr;
    if (gemmtune_plan_create(context, &problem, &plan) != GEMMTUNE_OK) return 1;
    gemmtune_plan_release(plan);
  }
  return 0;
}

/// Children by fork() use and destroy the context that the parent is writing from. Answers how many ended
/// well.
int fork_while_writing(const std::string& folder) {
  auto context = open_capturing(folder);
  std::atomic<bool> enough{false};
  std::thread writer([&] {
    while (!enough) {
      (void)context->plan(problem_of(Operation::a16w16, 1, 512));
      (void)context->flush_capture();
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  int good = 0;
  for (int i = 0; i < 20 && good == i; ++i) {
    const pid_t child = fork();
    if (child == 0) {
      ::alarm(20);  // where it hangs
      (void)context->flush_capture();
      context.reset();
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) ++good;
  }
  enough = true;
  writer.join();
  const CounterValues counters = context->counters();
  context.reset();
  fmt::print("{} {}", good, counters.by_match[static_cast<std::size_t>(Match::untuned)]);
  return 0;
}

constexpr std::int64_t sizes_of_end = 3;

/// Three sizes, the last one twice.
void call_three(Context& context) {
  for (std::int64_t m = 1; m <= sizes_of_end; ++m) (void)context.plan(problem_of(Operation::a16w16, m, 512));
  (void)context.plan(problem_of(Operation::a16w16, sizes_of_end, 512));
}

/// A context that nobody destroys, and a process that ends at once after its calls.
int end_by(const std::string& folder, const std::string& end) {
  Context* const context = open_capturing(folder).release();
  if (end == "thread") {
    std::thread([&] { call_three(*context); }).join();
    _exit(0);
  }
  if (end == "other thread") {
    std::atomic<bool> called{false};
    std::thread([&] {
      call_three(*context);
      called = true;
      called.notify_one();
      for (;;) ::pause();
    }).detach();
    called.wait(false);
    return 0;
  }
  call_three(*context);
  if (end == "exit") std::exit(0);
  if (end == "throw") throw std::runtime_error("nobody catches this");
  if (end == "_exit") _exit(0);
  if (end == "SIGTERM") std::raise(SIGTERM);
  if (end == "SIGKILL") std::raise(SIGKILL);
  return 0;
}

/// A child by fork() that goes on with its parent's context: it asks again for what the parent asked for, and for a size of
/// its own.
int fork_and_call(const std::string& folder, const std::string& end) {
  Context* const context = open_capturing(folder).release();
  call_three(*context);
  const pid_t child = fork();
  if (child == 0) {
    call_three(*context);
    (void)context->plan(problem_of(Operation::a16w16, sizes_of_end + 1, 512));
    if (end == "_exit") _exit(0);
    return 0;
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// ---- the tests
// ---------------------------------------------------------------------------------------------

class CaptureProcesses : public ::testing::Test {
 protected:
  std::unique_ptr<Subprocess> start(const std::string& role, int id, double seconds) {
    const std::string log = logs_.file(role + std::to_string(logs_made_++));
    return std::make_unique<Subprocess>(
        std::vector<std::string>{program(), role, folder_.path(), std::to_string(id), std::to_string(seconds),
                                 log},
        test::SubprocessOptions());
  }
  static std::string program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

  /// What the processes of a role logged, added up.
  Calls logged(const std::string& role) const {
    Calls sum;
    for (const auto& file : std::filesystem::directory_iterator(logs_.path())) {
      if (!file.path().filename().string().starts_with(role)) continue;
      if (file.path().extension() == ".tmp") continue;  // of a process that was killed while it wrote
      std::istringstream text(test::read_text(file.path().string()));
      std::string line;
      while (std::getline(text, line)) {
        const auto tab = line.find('\t');
        sum[line.substr(tab + 1)] += std::stoull(line.substr(0, tab));
      }
    }
    return sum;
  }
  std::string untuned(OperationForm operation) const { return folder_.file(untuned_file_name(operation)); }

  /// Calls of all operations' files; each file is whole and has every problem once.
  Calls captured() const {
    Calls calls;
    for (const OperationForm operation : operations) {
      const auto read = read_capture(untuned(operation), operation);
      EXPECT_TRUE(read.ok()) << read.message();
      if (!read.ok()) continue;
      EXPECT_THAT(read->diagnostics, IsEmpty());
      for (const CapturedRow& one : read->problems) {
        EXPECT_GT(one.line, 0U) << print(one.problem);
        if (one.calls > 0) calls[print(one.problem)] = one.calls;
      }
      expect_whole(untuned(operation), read->problems.size());
    }
    for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
      EXPECT_NE(file.path().extension(), ".damaged") << file.path();
    }
    return calls;
  }
  static void expect_whole(const std::string& path, std::size_t problems) {
    const std::string text = test::read_text(path);
    EXPECT_TRUE(text.ends_with('\n')) << path;
    const auto document = parse_csv(path, text);
    CsvCells header;
    CsvCells cells;
    const std::size_t first = header_line(*document);
    ASSERT_LT(first, document->lines.size());
    header.split(document->lines[first].text);
    for (std::size_t index = first + 1; index < document->lines.size(); ++index) {
      EXPECT_TRUE(cells.split(document->lines[index].text));
      EXPECT_EQ(cells.size(), header.size()) << path << ':' << index + 1;
    }
    EXPECT_EQ(document->lines.size() - first - 1, problems) << path;
  }

  test::TemporaryFolder folder_;
  test::TemporaryFolder logs_;
  int logs_made_ = 0;
};

TEST_F(CaptureProcesses, EightCapturingAndTwoPublishingLoseNothing) {
  const std::string old =
      "# written by hand\nM,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
      "3,512,64,False,torch.bfloat16,torch.bfloat16,False,False\n"
      "9,9,9,False,torch.bfloat16,torch.bfloat16,False,False";
  folder_.write(untuned_file_name(Operation::a16w16), old);
  std::vector<std::unique_ptr<Subprocess>> processes;
  for (int id = 0; id < 8; ++id) processes.push_back(start("capture", id, soak_seconds()));
  for (int id = 0; id < 2; ++id) processes.push_back(start("publish", id, soak_seconds()));
  for (const auto& process : processes) {
    const auto result = process->wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
  }
  const Calls asked = logged("capture");
  const std::size_t sizes = operations.size() * 6 - 2;  // six M; of the mixture the token tiers 1, 2, 4, 8
  EXPECT_EQ(asked.size(), sizes * 9);                   // shared and of eight processes
  EXPECT_EQ(captured(), asked);
  EXPECT_TRUE(test::read_text(untuned(Operation::a16w16)).starts_with(old + "\n"));

  const auto tuned = read_tuned_csv(folder_.file(tuned_file_name(Operation::a16w16)));
  ASSERT_TRUE(tuned.ok()) << tuned.message();
  Calls rows;
  for (const TunedEntry& entry : tuned->entries) ++rows[print(entry.problem)];
  const Calls published = logged("publish");
  EXPECT_GT(published.size(), 2U);
  EXPECT_EQ(rows.size(), published.size());
  for (const auto& [name, times] : published) EXPECT_EQ(rows[name], 1U) << name;
}

TEST_F(CaptureProcesses, KilledOnesLoseNothingThatWasFlushedAndLeaveNoHalfLine) {
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Subprocess>> processes;
  int started = 0;
  for (; started < 4; ++started) processes.push_back(start("capture", started, 3600));
  const auto end = Clock::now() + std::chrono::duration<double>(soak_seconds());
  while (Clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50 + random() % 400));
    auto& victim = processes[random() % processes.size()];
    victim->send(SIGKILL);
    EXPECT_EQ(victim->wait().signal, SIGKILL);
    victim = start("capture", started++ % 8, 3600);
  }
  processes.clear();  // kills the rest
  const Calls flushed = logged("capture");
  EXPECT_FALSE(flushed.empty());
  const Calls kept = captured();
  for (const auto& [name, calls] : flushed) {
    const auto found = kept.find(name);
    ASSERT_NE(found, kept.end()) << name;
    EXPECT_GE(found->second, calls) << name;
  }
}

TEST_F(CaptureProcesses, TheDefaultContextWritesWhenTheProcessExits) {
  test::SubprocessOptions options;
  options.environment = {{"GEMMTUNE_CAPTURE", "1"}, {"GEMMTUNE_CONFIG_DIR", folder_.path()}};
  const auto result = test::run_program({program(), "default"}, options);
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const auto read = read_capture(untuned(Operation::a16w16), Operation::a16w16);
  ASSERT_TRUE(read.ok()) << read.message();
  ASSERT_EQ(read->problems.size(), 1U);
  EXPECT_EQ(read->problems[0].calls, 2U);
}

TEST_F(CaptureProcesses, AForkedChildNeitherHangsNorCountsTwice) {
  const auto result = test::run_program({program(), "fork", folder_.path()});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  int good = 0;
  std::uint64_t planned = 0;
  std::istringstream(result.out) >> good >> planned;
  EXPECT_EQ(good, 20);
  const auto read = read_capture(untuned(Operation::a16w16), Operation::a16w16);
  ASSERT_TRUE(read.ok()) << read.message();
  ASSERT_EQ(read->problems.size(), 1U);
  EXPECT_EQ(read->problems[0].calls, planned);
}

/// Calls by size, as the CSV and its counts have them; sizes without a line are none.
std::map<std::int64_t, std::uint64_t> calls_by_size(const std::string& path) {
  std::map<std::int64_t, std::uint64_t> calls;
  const auto read = read_capture(path, Operation::a16w16);
  EXPECT_TRUE(read.ok()) << read.message();
  if (!read.ok()) return calls;
  for (const CapturedRow& one : read->problems)
    if (one.line > 0) calls[one.problem.m] = one.calls;
  return calls;
}

using SizeCalls = std::map<std::int64_t, std::uint64_t>;
const SizeCalls three_sizes{{1, 1}, {2, 1}, {3, 2}};
/// Of ends that run nothing. A process that is stopped for long in between has left its lines to the thread that writes.
constexpr int max_tries = 5;

TEST_F(CaptureProcesses, AContextThatNobodyDestroysIsWrittenWhenTheProcessEnds) {
  for (const std::string end : {"return", "exit", "other thread"}) {
    const test::TemporaryFolder folder;
    const auto result = test::run_program({program(), "end", folder.path(), end});
    ASSERT_EQ(result.exit_code, 0) << end << ": " << result.err;
    EXPECT_EQ(calls_by_size(folder.file(untuned_file_name(Operation::a16w16))), three_sizes) << end;
  }
}

TEST_F(CaptureProcesses, AnEndWithoutExitHandlersKeepsEverySize) {
  for (const std::string end : {"throw", "_exit", "SIGTERM", "SIGKILL"}) {
    std::size_t sizes = 0;
    for (int tries = 0; tries < max_tries && sizes != three_sizes.size(); ++tries) {
      const test::TemporaryFolder folder;
      (void)test::run_program({program(), "end", folder.path(), end});
      sizes = calls_by_size(folder.file(untuned_file_name(Operation::a16w16))).size();
    }
    EXPECT_EQ(sizes, three_sizes.size()) << end;
  }
}

TEST_F(CaptureProcesses, AThreadThatEndsLeavesItsCounts) {
  SizeCalls calls;
  for (int tries = 0; tries < max_tries && calls != three_sizes; ++tries) {
    const test::TemporaryFolder folder;
    (void)test::run_program({program(), "end", folder.path(), "thread"});
    calls = calls_by_size(folder.file(untuned_file_name(Operation::a16w16)));
  }
  EXPECT_EQ(calls, three_sizes);
}

TEST_F(CaptureProcesses, AForkedChildGoesOnRecordingInItsParentsContext) {
  const SizeCalls both{{1, 2}, {2, 2}, {3, 4}, {4, 1}};
  for (const std::string end : {"return", "_exit"}) {
    const test::TemporaryFolder folder;
    const auto result = test::run_program({program(), "fork_and_call", folder.path(), end});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const auto calls = calls_by_size(folder.file(untuned_file_name(Operation::a16w16)));
    if (end == "return") {
      EXPECT_EQ(calls, both);
    }
    EXPECT_EQ(calls.size(), both.size()) << end;
  }
}

int run_role(const std::vector<std::string>& words) {
  const std::string& role = words[0];
  if (role == "default") return use_default_context();
  if (role == "fork") return fork_while_writing(words[1]);
  if (role == "end") return end_by(words[1], words[2]);
  if (role == "fork_and_call") return fork_and_call(words[1], words[2]);
  const int id = std::stoi(words[2]);
  const double seconds = std::stod(words[3]);
  return role == "capture" ? capture(words[1], id, seconds, words[4])
                           : publish_rows(words[1], id, seconds, words[4]);
}

}  // namespace
}  // namespace gemmtune

int main(int count, char** words) {
  if (count > 1 && words[1][0] != '-') return gemmtune::run_role({words + 1, words + count});
  ::testing::InitGoogleTest(&count, words);
  return RUN_ALL_TESTS();
}
