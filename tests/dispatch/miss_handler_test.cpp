// The hook for problems that no row answers, and the rows of online tuning.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "dispatch/context.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

/// Records where streams are recorded into graphs: the one with this handle.
class CapturingDevice final : public test::FakeDevice {
 public:
  bool is_capturing(Stream stream) const override { return stream.handle == captured; }
  static inline int captured_stream = 0;
  static inline void* const captured = &captured_stream;
};

class Recorder final : public MissHandler {
 public:
  explicit Recorder(std::atomic<int>* destroyed = nullptr) : destroyed_(destroyed) {}
  ~Recorder() override {
    if (destroyed_ != nullptr) ++*destroyed_;
  }
  bool missed(const Miss& miss) override {
    {
      const std::lock_guard lock(mutex);
      misses.push_back(miss);
    }
    return then && then(miss);
  }
  std::mutex mutex;
  std::vector<Miss> misses;
  std::function<bool(const Miss&)> then;

 private:
  std::atomic<int>* destroyed_;
};

class MissHandlers : public ::testing::Test {
 protected:
  MissHandlers() { options_.config_folder = folder_.path(); }
  std::unique_ptr<Context> open(OnlineTuning switched = OnlineTuning::off) {
    Environment environment;
    environment.online_tuning = switched;
    return std::make_unique<Context>(options_, environment, std::make_unique<CapturingDevice>());
  }
  void online(const std::vector<TunedEntry>& rows) { test::write_rows(folder_, "online_tuning.csv", rows); }
  OnlineFile file() const { return {folder_.file("online_tuning.csv"), OnlineFormat::gemmtune_csv}; }
  static std::string kernel(Context& context, const Problem& problem, Stream stream = {}) {
    const auto plan = context.plan(problem, stream);
    return plan.ok() ? (*plan)->account().kernel_name : plan.message();
  }

  test::TemporaryFolder folder_;
  ContextOptions options_;
  std::shared_ptr<Recorder> recorder_ = std::make_shared<Recorder>();
};

TEST_F(MissHandlers, HearsOfEachUnansweredProblemOnce) {
  test::write_rows(folder_, "bf16_tuned_gemm.csv",
                   {row(small_problem(8), "alpha_r1_a1"), row(small_problem(8, 64), "beta_r1_a1")});
  const auto context = open();
  context->set_miss_handler(recorder_, file());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(kernel(*context, small_problem(100)), "safe_r1_a1");
    EXPECT_EQ(kernel(*context, small_problem(8)), "alpha_r1_a1");
    (void)context->plan(small_problem(0));
  }
  ASSERT_THAT(recorder_->misses, SizeIs(1));
  const Miss& miss = recorder_->misses.front();
  EXPECT_EQ(miss.problem, small_problem(100));
  EXPECT_EQ(miss.fallback, "safe_r1_a1");
  EXPECT_EQ(miss.proven_families, "alpha,beta,safe");
  EXPECT_EQ(miss.file, folder_.file("online_tuning.csv"));
  EXPECT_EQ(miss.tuned_files, folder_.file("bf16_tuned_gemm.csv"));
}

