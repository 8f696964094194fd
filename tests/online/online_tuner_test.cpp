// Online tuning on a simulated device: what is tried, what is kept, who tunes, when it ends.
#include "online/online_tuner.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "evaluate/journal/journal.h"
#include "evaluate/journal/journal_texts.h"
#include "formats/aiter/tuned_csv.h"
#include "support/online_tuning.h"

namespace gemmtune {
namespace {

using gemmtune::testing::FakeDevice;
using gemmtune::testing::FakeFamilyOptions;
using gemmtune::testing::OnlineTuning;
using gemmtune::testing::patience;
using gemmtune::testing::right_gemm;
using gemmtune::testing::small;
using gemmtune::testing::zeros;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

TEST_F(OnlineTuning, TheFastestRightKernelIsKept) {
  add("liar", 0, 10, zeros);
  tune();
  EXPECT_THAT(kernels(), ElementsAre("fast_r1"));
  EXPECT_EQ(changes_, 1);
  EXPECT_GT(builds("liar"), 0);  // it was tried, and found out
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("tuned online")));
  EXPECT_THAT(warnings_, IsEmpty());
  const auto file = read_tuned_csv(file_);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->entries.front().cu_num, 1);
  EXPECT_NEAR(file->entries.front().us, 50, 1);
  EXPECT_NEAR(file->entries.front().speedup.value_or(0), 2, 0.1);
}

TEST_F(OnlineTuning, WrongOnlyAtOtherDataIsNotKeptEither) {
  // Right for the first seed of the quick gate, wrong from the second different operands on.
  auto seen = std::make_shared<std::map<std::uint64_t, int>>();
  add("forgetful", 0, 10, [seen](const Problem& problem, const Operands& operands, void* workspace) {
    std::uint64_t first = 0;
    std::memcpy(&first, operands.x, sizeof first);
    seen->try_emplace(first, static_cast<int>(seen->size()));
    if ((*seen)[first] == 0) return right_gemm(problem, operands, workspace);
    zeros(problem, operands, workspace);
  });
  tune();
  EXPECT_THAT(kernels(), ElementsAre("fast_r1"));
}

TEST_F(OnlineTuning, OnlyProvenFamiliesAreTried) {
  add("own", 10, 5);
  tune(small(4));
  EXPECT_EQ(builds("own"), 0);
  proven_.emplace_back("own");
  tune(small(64));
  EXPECT_THAT(kernels(), ElementsAre("fast_r1", "own_r1"));
}

TEST_F(OnlineTuning, ThreadsWithOneProblemTuneItOnce) {
  const auto one = tuner();
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { EXPECT_FALSE(one->missed(asked())); });
  for (std::thread& thread : threads) thread.join();
  ASSERT_TRUE(one->wait_until_idle(patience));
  EXPECT_EQ(changes_, 1);
  EXPECT_THAT(lines_, SizeIs(1));
  one->missed(asked());
  ASSERT_TRUE(one->wait_until_idle(patience));
  EXPECT_EQ(opened_, 1);
}

TEST_F(OnlineTuning, TunersOfOneFileTuneAProblemOnceAndAllHearOfIt) {
  std::vector<std::unique_ptr<OnlineTuner>> tuners;
  for (int i = 0; i < 3; ++i) tuners.push_back(tuner());
  for (const auto& one : tuners) one->missed(asked());
  for (const auto& one : tuners) ASSERT_TRUE(one->wait_until_idle(patience));
  EXPECT_THAT(lines_, SizeIs(1));
  EXPECT_EQ(changes_, 3);
  EXPECT_THAT(kernels(), SizeIs(1));
}

