// The C functions over the fake device: a context with one table, and operands for its plans.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <iterator>
#include <memory>

#include "capi/c_support.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune::test {

struct Arrays {
  alignas(64) float x[8 * 64] = {};
  alignas(64) float w[64 * 64] = {};
  alignas(64) float bias[64] = {};
  alignas(64) float y[8 * 64] = {};
  alignas(64) unsigned char workspace[256] = {};
};

class CInterface : public ::testing::Test {
 protected:
  CInterface() {
    for (std::size_t i = 0; i < std::size(arrays_.x); ++i) arrays_.x[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < std::size(arrays_.w); ++i) arrays_.w[i] = static_cast<float>(i % 5) - 2;
    for (std::size_t i = 0; i < std::size(arrays_.bias); ++i) arrays_.bias[i] = static_cast<float>(i);
    for (float& value : arrays_.y) value = untouched;
    // alpha has a workspace.
    Problem tuned = f32(3);
    Problem tuned_bias = tuned;
    tuned_bias.bias = true;
    ContextOptions options;
    options.tuned_files[Operation::a16w16] = write_rows(
        folder_, "t.csv",
        {row(tuned, "alpha_r1_a1"), row(tuned_bias, "alpha_r1_a1"), row(packed(f32(16)), "alpha_r1_a1"),
         row(packed(f32(32)), "alpha_r1_a2"), row(packed(f32(1)), "gamma_r1_a1")});
    handle_.context = std::make_unique<Context>(options, Environment(), std::make_unique<FakeDevice>());
  }
  ~CInterface() override { gemmtune_plan_release(plan_); }

  static Problem f32(std::int64_t m) {
    Problem problem = small_problem(m, n, k);
    problem.x_type = problem.w_type = problem.y_type = DataType::f32;
    return problem;
  }
  static gemmtune_problem problem(std::int64_t m, bool bias = false) {
    gemmtune_problem asked{};
    asked.size = sizeof asked;
    asked.x_type = GEMMTUNE_F32;
    asked.m = m;
    asked.n = n;
    asked.k = k;
    asked.bias = bias;
    return asked;
  }
  gemmtune_operands operands() {
    gemmtune_operands given{};
    given.size = sizeof given;
    given.x = arrays_.x;
    given.w = arrays_.w;
    given.bias = arrays_.bias;
    given.y = arrays_.y;
    return given;
  }
  gemmtune_plan* make(const gemmtune_problem& asked) {
    gemmtune_plan_release(plan_);
    plan_ = nullptr;
    EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan_), GEMMTUNE_OK) << gemmtune_last_error();
    return plan_;
  }
  gemmtune_status run(const gemmtune_operands& given) {
    return gemmtune_plan_run(plan_, &given, arrays_.workspace, nullptr);
  }
  void expect_result(std::int64_t m, bool bias, std::int64_t ldx = k, std::int64_t ldy = n) const {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        float sum = bias ? arrays_.bias[j] : 0;
        for (std::int64_t l = 0; l < k; ++l) sum += arrays_.x[i * ldx + l] * arrays_.w[j * k + l];
        ASSERT_EQ(arrays_.y[i * ldy + j], sum) << i << ' ' << j;
      }
      for (std::int64_t j = n; j < ldy; ++j) ASSERT_EQ(arrays_.y[i * ldy + j], untouched);
    }
  }

  static constexpr std::int64_t n = 20;
  static constexpr std::int64_t k = 24;
  static constexpr float untouched = -77;
  TemporaryFolder folder_;
  gemmtune_context handle_;
  gemmtune_plan* plan_ = nullptr;
  Arrays arrays_;
};

}  // namespace gemmtune::test
