// Online tuning by a worker process, on a simulated device: which kernels it tries, what broken ones cost,
// and what happens where there is no worker.
#include "online/online_worker.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "base/file_lock.h"
#include "evaluate/journal/journal.h"
#include "support/online_tuning.h"
#include "support/own_families.h"

namespace gemmtune {
namespace {

using gemmtune::testing::make_device_with_own_families;
using gemmtune::testing::OnlineTuning;
using gemmtune::testing::patience;
using gemmtune::testing::small;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class OnlineByWorker : public OnlineTuning {
 protected:
  OnlineByWorker() {
    families_.clear();
    make_device_ = make_device_with_own_families;
    start_.program = GEMMTUNE_ONLINE_WORKER;
    start_.backend = "cpu";
    worker_start_ = [this]() -> Result<OnlineWorkerStart> {
      ++started_;
      return start_;
    };
    options_.settings.runtime_folder = folder_ + "/runtime";
    options_.settings.budget_seconds = 60;  // a busy machine may take long to replace a worker
  }
  /// What the journal has of a kernel for the problem.
  std::optional<FailureRecord> failure_of(const std::string& kernel) {
    auto journal = Journal::open(journal_path(file_));
    EXPECT_TRUE(journal.ok()) << journal.message();
    const auto device = make_device_with_own_families();
    const std::string policy = journal_policy_text(online_policy(*device), options_.settings.max_err_ratio);
    const auto failure = journal->earlier_failure(
        outcome_key(print(small()), journal_device_text(device->info()), kernel,
                    device->family_identity(kernel.substr(0, kernel.rfind('_'))), policy),
        0);
    return failure.ok() ? *failure : std::nullopt;
  }

  OnlineWorkerStart start_;
  int started_ = 0;
};

TEST_F(OnlineByWorker, FamiliesThatNoRowHasProvenAreTriedAndBrokenOnesCostTheirCandidate) {
  tune();
  EXPECT_THAT(kernels(), ElementsAre("own_r1"));
  EXPECT_THAT(warnings_, IsEmpty());
  EXPECT_THAT(lines_, ElementsAre(HasSubstr("tuned online")));
  EXPECT_EQ(started_, 1);
  ASSERT_TRUE(failure_of("own_crash_r1"));
  EXPECT_EQ(failure_of("own_crash_r1")->outcome.kind, OutcomeKind::crashed);
  ASSERT_TRUE(failure_of("own_exit_r1"));
  EXPECT_EQ(failure_of("own_exit_r1")->outcome.kind, OutcomeKind::crashed);
  ASSERT_TRUE(failure_of("own_wrong_r1"));
  EXPECT_EQ(failure_of("own_wrong_r1")->outcome.kind, OutcomeKind::wrong);
  EXPECT_FALSE(failure_of("own_r1"));
}

TEST_F(OnlineByWorker, AWorkerThatRestsTunesAllTheSame) {
  start_.share = 0.5;
  tune();
  tune(small(64));
  EXPECT_THAT(kernels(), ElementsAre("own_r1", "own_r1"));
  EXPECT_THAT(warnings_, IsEmpty());
  // Under the key of offline tuning, although its clock is another.
  ASSERT_TRUE(failure_of("own_wrong_r1"));
  EXPECT_EQ(failure_of("own_wrong_r1")->outcome.kind, OutcomeKind::wrong);
}

TEST_F(OnlineByWorker, WithoutAProgramItIsSaidOnceAndThisProcessMeasuresAsItMay) {
  start_.program = folder_ + "/no/gemmtune";
  const auto one = tuner();
  one->missed(asked());
  ASSERT_TRUE(one->wait_until_idle(patience));
  one->missed(asked(small(64)));
  ASSERT_TRUE(one->wait_until_idle(patience));
  EXPECT_THAT(kernels(), ElementsAre("vendor_r1", "vendor_r1"));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("online tuning measures in this process"),
                                           HasSubstr("/no/gemmtune"))));
  EXPECT_EQ(started_, 1);
}

TEST_F(OnlineByWorker, AnotherProgramIsNoWorker) {
  start_.program = "/bin/true";
  tune();
  EXPECT_THAT(kernels(), ElementsAre("vendor_r1"));
  EXPECT_THAT(warnings_, ElementsAre(AllOf(HasSubstr("measures in this process"), HasSubstr("/bin/true"),
                                           HasSubstr("exit code 0"))));
}

TEST_F(OnlineByWorker, ServicesOfAMachineTakeTurns) {
  std::filesystem::create_directory(options_.settings.runtime_folder);
  std::filesystem::permissions(options_.settings.runtime_folder, std::filesystem::perms::owner_all);
  const auto one = tuner();
  {
    const auto turn = FileLock::acquire(options_.settings.runtime_folder + "/online.lock");
    ASSERT_TRUE(turn.ok()) << turn.message();
    one->missed(asked());
    EXPECT_FALSE(one->wait_until_idle(0.3));
    EXPECT_EQ(started_, 0);
  }
  ASSERT_TRUE(one->wait_until_idle(patience));
  EXPECT_THAT(kernels(), ElementsAre("own_r1"));
}

TEST_F(OnlineByWorker, StoppingEndsAWorkerInTheMiddle) {
  options_.settings.budget_seconds = 1000;
  start_.share = 0.001;  // it rests for seconds after each candidate
  const auto one = tuner();
  one->missed(asked());
  EXPECT_FALSE(one->wait_until_idle(0.5));
  one->stop();
  EXPECT_THAT(kernels(), IsEmpty());
  EXPECT_THAT(warnings_, IsEmpty());
}

TEST(NiceOfAShare, IsTheSchedulersWeight) {
  EXPECT_EQ(nice_of_share(1), 0);
  EXPECT_EQ(nice_of_share(0.75), 0);
  EXPECT_EQ(nice_of_share(0.5), 0);
  EXPECT_EQ(nice_of_share(0.25), 5);
  EXPECT_EQ(nice_of_share(0.1), 10);
  EXPECT_EQ(nice_of_share(0.001), 19);
}

TEST(OnlineProgram, TheNamedOneIsTakenAndNoOther) {
  std::string pattern = (std::filesystem::temp_directory_path() / "gemmtune_program_XXXXXX").string();
  const std::string folder = ::mkdtemp(pattern.data());
  const std::string path = folder + "/gemmtune";
  EXPECT_THAT(worker_program_of(path).message(), AllOf(HasSubstr("GEMMTUNE_PROGRAM"), HasSubstr(path)));
  std::ofstream(path) << "no program yet";
  EXPECT_FALSE(worker_program_of(path).ok());
  ASSERT_EQ(::chmod(path.c_str(), 0700), 0);
  EXPECT_EQ(*worker_program_of(path), path);
  EXPECT_FALSE(worker_program_of(folder).ok());
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace gemmtune