TEST_F(OnlineTuning, AClaimedProblemWaitsForItsOwnersEnd) {
  tune(small(64));  // makes the folder
  changes_ = 0;
  const auto other = tuner();
  {
    // The claim's place is the tuner's affair: hold its whole file by hand.
    const int descriptor = ::open((file_ + ".claims").c_str(), O_RDWR | O_CLOEXEC);
    ASSERT_GE(descriptor, 0);
    struct flock range {};
    range.l_type = F_WRLCK;
    range.l_whence = SEEK_SET;
    ASSERT_EQ(::fcntl(descriptor, F_OFD_SETLK, &range), 0);
    other->missed(asked());
    EXPECT_FALSE(other->wait_until_idle(0.3));
    EXPECT_EQ(changes_, 0);
    ::close(descriptor);
  }
  ASSERT_TRUE(other->wait_until_idle(patience));
  EXPECT_EQ(changes_, 1);
  EXPECT_THAT(kernels(), SizeIs(2));
}

TEST_F(OnlineTuning, AFailureIsRememberedBesideTheFile) {
  add("liar", 0, 10, zeros);
  tune();
  const int before = builds("liar");
  std::filesystem::remove(file_);
  tune();
  EXPECT_EQ(builds("liar"), before);
  EXPECT_THAT(kernels(), ElementsAre("fast_r1"));
}

TEST_F(OnlineTuning, AFailureOfOfflineTuningCounts) {
  tuned_files_.push_back(folder_ + "/tuned.csv");
  FakeDevice device;
  for (const FakeFamilyOptions& family : families_) device.add(family);
  const std::string text = journal_device_text(device.info());
  const OnlineSettings settings;
  const std::string policy = journal_policy_text(online_policy(device), settings.max_err_ratio);
  EXPECT_EQ(policy, journal_policy_text(default_policy(device.info()), 0.05));  // that of the command line
  {
    auto journal = Journal::open(journal_path(tuned_files_.front()));
    ASSERT_TRUE(journal.ok()) << journal.message();
    const auto run = journal->begin_run({"r", "c", policy, "e", text}, false);
    const auto id = journal->add_problem(run->id, small(), "");
    Outcome crash;
    crash.kind = OutcomeKind::crashed;
    const std::string source = device.family_identity("fast");
    ASSERT_TRUE(journal
                    ->add(*id, {JournalStage::screen, 4, "fast_r1", source,
                                outcome_key(print(small()), text, "fast_r1", source, policy), crash})
                    .ok());
  }
  tune();
  EXPECT_EQ(builds("fast"), 0);
  EXPECT_THAT(kernels(), ElementsAre("vendor_r1"));
}

TEST_F(OnlineTuning, AKernelThatEndedItsProcessIsNotTriedAgain) {
  bool dies = true;
  FakeFamilyOptions deadly;
  deadly.name = "deadly";
  deadly.tie_rank = 0;
  deadly.cost = [](const Problem&, Random&, double) { return 1.0; };
  deadly.on_build = [&dies] {
    if (dies) ::_exit(7);
  };
  add(std::move(deadly));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto one = tuner();
    one->missed(asked());
    (void)one->wait_until_idle(patience);
    ::_exit(1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(WEXITSTATUS(status), 7);
  EXPECT_THAT(kernels(), IsEmpty());
  dies = false;
  tune();  // the claim of the dead is free
  EXPECT_EQ(builds("deadly"), 0);
  EXPECT_THAT(kernels(), ElementsAre("fast_r1"));
}

TEST_F(OnlineTuning, TheBudgetBoundsTheSearch) {
  for (int i = 0; i < 60; ++i) add("slow" + std::to_string(i), 0, 20000);
  options_.settings.clock = [this] {
    const FakeDevice* device = device_.load();
    return device == nullptr ? 0 : device->now_microseconds * 1e-6;
  };
  options_.settings.budget_seconds = 1;
  const auto one = tuner();
  one->missed(asked());
  ASSERT_TRUE(one->wait_until_idle(patience));
  ASSERT_THAT(lines_, SizeIs(1));
  // "…: tuned online in 1.23 s: …", by the simulated clock.
  const std::size_t at = lines_.front().find(" in ");
  ASSERT_NE(at, std::string::npos);
  const double spent = std::stod(lines_.front().substr(at + 4));
  EXPECT_GT(spent, 0.2);
  EXPECT_LT(spent, 2.5);
  EXPECT_LT(builds("slow59"), 1);  // all of them would have taken 60 x 3 samples and more
  EXPECT_THAT(kernels(), SizeIs(1));
}

TEST_F(OnlineTuning, WhatCannotBeCheckedWithinTheBudgetIsDeclined) {
  Problem large = small(512);
  large.n = large.k = 2048;
  options_.settings.budget_seconds = 0.01;
  tune(large);
  EXPECT_THAT(lines_, ElementsAre(AllOf(HasSubstr("not tuned online"), HasSubstr("budget"))));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_THAT(builds_, IsEmpty());
  EXPECT_FALSE(file_exists(file_));
}

TEST_F(OnlineTuning, WhatTheFileCannotHoldIsDeclined) {
  Problem columns = small();
  columns.w_order = Order::column_major;
  tune(columns);
  EXPECT_THAT(lines_,
              ElementsAre(AllOf(HasSubstr("not tuned online"), HasSubstr("row-major operands only"))));
  EXPECT_THAT(builds_, IsEmpty());
  EXPECT_FALSE(file_exists(file_));
}

TEST_F(OnlineTuning, LittleMemoryDeclines) {
  free_bytes_ = std::size_t{100} << 20;
  tune();
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("100 MiB of memory are free")));
  EXPECT_THAT(kernels(), IsEmpty());
}

