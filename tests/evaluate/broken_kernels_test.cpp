// Kernels that are wrong in the ways kernels are wrong. Each must be found by verification
// (docs/correctness.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cmath>
#include <csignal>
#include <limits>
#include <map>

#include "evaluate/in_process/in_process_evaluator.h"
#include "support/elements.h"
#include "support/fake_device.h"
#include "verify/output_check.h"

namespace gemmtune {
namespace {

using testing::FakeDevice;
using testing::FakeFamilyOptions;
using testing::FakeRun;
using testing::load_element;
using testing::right_gemm;
using ::testing::StartsWith;
using testing::store;
using testing::store_element;

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, bool bias = false) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.bias = bias;
  return problem;
}

InProcessOptions options() {
  InProcessOptions options;
  options.policy.warmup = 1;
  return options;
}

float dot(const Problem& problem, const Operands& operands, std::int64_t row, std::int64_t column,
          std::int64_t from, std::int64_t to) {
  float sum = 0;
  for (std::int64_t k = from; k < to; ++k)
    sum += load_element(problem.x_type, operands.x, row * operands.ldx + k) *
           load_element(problem.w_type, operands.w, column * problem.k + k);
  return sum;
}

// The outcome of quick and full verification.
Outcome verify(const Problem& problem, FakeRun run, std::size_t workspace_bytes = 0) {
  FakeDevice device;
  const Candidate candidate =
      device.add({.name = "broken", .run = std::move(run), .workspace_bytes = workspace_bytes});
  InProcessEvaluator evaluator(device, options());
  const auto result = evaluator.finals(problem, std::vector{candidate}, 1);
  EXPECT_TRUE(result.ok()) << result.message();
  return result.ok() ? result->outcomes[0] : Outcome{};
}

void expect_wrong(const Outcome& outcome, const char* reason) {
  EXPECT_EQ(outcome.kind, OutcomeKind::wrong) << outcome.reason;
  EXPECT_THAT(outcome.reason, StartsWith(reason));
  EXPECT_TRUE(outcome.microseconds.empty()) << "a wrong kernel has no times";
}

constexpr DataType types[] = {DataType::bf16, DataType::f16, DataType::f32};

TEST(BrokenKernels, the_right_one_passes) {
  for (const DataType type : types)
    for (const std::int64_t n : {1, 33, 100}) {
      Problem problem = problem_of(5, n, 65, true);
      problem.x_type = problem.w_type = problem.y_type = type;
      const Outcome outcome = verify(problem, right_gemm);
      EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
      EXPECT_TRUE(outcome.deterministic);
      EXPECT_EQ(outcome.err_ratio, 0);
      EXPECT_EQ(outcome.microseconds.size(), 1U);
    }
}

/// An fp8 instruction of Hopper's tensor core: the accumulator and 32 products are aligned to the largest of them
/// and cut below 13 fraction bits.
float tensor_core_sum(float accumulator, std::span<const float> products) {
  float largest = std::fabs(accumulator);
  for (const float product : products) largest = std::max(largest, std::fabs(product));
  if (largest == 0) return 0;
  const float unit = std::ldexp(1.0F, std::ilogb(largest) - 13);
  float sum = std::trunc(accumulator / unit);
  for (const float product : products) sum += std::trunc(product / unit);
  return sum * unit;
}

/// fp8 with a scale each; the tensor core accumulates over `chain` elements of k, then float32 does.
FakeRun tensor_core_gemm(std::int64_t chain) {
  return [chain](const Problem& problem, const Operands& operands, void*) {
    std::array<float, 32> products{};
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column) {
        float sum = 0;
        float partial = 0;
        for (std::int64_t k = 0; k < problem.k; k += 32) {
          for (std::int64_t i = 0; i < 32; ++i)
            products[static_cast<std::size_t>(i)] =
                load_element(problem.x_type, operands.x, row * operands.ldx + k + i) *
                load_element(problem.w_type, operands.w, column * problem.k + k + i);
          partial = tensor_core_sum(partial, products);
          if ((k + 32) % chain != 0) continue;
          sum += partial;
          partial = 0;
        }
        store_element(problem, operands, row, column, sum + partial);
      }
  };
}

