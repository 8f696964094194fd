// Contexts of the C interface end with their threads.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstddef>
#include <vector>

#include "support/c_problem.h"
#include "support/cpu_context.h"
#include "support/processes.h"

namespace gemmtune::context_threads_test {
namespace {

TEST(ContextThreads, EndWithTheContext) {
  Problem wanted = default_problem(Operation::a16w16);
  wanted.m = 64;
  wanted.n = wanted.k = 256;
  set_types(wanted, DataType::f32);
  wanted.y_type = DataType::f32;
  const test::CProblem problem(wanted);
  const std::vector<float> x(static_cast<std::size_t>(64 * 256), 1);
  const std::vector<float> w(static_cast<std::size_t>(256 * 256), 1);
  std::vector<float> y(static_cast<std::size_t>(64 * 256));
  gemmtune_operands operands{};
  operands.size = sizeof operands;
  operands.x = x.data();
  operands.w = w.data();
  operands.y = y.data();
  operands.ldx = operands.ldy = 256;
  std::size_t after_first = 0;
  for (int turn = 0; turn < 300; ++turn) {
    gemmtune_context* context = test::open_cpu_context();
    gemmtune_plan* plan = nullptr;
    ASSERT_EQ(gemmtune_plan_create(context, problem.get(), &plan), GEMMTUNE_OK) << gemmtune_last_error();
    if (turn % 50 == 0) {
      ASSERT_EQ(gemmtune_gemm(context, problem.get(), &operands, nullptr), GEMMTUNE_OK)
          << gemmtune_last_error();
      EXPECT_EQ(y[0], 256);
    }
    gemmtune_context_destroy(context);
    gemmtune_plan_release(plan);
    if (turn == 0) after_first = test::threads_of_this_process();  // with those of vendor libraries
  }
  EXPECT_LE(test::threads_of_this_process(), after_first + 1);
}

}  // namespace
}  // namespace gemmtune::context_threads_test