TEST_F(MissHandlers, ManyThreadsAreOneMiss) {
  const auto context = open();
  context->set_miss_handler(recorder_, file());
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) threads.emplace_back([&] { (void)context->plan(small_problem(7)); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_THAT(recorder_->misses, SizeIs(1));
}

TEST_F(MissHandlers, ACapturedStreamIsLeftAlone) {
  const auto context = open();
  context->set_miss_handler(recorder_, file());
  (void)kernel(*context, small_problem(7), {CapturingDevice::captured});
  (void)kernel(*context, small_problem(7), {CapturingDevice::captured});
  EXPECT_THAT(recorder_->misses, IsEmpty());
  (void)kernel(*context, small_problem(7));
  EXPECT_THAT(recorder_->misses, SizeIs(1));
}

TEST_F(MissHandlers, ANewRowReplacesTheUntunedPlanAndNoOther) {
  test::write_rows(folder_, "bf16_tuned_gemm.csv", {row(small_problem(8), "alpha_r1_a1")});
  const auto context = open();
  context->set_miss_handler(recorder_, file());
  const auto tuned = context->plan(small_problem(8));
  const auto untuned = context->plan(small_problem(100, 64));
  const auto unknown = context->plan(small_problem(100, 128));
  ASSERT_TRUE(tuned.ok() && untuned.ok() && unknown.ok());
  online({row(small_problem(100, 64), "alpha_r1_a2")});
  EXPECT_EQ(context->plan(small_problem(100, 64))->get(), untuned->get());  // nobody said so
  ASSERT_TRUE(context->reload_online().ok());
  const auto after = context->plan(small_problem(100, 64));
  ASSERT_TRUE(after.ok());
  EXPECT_EQ((*after)->account().kernel_name, "alpha_r1_a2");
  EXPECT_EQ((*after)->account().match, Match::exact);
  EXPECT_EQ((*after)->account().file, folder_.file("online_tuning.csv"));
  EXPECT_EQ(context->plan(small_problem(8))->get(), tuned->get());
  EXPECT_EQ(context->plan(small_problem(100, 128))->get(), unknown->get());
  EXPECT_EQ((*untuned)->account().kernel_name, "safe_r1_a1");  // still held, still whole
  EXPECT_THAT(recorder_->misses, SizeIs(2));
}

TEST_F(MissHandlers, AHandlerThatSaysSoIsFollowedAtOnce) {
  const auto context = open();
  recorder_->then = [&](const Miss& miss) {
    online({row(miss.problem, "beta_r1_a2")});
    return context->reload_online().ok();
  };
  context->set_miss_handler(recorder_, file());
  EXPECT_EQ(kernel(*context, small_problem(7)), "beta_r1_a2");
  EXPECT_EQ(context->counters().by_match[static_cast<std::size_t>(Match::untuned)], 0U);
}

TEST_F(MissHandlers, TunedFilesAreAskedBeforeOnlineRows) {
  online({row(small_problem(8), "alpha_r1_a2", 1), row(small_problem(16, 64), "alpha_r1_a2")});
  test::write_rows(folder_, "bf16_tuned_gemm.csv", {row(small_problem(8), "alpha_r1_a1", 99)});
  const auto context = open(OnlineTuning::gemmtune);
  EXPECT_EQ(kernel(*context, small_problem(8)), "alpha_r1_a1");
  EXPECT_EQ(kernel(*context, small_problem(13, 64)), "alpha_r1_a2");  // padded, as in any tuned file
}

TEST_F(MissHandlers, OffReadsNoOnlineRows) {
  online({row(small_problem(8), "alpha_r1_a2")});
  const auto context = open();
  EXPECT_EQ(kernel(*context, small_problem(8)), "safe_r1_a1");
  EXPECT_EQ(context->online_rows(), nullptr);
}

TEST_F(MissHandlers, AitersTableAnswersItsOwnMWithAndWithoutBias) {
  std::vector<HipblasltRow> rows;
  for (const char* name : {"Cijk_of_another_device", "alpha_r1_a2", "alpha_r1_a1"}) {
    rows.push_back(*to_hipblaslt_row(small_problem(16)));
    rows.back().kernel_name = name;
  }
  const OnlineFile table{folder_.write("hip_online_tuning_res.csv", write_hipblaslt_csv(rows)),
                         OnlineFormat::hipblaslt_table};
  const auto context = open();
  context->set_miss_handler(recorder_, table);
  EXPECT_EQ(kernel(*context, small_problem(16)), "alpha_r1_a2");  // the first that runs here
  Problem biased = small_problem(16);
  biased.bias = true;
  EXPECT_EQ(kernel(*context, biased), "alpha_r1_a2");
  EXPECT_EQ(kernel(*context, small_problem(15)), "safe_r1_a1");  // fine padding would be 16
  EXPECT_THAT(context->online_rows()->describe(), HasSubstr("2 rows"));
}

TEST_F(MissHandlers, OtherOperationsHaveFilesOfTheirOwn) {
  EXPECT_EQ(online_path(file(), Operation::a16w16), folder_.file("online_tuning.csv"));
  EXPECT_EQ(online_path(file(), Operation::a8w8), folder_.file("online_tuning.a8w8.csv"));
  EXPECT_EQ(online_path({"t.csv", OnlineFormat::hipblaslt_table}, Operation::a8w8), "");
  EXPECT_EQ(default_online_file(OnlineTuning::aiter, "/config").path,
            (std::filesystem::current_path() / "hip_online_tuning_res.csv").string());
  EXPECT_EQ(default_online_file(OnlineTuning::gemmtune, "/config").path, "/config/online_tuning.csv");
}

TEST_F(MissHandlers, AReplacedHandlerIsGoneAndSoIsTheContexts) {
  std::atomic<int> destroyed{0};
  auto context = open();
  context->set_miss_handler(std::make_shared<Recorder>(&destroyed), file());
  context->set_miss_handler(std::make_shared<Recorder>(&destroyed), std::nullopt);
  EXPECT_EQ(destroyed, 1);
  context.reset();
  EXPECT_EQ(destroyed, 2);
}

TEST_F(MissHandlers, ADamagedOnlineFileKeepsTheOldRows) {
  online({row(small_problem(7), "alpha_r1_a2")});
  const auto context = open(OnlineTuning::gemmtune);
  folder_.write("online_tuning.csv", "no,such,columns\n1,2,3\n");
  EXPECT_FALSE(context->reload_online().ok());
  EXPECT_EQ(kernel(*context, small_problem(7)), "alpha_r1_a2");
}

}  // namespace
}  // namespace gemmtune