Outcome verify_tensor_core(std::int64_t k, std::int64_t chain, Accuracy accuracy) {
  Problem problem = problem_of(4, 24, k);
  problem.x_type = problem.w_type = DataType::f8_e4m3fn;
  problem.scale_ab = true;
  FakeDevice device;
  const Candidate candidate =
      device.add({.name = "tensor_core", .run = tensor_core_gemm(chain), .accuracy = accuracy});
  InProcessEvaluator evaluator(device, options());
  const auto result = evaluator.finals(problem, std::vector{candidate}, 1);
  EXPECT_TRUE(result.ok()) << result.message();
  return result.ok() ? result->outcomes[0] : Outcome{};
}

TEST(BrokenKernels, tensor_core_sums_judged_as_fp32) {
  for (const std::int64_t k : {1024, 2048, 7168, 16384}) {
    const Outcome outcome = verify_tensor_core(k, k, Accuracy::fp32);
    expect_wrong(outcome, "operands of one sign, class fp32: an element");
    EXPECT_GT(outcome.error.one_sign, 0.008) << k;
  }
}

TEST(BrokenKernels, tensor_core_sums_are_right_in_their_class) {
  for (const std::int64_t k : {64, 512, 2048, 7168, 16384}) {
    const Outcome fast = verify_tensor_core(k, k, Accuracy::tensor_core);
    EXPECT_EQ(fast.kind, OutcomeKind::ok) << k << ": " << fast.reason;
    const Outcome promoted = verify_tensor_core(k, 128, Accuracy::fp32);
    EXPECT_EQ(promoted.kind, OutcomeKind::ok) << k << ": " << promoted.reason;
    EXPECT_LT(promoted.error.one_sign, 0.004) << k;
    EXPECT_GT(promoted.error.rms, 0) << k;
    EXPECT_LT(promoted.error.rms, 0.004) << k;
    EXPECT_GE(promoted.error.max, promoted.error.rms) << k;
  }
}

TEST(BrokenKernels, unwritten_tile) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n / 16 * 16; ++column)
        store_element(problem, operands, row, column, dot(problem, operands, row, column, 0, problem.k));
  };
  expect_wrong(verify(problem_of(4, 40, 64), run), check_phrase::unwritten);
}

TEST(BrokenKernels, k_short_by_one_block) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column)
        store_element(problem, operands, row, column, dot(problem, operands, row, column, 0, problem.k - 32));
  };
  for (const DataType type : types)
    for (const std::int64_t k : {64, 1000, 4096, 16384}) {
      Problem problem = problem_of(4, 48, k);
      problem.x_type = problem.w_type = problem.y_type = type;
      expect_wrong(verify(problem, run), "");
    }
}

// One step of 16384 left out: 0.8 % of the result's norm, at the edge of what bf16 rounding hides.
TEST(BrokenKernels, k_short_by_one) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column)
        store_element(problem, operands, row, column, dot(problem, operands, row, column, 0, problem.k - 1));
  };
  for (const DataType type : types) {
    Problem problem = problem_of(2, 32, 16384);
    problem.x_type = problem.w_type = problem.y_type = type;
    expect_wrong(verify(problem, run), "");
  }
}

// Split-K whose splits end before K does: the last r elements are left out, for every r below a block of 64.
TEST(BrokenKernels, loses_the_last_r_of_k) {
  for (const DataType type : types)
    for (std::int64_t lost = 1; lost < 64; lost += type == DataType::bf16 ? 1 : 7) {
      const auto run = [lost](const Problem& problem, const Operands& operands, void*) {
        for (std::int64_t row = 0; row < problem.m; ++row)
          for (std::int64_t column = 0; column < problem.n; ++column)
            store_element(problem, operands, row, column,
                          dot(problem, operands, row, column, 0, problem.k - lost));
      };
      Problem problem = problem_of(1, 8, 2048 + lost);
      problem.x_type = problem.w_type = problem.y_type = type;
      SCOPED_TRACE(print(problem));
      expect_wrong(verify(problem, run), "");
    }
}

