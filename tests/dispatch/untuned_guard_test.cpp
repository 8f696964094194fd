// A fallback that is wrong on the caller's operands is replaced in its first run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <vector>

#include "dispatch/context.h"
#include "dispatch/planner.h"
#include "problem/operands.h"
#include "support/dispatch_tables.h"
#include "support/fake_device.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

using testing::FakeDevice;
using ::testing::HasSubstr;
using testing::right_gemm;

/// Leaves out the last 8 elements of K.
void loses_eight(const Problem& problem, const Operands& operands, void* workspace) {
  Problem shorter = problem;
  std::vector<std::byte> w(static_cast<std::size_t>(bytes_of(problem.w_type, problem.n * (problem.k - 8))));
  const auto from = static_cast<std::size_t>(bytes_of(problem.w_type, problem.k));
  const auto to = static_cast<std::size_t>(bytes_of(problem.w_type, problem.k - 8));
  for (std::size_t row = 0; row < static_cast<std::size_t>(problem.n); ++row)
    std::copy_n(static_cast<const std::byte*>(operands.w) + row * from, to, w.data() + row * to);
  shorter.k -= 8;
  Operands fewer = operands;
  fewer.w = w.data();
  right_gemm(shorter, fewer, workspace);
}

class UntunedPlan : public ::testing::Test {
 protected:
  struct Counted {
    testing::FakeRun run;
    std::shared_ptr<std::atomic<int>> calls = std::make_shared<std::atomic<int>>(0);
  };

  /// onednn is the CPU's first fallback, openblas and tiled come after it.
  UntunedPlan() {
    auto device = std::make_unique<FakeDevice>();
    device->change_info().backend = "cpu";
    fake_ = device.get();
    device_->device = std::move(device);
    problem_.m = 16;  // more than the few rows at which skinny goes before tiled
    problem_.n = 32;
    problem_.k = 2056;
  }
  std::shared_ptr<std::atomic<int>> add(const std::string& name, testing::FakeRun run,
                                        std::size_t workspace = 0) {
    auto calls = std::make_shared<std::atomic<int>>(0);
    fake_->add({.name = name,
                .run =
                    [calls, run](const Problem& problem, const Operands& operands, void* memory) {
                      ++*calls;
                      run(problem, operands, memory);
                    },
                .workspace_bytes = workspace,
                .orders = refusal::Orders::any_input});
    return calls;
  }
  PlanRef plan(bool verify) {
    const TableSet none;
    auto made = make_plan(device_, none, problem_, {}, nullptr, verify);
    EXPECT_TRUE(made.ok()) << made.message();
    return made.ok() ? std::move(*made) : PlanRef();
  }
  /// Runs on fresh operands, lines of x and rows of y three elements longer than they need to be.
  Status run(const Plan& plan) {
    Problem wide = problem_;
    (problem_.x_order == Order::row_major ? wide.k : wide.m) += 3;
    inputs_ = *make_inputs(problem_, 1);
    x_ = make_inputs(wide, 2)->x;
    y_.assign(static_cast<std::size_t>(bytes_of(problem_.y_type, problem_.m * (problem_.n + 3))),
              std::byte{0});
    Operands operands;
    operands.x = x_.data();
    operands.ldx = operand_shapes(wide).x.line_elements();
    operands.w = inputs_.w.data();
    operands.y = y_.data();
    operands.ldy = problem_.n + 3;
    return plan.run(operands, nullptr, {});
  }

  std::shared_ptr<DispatchDevice> device_ = std::make_shared<DispatchDevice>();
  FakeDevice* fake_ = nullptr;
  Problem problem_;
  HostOperands inputs_;
  std::vector<std::byte> x_;
  std::vector<std::byte> y_;
};

TEST_F(UntunedPlan, AWrongFallbackIsReplacedInItsFirstRun) {
  const auto wrong = add("onednn", loses_eight);
  const auto right = add("tiled", right_gemm);
  const PlanRef guarded = plan(true);
  for (int call = 0; call < 3; ++call) ASSERT_TRUE(run(*guarded).ok());
  EXPECT_EQ(*wrong, 1);
  EXPECT_EQ(*right, 3);
}

TEST_F(UntunedPlan, ARightFallbackStays) {
  const auto right = add("onednn", right_gemm);
  const auto other = add("tiled", right_gemm);
  const PlanRef guarded = plan(true);
  for (int call = 0; call < 3; ++call) ASSERT_TRUE(run(*guarded).ok());
  EXPECT_EQ(*right, 3);
  EXPECT_EQ(*other, 0);
}