TEST_F(OnlineTuning, StoppingIsPromptAndLeavesNoSuspicion) {
  std::atomic<int> samples{0};
  FakeFamilyOptions lazy;
  lazy.name = "lazy";
  lazy.tie_rank = 0;
  lazy.cost = [&samples](const Problem&, Random&, double) {
    ++samples;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    return 1.0;
  };
  add(std::move(lazy));
  options_.settings.budget_seconds = 1000;
  {
    const auto one = tuner();
    one->missed(asked());
    // Screening has taken its three and the warm-up: these are finals, of fifteen rounds in one call.
    while (samples < 14) std::this_thread::yield();
    const int before = samples;
    one->stop();
    const int now = samples;
    EXPECT_LE(now - before, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    EXPECT_EQ(samples, now);
    EXPECT_FALSE(one->missed(asked(small(8))));
  }
  EXPECT_THAT(kernels(), IsEmpty());
  EXPECT_THAT(warnings_, IsEmpty());
  const int before = builds("lazy");
  tune();
  EXPECT_GT(builds("lazy"), before);
  EXPECT_THAT(kernels(), ElementsAre("lazy_r1"));
}

TEST_F(OnlineTuning, AFileThatCannotBeWrittenIsSaidOnce) {
  std::ofstream(folder_ + "/file") << "in the way";
  file_ = folder_ + "/file/online_tuning.csv";
  const auto one = tuner();
  for (std::int64_t m = 1; m <= 4; ++m) one->missed(asked(small(m)));
  ASSERT_TRUE(one->wait_until_idle(patience));
  one->missed(asked(small(5)));
  ASSERT_TRUE(one->wait_until_idle(patience));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("online tuning is off"), HasSubstr("/file"))));
  EXPECT_THAT(lines_, IsEmpty());
  EXPECT_THAT(builds_, IsEmpty());
}

TEST_F(OnlineTuning, SynchronousCallersGetTheRow) {
  options_.synchronous = true;
  const auto one = tuner();
  EXPECT_TRUE(one->missed(asked()));
  EXPECT_THAT(kernels(), ElementsAre("fast_r1"));
  EXPECT_EQ(changes_, 1);
}

TEST_F(OnlineTuning, AMissingKernelForAllIsAFailureWithItsReason) {
  families_.clear();
  add("vendor", 0, 10, zeros);
  tune();
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("not tuned online"), HasSubstr("wrong"))));
  EXPECT_EQ(changes_, 0);
}

}  // namespace
}  // namespace gemmtune