// The sizes at which a library's first choice does it: √(8 / 11528) is 2.6 % of the result's norm.
TEST(BrokenKernels, loses_the_last_eight_of_a_deep_k) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column)
        store_element(problem, operands, row, column, dot(problem, operands, row, column, 0, problem.k - 8));
  };
  for (const std::int64_t k : {11528, 25608, 32776, 65544})
    for (const DataType type : {DataType::bf16, DataType::f16}) {
      Problem problem = problem_of(1, 16, k);
      problem.x_type = problem.w_type = problem.y_type = type;
      SCOPED_TRACE(print(problem));
      expect_wrong(verify(problem, run), "");
    }
}

TEST(BrokenKernels, store_past_the_end) {
  const auto run = [](const Problem& problem, const Operands& operands, void* workspace) {
    right_gemm(problem, operands, workspace);
    store(problem.y_type, operands.y, (problem.m - 1) * operands.ldy + problem.n, 1);
  };
  expect_wrong(verify(problem_of(3, 17, 32), run), "wrote outside of y");
}

TEST(BrokenKernels, store_before_the_beginning) {
  const auto run = [](const Problem& problem, const Operands& operands, void* workspace) {
    right_gemm(problem, operands, workspace);
    store(problem.y_type, operands.y, -1, 1);
  };
  expect_wrong(verify(problem_of(3, 17, 32), run), "wrote outside of y");
}

TEST(BrokenKernels, store_past_the_workspace) {
  const auto run = [](const Problem& problem, const Operands& operands, void* workspace) {
    right_gemm(problem, operands, workspace);
    static_cast<float*>(workspace)[256] = 1;
  };
  expect_wrong(verify(problem_of(3, 17, 32), run, 1024), "wrote outside of its workspace");
}

// A row's tail, written by the next row afterwards where rows are dense.
TEST(BrokenKernels, store_between_the_rows) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row) {
      const bool last = row + 1 == problem.m;
      for (std::int64_t column = 0; column < problem.n; ++column)
        store_element(problem, operands, row, column, dot(problem, operands, row, column, 0, problem.k));
      if (!last) store(problem.y_type, operands.y, row * operands.ldy + problem.n, 0);
    }
  };
  expect_wrong(verify(problem_of(3, 17, 32), run), "wrote between the rows of y");
}

/// The outcome of full verification with rows an odd number of elements apart.
Outcome verify_odd_strides(const Problem& problem, FakeRun run) {
  FakeDevice device;
  const Candidate candidate = device.add({.name = "broken", .run = std::move(run)});
  InProcessOptions odd = options();
  odd.odd_strides = true;
  InProcessEvaluator evaluator(device, odd);
  return evaluator.check_neighbour_m(problem, candidate, problem.m);
}

// Rows of x are taken from the next even element on: right for dense rows of an even K.
TEST(BrokenKernels, odd_leading_dimension_of_x) {
  const auto run = [](const Problem& problem, Operands operands, void* workspace) {
    operands.ldx -= operands.ldx % 2;
    right_gemm(problem, operands, workspace);
  };
  const Problem problem = problem_of(3, 16, 64);
  EXPECT_EQ(verify(problem, run).kind, OutcomeKind::ok);
  expect_wrong(verify_odd_strides(problem, run), "");
  EXPECT_EQ(verify_odd_strides(problem, right_gemm).kind, OutcomeKind::ok);
  EXPECT_EQ(verify_odd_strides(problem_of(2, 33, 65, true), right_gemm).kind, OutcomeKind::ok);
}

TEST(BrokenKernels, odd_leading_dimension_of_y) {
  const auto run = [](const Problem& problem, Operands operands, void* workspace) {
    operands.ldy -= operands.ldy % 2;
    right_gemm(problem, operands, workspace);
  };
  expect_wrong(verify_odd_strides(problem_of(3, 16, 64), run), "");
}

