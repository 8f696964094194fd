// Plans on a kernel that the caller names, on the machine's own CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "gemmtune/gemmtune.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class NamedPlan : public ::testing::Test {
 protected:
  NamedPlan() : context_(open()), x_(m * k), w_(n * k), y_(m * n) {
    for (std::size_t i = 0; i < x_.size(); ++i) x_[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < w_.size(); ++i) w_[i] = static_cast<float>(i % 5) - 2;
    problem_.x_type = Type::f32;
    problem_.m = m;
    problem_.n = n;
    problem_.k = k;
  }
  static Context open() {
    Options options;
    options.backend = "cpu";
    options.threads = 1;
    options.config_folder = ::testing::TempDir() + "no_tuned_files";
    auto opened = Context::open(options);
    EXPECT_TRUE(opened.ok()) << opened.status().message();
    return std::move(*opened);
  }
  std::string kernel_of(const std::string& named) {
    const auto plan = context_.plan_named(named, problem_);
    return plan.ok() ? std::string(plan->info().kernel_name) : plan.status().message();
  }
  /// The status of a plan that cannot be made.
  gemmtune_status refusal_of(const std::string& named) {
    const auto plan = context_.plan_named(named, problem_);
    EXPECT_FALSE(plan.ok()) << named;
    sentence_ = plan.status().message();
    return plan.status().code();
  }
  void expect_right(const std::string& named) {
    const auto plan = context_.plan_named(named, problem_);
    ASSERT_TRUE(plan.ok()) << plan.status().message();
    std::vector<char> memory(plan->info().workspace_bytes + 64);
    auto* workspace = memory.data() + (64 - reinterpret_cast<std::uintptr_t>(memory.data()) % 64);
    Operands operands;
    operands.x = x_.data();
    operands.w = w_.data();
    operands.y = y_.data();
    const Status ran = plan->run(operands, workspace);
    ASSERT_TRUE(ran.ok()) << ran.message();
    for (int i = 0; i < m; ++i) {
      for (int j = 0; j < n; ++j) {
        float sum = 0;
        for (int l = 0; l < k; ++l) sum += x_[std::size_t(i * k + l)] * w_[std::size_t(j * k + l)];
        ASSERT_EQ(y_[std::size_t(i * n + j)], sum) << named << ' ' << i << ' ' << j;
      }
    }
  }

  static constexpr int m = 3, n = 40, k = 50;
  Context context_;
  Problem problem_;
  std::vector<float> x_, w_, y_;
  std::string sentence_;
};

TEST_F(NamedPlan, AFamilyMeansItsDefault) {
  const std::string name = kernel_of("tiled");
  EXPECT_THAT(name, StartsWith("tiled_r1_"));
  EXPECT_EQ(kernel_of(name), name);
  expect_right("tiled");
  expect_right("reference");
}

TEST_F(NamedPlan, AnIndexMeansThePlaceInTheSpace) {
  const std::string first = kernel_of("tiled:0");
  const std::string second = kernel_of("tiled:1");
  EXPECT_THAT(first, StartsWith("tiled_r1_"));
  EXPECT_THAT(second, StartsWith("tiled_r1_"));
  EXPECT_NE(first, second);
  expect_right("tiled:1");
  EXPECT_EQ(refusal_of("tiled:99999"), GEMMTUNE_NOT_FOUND);
  EXPECT_THAT(sentence_, HasSubstr("tiled has"));
  EXPECT_EQ(refusal_of("tiled:-1"), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(refusal_of("tiled:two"), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(sentence_, HasSubstr("index 'two', expected a number from 0"));
}

TEST_F(NamedPlan, UnknownNamesAreRefusedWithTheFamilies) {
  EXPECT_EQ(refusal_of("titled"), GEMMTUNE_NOT_FOUND);
  EXPECT_THAT(sentence_, HasSubstr("kernel 'titled', expected a kernelName, a family or family:index"));
  EXPECT_THAT(sentence_, HasSubstr("tiled"));
  EXPECT_NE(refusal_of("tiled_r99_mr4"), GEMMTUNE_OK);
  EXPECT_NE(refusal_of(""), GEMMTUNE_OK);
}

TEST_F(NamedPlan, AFamilyThatDoesNotTakeTheProblemSaysWhy) {
  EXPECT_EQ(refusal_of("batched"), GEMMTUNE_UNSUPPORTED);
  EXPECT_THAT(sentence_, HasSubstr("batched"));
}

TEST_F(NamedPlan, TheRuleAndTheCountersSaySo) {
  const auto plan = context_.plan_named("reference", problem_);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(plan->info().rule, "named by the caller");
  EXPECT_EQ(context_.counters().untuned, 0U);
  EXPECT_EQ(context_.counters().plans_made, 0U);
}

TEST_F(NamedPlan, NullsAreRefused) {
  gemmtune_plan* plan = nullptr;
  EXPECT_EQ(gemmtune_plan_create_named(nullptr, nullptr, "tiled", 0, &plan), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_plan_create_named(nullptr, nullptr, nullptr, 0, &plan), GEMMTUNE_NULL_POINTER);
}

}  // namespace
}  // namespace gemmtune
