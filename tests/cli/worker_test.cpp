// `gemmtune tune` measures in worker processes: what becomes of them is seen from outside.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace gemmtune::test {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::json;

/// Processes that run `gemmtune worker` as children of a process that runs in `folder`.
std::set<pid_t> workers_in(const std::string& folder) {
  std::set<pid_t> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::error_code gone;
    if (std::filesystem::read_symlink(entry.path() / "cwd", gone) != folder || gone) continue;
    const std::string words = read_text(entry.path() / "cmdline");
    if (words.ends_with(std::string("\0worker\0", 8))) found.insert(static_cast<pid_t>(std::stol(name)));
  }
  return found;
}

class WorkerProgram : public ::testing::Test {
 protected:
  explicit WorkerProgram(const std::string& path = GEMMTUNE_PROGRAM) : program(path) {}
  std::string output() const { return program.file("tuned.csv"); }
  std::string shapes(int count) const {
    std::string text = "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n";
    for (int i = 0; i < count; ++i)
      text += std::to_string(33 + i) + "," + std::to_string(256 + 16 * i) +
              ",512,False,torch.bfloat16,torch.bfloat16,False,False\n";
    return program.folder().write("shapes.csv", text);
  }
  std::vector<std::string> tune(int count, std::vector<std::string> more) const {
    std::vector<std::string> words = {"tune",      "-i",           shapes(count), "-o", output(),
                                      "--libtype", "tiled,skinny", "--iters",     "5"};
    words.insert(words.end(), more.begin(), more.end());
    return words;
  }
  /// Until a worker runs, at most two minutes.
  std::set<pid_t> wait_for_workers() const {
    const std::string folder = std::filesystem::canonical(program.folder().path());
    for (int i = 0; i < 12000; ++i) {
      if (auto found = workers_in(folder); !found.empty()) return found;
      std::this_thread::sleep_for(milliseconds(10));
    }
    return {};
  }

  Program program;
};

/// The same processes, measuring on a simulated clock.
class SimulatedWorkers : public WorkerProgram {
 protected:
  SimulatedWorkers() : WorkerProgram(GEMMTUNE_SIMULATED_PROGRAM) {}
};

TEST_F(SimulatedWorkers, IsNotForPeople) {
  const auto alone = program.run({"worker"});
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("gemmtune tune"));
  EXPECT_THAT(program.run({"--help"}).out, Not(HasSubstr("worker ")));
}

TEST_F(SimulatedWorkers, InProcessMeansNoWorker) {
  Subprocess run(program.words(tune(2, {"--in-process"})), program.options());
  bool seen = false;
  const std::string folder = std::filesystem::canonical(program.folder().path());
  while (run.running()) {
    seen = seen || !workers_in(folder).empty();
    std::this_thread::sleep_for(milliseconds(20));
  }
  EXPECT_EQ(run.wait().exit_code, 0);
  EXPECT_FALSE(seen);
}

// A request is tried three times, so no more than two kills may meet the same one, however slow the machine
// is: the third waits until the first shape has its row.
TEST_F(WorkerProgram, KilledAgainAndAgainTheRunEndsRight) {
  Subprocess run(program.words(tune(3, {"--json"})), program.options());
  const auto rows = [&] {
    const std::string file = std::filesystem::exists(output()) ? read_text(output()) : "";
    return std::max<std::ptrdiff_t>(0, std::count(file.begin(), file.end(), '\n') - 1);
  };
  std::set<pid_t> killed;
  while (run.running() && killed.size() < 3) {
    if (killed.size() == 2 && rows() == 0) {
      std::this_thread::sleep_for(milliseconds(20));
      continue;
    }
    for (const pid_t worker : wait_for_workers()) {
      std::this_thread::sleep_for(milliseconds(100));
      if (kill(worker, SIGKILL) == 0) killed.insert(worker);
    }
  }
  const auto result = run.wait();
  EXPECT_GE(killed.size(), 2U);
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(rows(), 3) << read_text(output());
}

TEST_F(SimulatedWorkers, AWorkerThatIsStoppedIsReplaced) {
  Subprocess run(program.words(tune(2, {"--timeout", "3"})), program.options());
  const auto workers = wait_for_workers();
  ASSERT_EQ(workers.size(), 1U);
  std::this_thread::sleep_for(milliseconds(300));
  kill(*workers.begin(), SIGSTOP);
  const auto result = run.wait();
  const std::string file = read_text(output());
  EXPECT_EQ(std::count(file.begin(), file.end(), '\n'), 3) << file;
  // The stopped worker may have been at the default kernel, which then has no time.
  const bool untimed = file.find("default_untimed") != std::string::npos;
  EXPECT_EQ(result.exit_code, untimed ? 1 : 0) << result.err << result.out;
}

TEST_F(WorkerProgram, DiesWithTheTuner) {
  Subprocess run(program.words(tune(3, {})), program.options());
  ASSERT_FALSE(wait_for_workers().empty());
  run.send(SIGKILL);
  run.wait();
  const std::string folder = std::filesystem::canonical(program.folder().path());
  for (int i = 0; i < 12000 && !workers_in(folder).empty(); ++i)
    std::this_thread::sleep_for(milliseconds(10));
  EXPECT_TRUE(workers_in(folder).empty());
}

TEST_F(WorkerProgram, CtrlCEndsTheRunAndItsWorker) {
  Subprocess run(program.words(tune(8, {})), program.options());
  ASSERT_FALSE(wait_for_workers().empty());
  std::this_thread::sleep_for(milliseconds(500));
  run.send(SIGINT);
  EXPECT_EQ(run.wait().exit_code, 130);
}

TEST_F(SimulatedWorkers, SeveralDevicesShareOutTheShapes) {
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "one core only";
  Subprocess run(program.words(tune(4, {"--device", "cpu:0,cpu:1", "--shape_grouped", "--json"})),
                 program.options());
  std::size_t most = 0;
  const std::string folder = std::filesystem::canonical(program.folder().path());
  while (run.running()) {
    most = std::max(most, workers_in(folder).size());
    std::this_thread::sleep_for(milliseconds(20));
  }
  const auto result = run.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_EQ(most, 2U);
  const std::string file = read_text(output());
  EXPECT_EQ(std::count(file.begin(), file.end(), '\n'), 5) << file;
}

}  // namespace
}  // namespace gemmtune::test