TEST(BrokenKernels, missing_bias) {
  const auto run = [](Problem problem, const Operands& operands, void* workspace) {
    problem.bias = false;
    right_gemm(problem, operands, workspace);
  };
  for (const DataType type : types) {
    Problem problem = problem_of(4, 40, 64, true);
    problem.y_type = type;
    expect_wrong(verify(problem, run), "");
  }
}

// Both scales are scalars, so that their product is the same in any order; taking one for the other is not.
TEST(BrokenKernels, swapped_scales) {
  const auto run = [](const Problem& problem, Operands operands, void* workspace) {
    operands.w_scale = operands.x_scale;
    right_gemm(problem, operands, workspace);
  };
  Problem problem = problem_of(4, 40, 64);
  problem.scale_ab = true;
  expect_wrong(verify(problem, run), "");
  EXPECT_EQ(verify(problem, right_gemm).kind, OutcomeKind::ok);
}

// Each split rounds its part to bf16 and the parts are added: two to three times the error of one rounding,
// which the norms let pass.
TEST(BrokenKernels, bf16_partial_sums_in_split_k) {
  for (const int splits : {2, 4, 8})
    for (const std::int64_t k : {256, 4096}) {
      const auto run = [splits](const Problem& problem, const Operands& operands, void*) {
        for (std::int64_t row = 0; row < problem.m; ++row)
          for (std::int64_t column = 0; column < problem.n; ++column) {
            float sum = 0;
            for (int part = 0; part < splits; ++part)
              sum += bf16_to_f32(f32_to_bf16(dot(problem, operands, row, column, part * problem.k / splits,
                                                 (part + 1) * problem.k / splits)));
            store_element(problem, operands, row, column, sum);
          }
      };
      expect_wrong(verify(problem_of(8, 64, k), run), "");
    }
}

TEST(BrokenKernels, truncated_instead_of_rounded) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column) {
        const float sum = dot(problem, operands, row, column, 0, problem.k);
        store(problem.y_type, operands.y, row * operands.ldy + column,
              std::bit_cast<float>(std::bit_cast<std::uint32_t>(sum) & 0xffff0000U));
      }
  };
  expect_wrong(verify(problem_of(8, 64, 256), run), "");
}

TEST(BrokenKernels, bf16_operands_in_a_float32_problem) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column) {
        float sum = 0;
        for (std::int64_t k = 0; k < problem.k; ++k)
          sum += bf16_to_f32(f32_to_bf16(load_element(DataType::f32, operands.x, row * operands.ldx + k))) *
                 load_element(DataType::f32, operands.w, column * problem.k + k);
        store_element(problem, operands, row, column, sum);
      }
  };
  Problem problem = problem_of(8, 64, 1024);
  problem.x_type = problem.w_type = problem.y_type = DataType::f32;
  expect_wrong(verify(problem, run), "");
}

// Two halves of k add to the same output; sometimes one of the additions is lost.
TEST(BrokenKernels, race_that_loses_an_addition) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  const auto run = [calls](const Problem& problem, const Operands& operands, void*) {
    const int call = ++*calls;
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column) {
        const bool lost = call % 5 == 0 && row == 1 && column < 8;  // not in every run
        const std::int64_t to = lost ? problem.k / 2 : problem.k;
        store_element(problem, operands, row, column, dot(problem, operands, row, column, 0, to));
      }
  };
  expect_wrong(verify(problem_of(4, 40, 64), run), "");
}