TEST_F(UntunedPlan, ColumnMajorOperandsAreVerifiedAsSuch) {
  for (const bool w_too : {false, true}) {
    problem_.x_order = Order::column_major;
    problem_.w_order = w_too ? Order::column_major : Order::row_major;
    const auto wrong = add("onednn", [](const Problem& problem, const Operands& operands, void* workspace) {
      Problem other = problem;
      other.x_order = Order::row_major;
      Operands dense = operands;
      dense.ldx = problem.k;
      right_gemm(other, dense, workspace);
    });
    const auto right = add("tiled", right_gemm);
    const PlanRef guarded = plan(true);
    for (int call = 0; call < 2; ++call) ASSERT_TRUE(run(*guarded).ok());
    EXPECT_EQ(*wrong, 1);
    EXPECT_EQ(*right, 2);
    auto device = std::make_unique<FakeDevice>();
    device->change_info().backend = "cpu";
    fake_ = device.get();
    device_ = std::make_shared<DispatchDevice>();
    device_->device = std::move(device);
  }
}

TEST_F(UntunedPlan, WithoutTheOptionNothingIsVerified) {
  const auto wrong = add("onednn", loses_eight);
  add("tiled", right_gemm);
  const PlanRef plain = plan(false);
  ASSERT_TRUE(run(*plain).ok());
  ASSERT_TRUE(run(*plain).ok());
  EXPECT_EQ(*wrong, 2);
}

TEST_F(UntunedPlan, AWrongKernelThatTheCallerNamedIsAnErrorEachTime) {
  const auto wrong = add("onednn", loses_eight);
  const auto right = add("tiled", right_gemm);
  auto named = make_named_plan(device_, "onednn", problem_, {}, true);
  ASSERT_TRUE(named.ok()) << named.message();
  for (int call = 0; call < 2; ++call) {
    const Status ran = run(**named);
    EXPECT_EQ(ran.code(), StatusCode::internal);
    EXPECT_THAT(ran.message(), HasSubstr("is wrong on the caller's operands"));
  }
  EXPECT_EQ(*wrong, 2);
  EXPECT_EQ(*right, 0);
  auto unverified = make_named_plan(device_, "onednn", problem_, {}, false);
  ASSERT_TRUE(unverified.ok()) << unverified.message();
  EXPECT_TRUE(run(**unverified).ok());
  EXPECT_EQ(*wrong, 3);
}

TEST_F(UntunedPlan, AKernelThatNeedsMoreWorkspaceIsNoReplacement) {
  add("onednn", loses_eight);
  const auto greedy = add("tiled", right_gemm, 4096);
  const auto right = add("skinny", right_gemm);
  const PlanRef guarded = plan(true);
  ASSERT_TRUE(run(*guarded).ok());
  EXPECT_EQ(*greedy, 0);
  EXPECT_EQ(*right, 1);
}

TEST_F(UntunedPlan, TheContextsOptionAndTheVariableSwitchItOn) {
  for (const bool by_option : {true, false}) {
    auto device = std::make_unique<FakeDevice>();
    device->change_info().backend = "cpu";
    fake_ = device.get();
    const auto wrong = add("onednn", loses_eight);
    const auto right = add("tiled", right_gemm);
    ContextOptions options;
    Environment environment;
    (by_option ? options.verify_untuned : environment.verify_untuned) = true;
    Context context(options, environment, std::move(device));
    auto made = context.plan(problem_);
    ASSERT_TRUE(made.ok()) << made.message();
    ASSERT_TRUE(run(**made).ok());
    ASSERT_TRUE(run(**made).ok());
    EXPECT_EQ(*wrong, 1);
    EXPECT_EQ(*right, 2);
  }
}

/// Its kernel was verified with another number of threads.
TEST_F(UntunedPlan, ARowOfFewerThreadsIsVerifiedInItsFirstRun) {
  const auto wrong = add("skinny", loses_eight);
  const auto right = add("onednn", right_gemm);
  TunedEntry row;
  row.gfx = fake_->change_info().gfx = "x86-fake";
  fake_->change_info().cu_num = 2;
  row.cu_num = 1;
  row.problem = problem_;
  row.libtype = "skinny";
  row.kernel_name = "skinny_r1";
  row.us = 10;
  test::TemporaryFolder folder;
  const TableSet tables = load_table_set({test::table(test::write_rows(folder, "t.csv", {row}))});
  auto made = make_plan(device_, tables, problem_, {});
  ASSERT_TRUE(made.ok()) << made.message();
  EXPECT_EQ((*made)->account().match, Match::fewer_threads) << (*made)->account().rule;
  for (int call = 0; call < 3; ++call) ASSERT_TRUE(run(**made).ok());
  EXPECT_EQ(*wrong, 1);
  EXPECT_EQ(*right, 3);
}

TEST_F(UntunedPlan, WithoutARightKernelTheCallFails) {
  add("onednn", loses_eight);
  add("tiled", loses_eight);
  const PlanRef guarded = plan(true);
  const Status status = run(*guarded);
  EXPECT_EQ(status.code(), StatusCode::internal);
  EXPECT_THAT(status.message(), HasSubstr("tiled_r1 is wrong"));
}

}  // namespace
}  // namespace gemmtune
