// Online tuning on a simulated device: what is tried, what is kept, who tunes, when it ends.
#include "tuning/online_tuner.h"

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
#include "formats/hipblaslt_csv.h"
#include "formats/tuned_csv.h"
#include "support/fake_device.h"
#include "tuning/journal.h"
#include "tuning/journal_texts.h"
#include "tuning/online_claim.h"

namespace gemmtune {
namespace {

using gemmtune::testing::FakeDevice;
using gemmtune::testing::FakeFamilyOptions;
using gemmtune::testing::right_gemm;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr double patience = 60;  // seconds; nothing here takes one

Problem small(std::int64_t m = 4) {
  Problem problem;
  problem.m = m;
  problem.n = 32;
  problem.k = 48;
  return problem;
}

void zeros(const Problem& problem, const Operands& operands, void*) {
  for (std::int64_t row = 0; row < problem.m; ++row) {
    std::memset(static_cast<std::uint16_t*>(operands.y) + row * operands.ldy, 0,
                static_cast<std::size_t>(problem.n) * 2);
  }
}

/// Tuners of one online file, and what became known of them.
class OnlineTuning : public ::testing::Test {
 protected:
  OnlineTuning() {
    std::string pattern = (std::filesystem::temp_directory_path() / "gemmtune_online_XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
    file_ = folder_ + "/config/online_tuning.csv";
    add("vendor", 0, 100);
    add("fast", 1, 50);
  }
  ~OnlineTuning() override { std::filesystem::remove_all(folder_); }

  /// `run` empty: right. Built kernels are counted by family.
  void add(const std::string& name, int tie_rank, double microseconds, testing::FakeRun run = {}) {
    FakeFamilyOptions family;
    family.name = name;
    family.tie_rank = tie_rank;
    family.run = std::move(run);
    family.cost = [microseconds](const Problem&, Random&, double) { return microseconds; };
    add(std::move(family));
  }
  void add(FakeFamilyOptions family) {
    family.on_build = [this, name = family.name, before = family.on_build] {
      if (before) before();
      const std::lock_guard lock(mutex_);
      ++builds_[name];
    };
    families_.push_back(std::move(family));
  }

  std::unique_ptr<OnlineTuner> tuner() {
    OnlineHost host;
    host.open_device = [this]() -> Result<std::unique_ptr<Device>> {
      auto device = std::make_unique<FakeDevice>();
      for (const FakeFamilyOptions& family : families_) device->add(family);
      device->set_baseline(Candidate{"vendor", 1, {}});
      device->free_bytes = free_bytes_;
      device_.store(device.get());
      ++opened_;
      return std::unique_ptr<Device>(std::move(device));
    };
    host.rows_changed = [this] {
      ++changes_;
      return Status();
    };
    host.say = [this](LogLevel level, const std::string& line) {
      const std::lock_guard lock(mutex_);
      (level == LogLevel::warning ? warnings_ : lines_).push_back(line);
    };
    return std::make_unique<OnlineTuner>(std::move(host), options_);
  }
  OnlineProblem asked(const Problem& problem = small()) const {
    return {problem, file_, "vendor_r1", proven_, tuned_files_};
  }
  /// A tuner's whole life for one problem.
  void tune(const Problem& problem = small()) {
    const auto one = tuner();
    one->missed(asked(problem));
    ASSERT_TRUE(one->wait_until_idle(patience));
  }
  std::vector<std::string> kernels() const {
    std::vector<std::string> names;
    const auto file = read_tuned_csv(file_, {.operation = Operation::a16w16, .strict = true});
    if (!file.ok()) return names;
    for (const TunedEntry& entry : file->entries) names.push_back(entry.kernel_name);
    return names;
  }
  int builds(const std::string& family) {
    const std::lock_guard lock(mutex_);
    return builds_[family];
  }

  std::string folder_;
  std::string file_;
  std::vector<FakeFamilyOptions> families_;
  OnlineTunerOptions options_;
  std::vector<std::string> proven_{"vendor"};
  std::vector<std::string> tuned_files_;
  std::size_t free_bytes_ = std::size_t{1} << 30;
  std::atomic<FakeDevice*> device_{nullptr};
  std::atomic<int> opened_{0};
  std::atomic<int> changes_{0};
  std::mutex mutex_;
  std::map<std::string, int> builds_;
  std::vector<std::string> lines_;
  std::vector<std::string> warnings_;
};

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
  std::vector<OnlineClaim> everything;
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
  const std::string policy = journal_policy_text(settings.policy, settings.largest_err_ratio);
  EXPECT_EQ(policy, journal_policy_text(Policy(), 0.05));  // that of the command line
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
  double spent = 0;
  const auto one = tuner();
  FakeFamilyOptions& last = families_.back();
  (void)last;
  one->missed(asked());
  ASSERT_TRUE(one->wait_until_idle(patience));
  ASSERT_THAT(lines_, SizeIs(1));
  // "…: tuned online in 1.23 s: …", by the simulated clock.
  const std::size_t at = lines_.front().find(" in ");
  ASSERT_NE(at, std::string::npos);
  spent = std::stod(lines_.front().substr(at + 4));
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
    while (samples == 0) std::this_thread::yield();
    one->stop();
    const int now = samples;
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

class AitersTable : public OnlineTuning {
 protected:
  AitersTable() {
    file_ = folder_ + "/hip_online_tuning_res.csv";
    options_.settings.hipblaslt_table = true;
  }
  std::string text() const {
    const auto content = read_file(file_);
    return content.ok() ? *content : std::string();
  }
};

TEST_F(AitersTable, IsWrittenAsAiterWritesIt) {
  tune();
  EXPECT_EQ(
      text(),
      "preshuffle, use_rowwise, trans_a, trans_b, m, n, k, A_data_type, lda, stride_a, B_data_type, ldb, "
      "stride_b, C_data_type, ldc, stride_c, compute_type, batch_count, algo_index, kernel_name\n"
      "false,false,T,N,32,4,48,bf16_r,48,0,bf16_r,48,0,bf16_r,32,0,f32_r,1,-1,fast_r1\n");
  const auto back = read_hipblaslt_csv(file_);
  ASSERT_TRUE(back.ok());
  const HipblasltRow* row = find_row(*back, small());
  ASSERT_NE(row, nullptr);
  EXPECT_EQ(row->kernel_name, "fast_r1");
}

TEST_F(AitersTable, ARowOfAnotherDeviceDoesNotStandInTheWay) {
  auto row = to_hipblaslt_row(small());
  ASSERT_TRUE(row.ok());
  row->algo_index = 4711;
  row->kernel_name = "Cijk_Alik_Bljk_of_another_machine";
  ASSERT_TRUE(append_hipblaslt_row(file_, *row).ok());
  tune();
  EXPECT_THAT(text(), HasSubstr(",4711,Cijk"));
  EXPECT_THAT(text(), HasSubstr(",-1,fast_r1"));
  const std::string once = text();
  tune();  // known now
  EXPECT_EQ(text(), once);
  EXPECT_EQ(changes_, 2);
}

TEST_F(AitersTable, AKernelThatIsWrongWithABiasIsNotKept) {
  families_.clear();
  add("vendor", 0, 10, [](const Problem& problem, const Operands& operands, void* workspace) {
    problem.bias ? zeros(problem, operands, workspace) : right_gemm(problem, operands, workspace);
  });
  tune();
  EXPECT_THAT(warnings_, ElementsAre(HasSubstr("with a bias")));
  EXPECT_THAT(text(), IsEmpty());
}

TEST_F(AitersTable, LargeMIsDeclinedAsInAiter) {
  tune(small(513));
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("M = 513")));
  EXPECT_THAT(text(), IsEmpty());
}

TEST(OnlineClaims, ExcludeEachOtherByProblem) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gemmtune_claims_XXXXXX").string();
  const std::string folder = ::mkdtemp(pattern.data());
  const std::string path = folder + "/claims";
  {
    auto first = OnlineClaim::take(path, 8);
    ASSERT_TRUE(first.ok() && first->has_value());
    auto same = OnlineClaim::take(path, 8);
    ASSERT_TRUE(same.ok());
    EXPECT_FALSE(same->has_value());
    auto other = OnlineClaim::take(path, std::uint64_t{8} << 40);
    ASSERT_TRUE(other.ok());
    EXPECT_TRUE(other->has_value());
    first->reset();
    same = OnlineClaim::take(path, 8);
    EXPECT_TRUE(same.ok() && same->has_value());
  }
  EXPECT_FALSE(OnlineClaim::take(folder + "/none/claims", 1).ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gemmtune