// The order of the additions depends on who comes first: right, but not the same twice.
TEST(BrokenKernels, race_in_the_order_of_additions) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  const auto run = [calls](const Problem& problem, const Operands& operands, void*) {
    const bool swapped = ++*calls % 2 == 0;
    const std::int64_t quarter = problem.k / 4;
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column) {
        float parts[4];
        for (int i = 0; i < 4; ++i)
          parts[i] = dot(problem, operands, row, column, i * quarter, (i + 1) * quarter);
        const float sum = swapped ? ((parts[3] + parts[2]) + parts[1]) + parts[0]
                                  : ((parts[0] + parts[1]) + parts[2]) + parts[3];
        store_element(problem, operands, row, column, sum);
      }
  };
  Problem problem = problem_of(4, 40, 256);
  problem.y_type = DataType::f32;
  const Outcome outcome = verify(problem, run);
  EXPECT_EQ(outcome.kind, OutcomeKind::ok) << outcome.reason;
  EXPECT_FALSE(outcome.deterministic);
}

// Writes in the first call only: the right result lies there already.
TEST(BrokenKernels, stale_output) {
  auto calls = std::make_shared<std::atomic<int>>(0);
  const auto run = [calls](const Problem& problem, const Operands& operands, void* workspace) {
    if (++*calls == 1) right_gemm(problem, operands, workspace);
  };
  expect_wrong(verify(problem_of(4, 40, 64), run), check_phrase::unwritten);
}

// Keeps what it packed for a pointer: right until other data lie there.
TEST(BrokenKernels, stale_weights) {
  auto kept = std::make_shared<std::map<const void*, std::vector<std::byte>>>();
  const auto run = [kept](const Problem& problem, Operands operands, void* workspace) {
    auto& copy = (*kept)[operands.w];
    if (copy.empty()) {
      const auto* from = static_cast<const std::byte*>(operands.w);
      copy.assign(from, from + weight_bytes(problem));
    }
    operands.w = copy.data();
    right_gemm(problem, operands, workspace);
  };
  expect_wrong(verify(problem_of(4, 40, 64), run), "");
}

TEST(BrokenKernels, adds_to_the_output) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column) {
        const std::int64_t at = row * operands.ldy + column;
        store(
            problem.y_type, operands.y, at,
            load_element(problem.y_type, operands.y, at) + dot(problem, operands, row, column, 0, problem.k));
      }
  };
  expect_wrong(verify(problem_of(4, 40, 64), run), "");
}

TEST(BrokenKernels, nan_in_one_row) {
  const auto run = [](const Problem& problem, const Operands& operands, void* workspace) {
    right_gemm(problem, operands, workspace);
    for (std::int64_t column = 0; column < problem.n; ++column)
      store(problem.y_type, operands.y, 2 * operands.ldy + column, std::numeric_limits<float>::quiet_NaN());
  };
  expect_wrong(verify(problem_of(40, 40, 64), run), check_phrase::not_finite);
}

// One row of many has lost a block of k: less than err_ratio's 5 % of the elements, and of the norm.
TEST(BrokenKernels, one_wrong_row) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column)
        store_element(problem, operands, row, column,
                      dot(problem, operands, row, column, 0, problem.k - (row == 57 ? 8 : 0)));
  };
  for (const DataType type : types) {
    Problem problem = problem_of(100, 24, 512);
    problem.x_type = problem.w_type = problem.y_type = type;
    const Outcome outcome = verify(problem, run);
    expect_wrong(outcome, "");
  }
}

TEST(BrokenKernels, swapped_columns) {
  const auto run = [](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column)
        store_element(problem, operands, row, column < 2 ? 1 - column : column,
                      dot(problem, operands, row, column, 0, problem.k));
  };
  expect_wrong(verify(problem_of(4, 200, 64), run), "");
}

// Operands end at an unreadable page. The fault is fatal for the process, so a child of its own is verified.
TEST(BrokenKernels, read_past_the_end) {
  const auto run = [](const Problem& problem, const Operands& operands, void* workspace) {
    right_gemm(problem, operands, workspace);
    // 64 bytes on: a vector load of the tail without a mask.
    volatile float sink = load_element(problem.w_type, operands.w, problem.n * problem.k + 31);
    (void)sink;
  };
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGSEGV, SIG_DFL);
    verify(problem_of(3, 17, 33), run);
    _exit(0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status)) << "exit status " << WEXITSTATUS(status);
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
}

}  // namespace
}  // namespace gemmtune
