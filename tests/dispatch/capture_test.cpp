// Capture through a context: what is recorded, under which match, where it is written and when.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/file_lock.h"
#include "capi/c_support.h"
#include "formats/aiter/schema.h"
#include "support/captures.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::packed;
using test::row;
using test::small_problem;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

class CaptureContext : public ::testing::Test {
 protected:
  CaptureContext() {
    options_.capture = true;
    options_.config_folder = folder_.path();
    options_.log = [](LogLevel, std::string_view line, void* self) {
      auto* test = static_cast<CaptureContext*>(self);
      const std::lock_guard lock(test->lines_mutex_);
      test->lines_.emplace_back(line);
    };
    options_.log_context = this;
  }
  std::unique_ptr<Context> open(const Environment& environment = {}) {
    return std::make_unique<Context>(options_, environment, std::make_unique<test::FakeDevice>());
  }
  Capture captured(OperationForm operation = Operation::a16w16) const {
    return captured_in(folder_.path(), operation);
  }
  static Capture captured_in(const std::string& folder, OperationForm operation = Operation::a16w16) {
    auto read = read_capture(folder + "/" + untuned_file_name(operation), operation);
    return read.ok() ? *read : Capture();
  }
  std::size_t lines_with(const std::string& text) {
    const std::lock_guard lock(lines_mutex_);
    return static_cast<std::size_t>(std::count_if(lines_.begin(), lines_.end(), [&](const std::string& line) {
      return line.find(text) != std::string::npos;
    }));
  }

  test::TemporaryFolder folder_;
  ContextOptions options_;
  std::mutex lines_mutex_;
  std::vector<std::string> lines_;
};

TEST_F(CaptureContext, CountsCallsByMatchAndWritesThemAtTheEnd) {
  test::write_rows(folder_, "bf16_tuned_gemm.csv",
                   {row(small_problem(4), "alpha_r1_a1"), row(small_problem(16), "alpha_r1_a1")});
  auto context = open();
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(context->plan(small_problem(4)).ok());
  ASSERT_TRUE(context->plan(small_problem(9)).ok());
  ASSERT_TRUE(context->plan(small_problem(9, 64)).ok());
  ASSERT_TRUE(context->plan(small_problem(0)).ok());  // not a problem to tune
  context.reset();
  const Capture read = captured();
  ASSERT_THAT(read.problems, SizeIs(3));
  EXPECT_EQ(read.problems[0].problem, small_problem(4));
  EXPECT_EQ(read.problems[0].by_match, (MatchCounts{3, 0, 0, 0, 0}));
  EXPECT_EQ(read.problems[1].by_match, (MatchCounts{0, 0, 1, 0, 0}));
  EXPECT_EQ(read.problems[2].by_match, (MatchCounts{0, 0, 0, 0, 1}));
}

TEST_F(CaptureContext, AReloadGoesOnCountingTheSameProblem) {
  auto context = open();
  ASSERT_TRUE(context->plan(small_problem(4)).ok());
  ASSERT_TRUE(context->flush_capture().ok());
  test::write_rows(folder_, "bf16_tuned_gemm.csv", {row(small_problem(4), "alpha_r1_a1")});
  ASSERT_TRUE(context->reload().ok());
  ASSERT_TRUE(context->plan(small_problem(4)).ok());
  context.reset();
  ASSERT_THAT(captured().problems, SizeIs(1));
  EXPECT_EQ(captured().problems[0].by_match, (MatchCounts{1, 0, 0, 0, 1}));
}

TEST_F(CaptureContext, APackedWeightIsOneProblemWhateverItsLayoutAndAlignment) {
  auto context = open();
  Problem aligned = packed(small_problem(4));
  aligned.alignment = 64;
  ASSERT_TRUE(context->plan(packed(small_problem(4))).ok());
  ASSERT_TRUE(context->plan(aligned).ok());
  context.reset();
  ASSERT_THAT(captured().problems, SizeIs(1));
  EXPECT_TRUE(is_packed(captured().problems[0].problem));
  EXPECT_EQ(captured().problems[0].calls, 2U);
}

TEST_F(CaptureContext, AProblemThatNothingRunsIsCountedAndCaptured) {
  test::write_rows(folder_, "bf16_tuned_gemm.csv", {row(packed(small_problem(4)), "nosuch_r1_a1")});
  auto context = open();
  const Problem unknown = packed(small_problem(4), WeightLayout::onednn);
  EXPECT_THAT(context->plan(unknown).message(), HasSubstr("no row and no fallback"));
  EXPECT_FALSE(context->plan(unknown).ok());
  EXPECT_FALSE(context->plan(small_problem(-4)).ok());  // no problem at all
  EXPECT_EQ(context->counters().by_match[static_cast<std::size_t>(Match::untuned)], 2U);
  EXPECT_EQ(context->counters().invalid_rows, 2U);
  context.reset();
  ASSERT_THAT(captured().problems, SizeIs(1));
  EXPECT_EQ(captured().problems[0].by_match, (MatchCounts{0, 0, 0, 0, 2}));
}

TEST_F(CaptureContext, EachOperationHasItsFile) {
  auto context = open();
  for (const OperationForm operation : all_operation_forms()) {
    Problem problem = default_problem(operation);
    problem.m = 16;
    problem.n = problem.k = 128;
    if (operation == Operation::fused_moe) {
      problem.moe.experts = 4;
      problem.moe.topk = 2;
    }
    (void)context->plan(problem);
  }
  context.reset();
  for (const OperationForm operation : all_operation_forms()) {
    ASSERT_THAT(captured(operation).problems, SizeIs(1)) << to_string(operation);
    EXPECT_EQ(captured(operation).problems[0].calls, 1U) << to_string(operation);
  }
}

TEST_F(CaptureContext, IsOffUnlessAskedFor) {
  options_.capture = false;
  auto context = open();
  ASSERT_TRUE(context->plan(small_problem(4)).ok());
  EXPECT_TRUE(context->flush_capture().ok());
  context.reset();
  EXPECT_THAT(captured().problems, SizeIs(0));
}

TEST_F(CaptureContext, TheEnvironmentTurnsItOnAndNamesTheFolder) {
  options_.capture = false;
  Environment environment;
  environment.capture = true;
  environment.capture_folder = folder_.file("a/b");
  ASSERT_TRUE(open(environment)->plan(small_problem(4)).ok());
  EXPECT_THAT(captured_in(folder_.file("a/b")).problems, SizeIs(1));
  options_.capture_folder = folder_.file("c");
  ASSERT_TRUE(open(environment)->plan(small_problem(4)).ok());
  EXPECT_THAT(captured_in(folder_.file("c")).problems, SizeIs(1));
  EXPECT_THAT(captured().problems, SizeIs(0));
}

TEST_F(CaptureContext, ItsThreadWritesWithoutBeingAsked) {
  const auto context = open();
  ASSERT_TRUE(context->plan(small_problem(4)).ok());
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(300);
  while (captured().problems.empty() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  EXPECT_THAT(captured().problems, SizeIs(1));
}

TEST_F(CaptureContext, ANewProblemIsInTheFileWhenItsPlanIs) {
  const auto context = open();
  for (std::int64_t m = 1; m <= 3; ++m) {
    ASSERT_TRUE(context->plan(small_problem(m)).ok());
    ASSERT_THAT(captured().problems, SizeIs(static_cast<std::size_t>(m)));
    EXPECT_GT(captured().problems.back().line, 0U);
  }
}

TEST_F(CaptureContext, ALineThatHasToWaitForAnotherProcessComesLater) {
  auto context = open();
  {
    const auto lock = FileLock::acquire(folder_.file("bf16_untuned_gemm.csv.lock"));
    ASSERT_TRUE(lock.ok()) << lock.message();
    ASSERT_TRUE(context->plan(small_problem(4)).ok());
    EXPECT_THAT(captured().problems, SizeIs(0));
  }
  while (captured().problems.empty()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(captured().problems[0].problem, small_problem(4));
}

TEST_F(CaptureContext, WhatCannotBeWrittenIsSaidOnceAndWrittenLater) {
  const std::string blocked = folder_.write("capture", "a file, no folder");
  options_.capture_folder = blocked;
  auto context = open();
  ASSERT_TRUE(context->plan(small_problem(4)).ok());
  EXPECT_FALSE(context->flush_capture().ok());
  EXPECT_FALSE(context->flush_capture().ok());
  EXPECT_EQ(lines_with("capture: "), 1U);
  std::filesystem::remove(blocked);
  ASSERT_TRUE(context->plan(small_problem(4)).ok());
  EXPECT_TRUE(context->flush_capture().ok());
  ASSERT_THAT(captured_in(blocked).problems, SizeIs(1));
  EXPECT_EQ(captured_in(blocked).problems[0].calls, 2U);
}

TEST_F(CaptureContext, WhatAHeaderCannotExpressIsAnErrorSaidOnce) {
  folder_.write("bf16_untuned_gemm.csv", "M,N,K,dtype\n");
  auto context = open();
  Problem biased = small_problem(4);
  biased.bias = true;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(context->plan(biased).ok());
    EXPECT_TRUE(context->flush_capture().ok());
  }
  EXPECT_EQ(lines_with("cannot express"), 1U);
  EXPECT_EQ(captured().problems[0].calls, 3U);
}

TEST_F(CaptureContext, ADamagedSideStoreIsSaid) {
  folder_.write("bf16_untuned_gemm.csv.calls.json", "{");
  auto context = open();
  ASSERT_TRUE(context->plan(small_problem(4)).ok());
  context.reset();
  EXPECT_EQ(lines_with("begun anew"), 1U);
  EXPECT_EQ(captured().problems[0].calls, 1U);
}

TEST_F(CaptureContext, ManyThreadsLoseNoCall) {
  auto context = open();
  constexpr int threads = 8;
  constexpr int rounds = 500;
  std::vector<std::thread> all;
  for (int thread = 0; thread < threads; ++thread) {
    all.emplace_back([&, thread] {
      for (int i = 0; i < rounds; ++i) {
        (void)context->plan(small_problem(1 + i % 7, 32 + 16 * (i % 2 == 0 ? 0 : thread)));
        if (i % 100 == 0) (void)context->flush_capture();
      }
    });
  }
  for (std::thread& thread : all) thread.join();
  context.reset();
  std::uint64_t calls = 0;
  for (const CapturedProblem& one : captured().problems) calls += one.calls;
  EXPECT_EQ(calls, static_cast<std::uint64_t>(threads * rounds));
}

TEST_F(CaptureContext, TheCFunctionWritesAndToleratesCaptureBeingOff) {
  gemmtune_context handle;
  handle.context = open();
  gemmtune_problem asked{};
  asked.size = sizeof asked;
  asked.operation = GEMMTUNE_FUSED_MOE;
  asked.x_type = GEMMTUNE_F8_E4M3FN;
  asked.w_type = GEMMTUNE_I4;
  asked.m = 16;
  asked.n = asked.k = 64;
  gemmtune_moe moe{};
  moe.size = sizeof moe;
  moe.experts = 4;
  moe.topk = 2;
  moe.activation = GEMMTUNE_ACTIVATION_GELU;
  moe.quant_type = GEMMTUNE_QUANT_PER_1X128;
  moe.gated = moe.doweight_stage1 = 1;
  asked.moe = &moe;
  gemmtune_plan* plan = nullptr;
  (void)gemmtune_plan_create(&handle, &asked, &plan);
  gemmtune_plan_release(plan);
  ASSERT_EQ(gemmtune_capture_flush(&handle), GEMMTUNE_OK) << gemmtune_last_error();
  ASSERT_THAT(captured(Operation::fused_moe).problems, SizeIs(1));
  EXPECT_THAT(print(captured(Operation::fused_moe).problems[0].problem),
              AllOf(HasSubstr("x=f8_e4m3fn w=i4 y=bf16"),
                    HasSubstr("experts=4 topk=2 act=Gelu quant=per_1x128 gated=1 doweight_stage1=1")));
  options_.capture = false;
  handle.context = open();
  EXPECT_EQ(gemmtune_capture_flush(&handle), GEMMTUNE_OK);
  EXPECT_EQ(gemmtune_capture_flush(nullptr), GEMMTUNE_NULL_POINTER);
}

}  // namespace
}  // namespace gemmtune
