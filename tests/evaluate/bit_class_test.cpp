// Bit classes of kernels, and kernels whose bits of a row depend on what they must not depend on.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "evaluate/in_process/in_process_evaluator.h"
#include "support/elements.h"
#include "support/fake_device.h"
#include "verify/bit_rows.h"

namespace gemmtune::bit_class_test {
namespace {

using testing::FakeDevice;
using testing::FakeRun;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::load_element;
using testing::right_gemm;
using ::testing::StartsWith;
using testing::store;
using testing::store_element;

Problem problem_of(std::int64_t m, DataType y = DataType::bf16) {
  Problem problem;
  problem.m = m;
  problem.n = 48;
  problem.k = 331;
  problem.y_type = y;
  return problem;
}

float product(const Problem& problem, const Operands& operands, std::int64_t row, std::int64_t column,
              std::int64_t k) {
  return load_element(problem.x_type, operands.x, row * operands.ldx + k) *
         load_element(problem.w_type, operands.w, column * problem.k + k);
}

float sum_of(const Problem& problem, const Operands& operands, std::int64_t row, std::int64_t column,
             std::int64_t from, std::int64_t to, float start = 0) {
  for (std::int64_t k = from; k < to; ++k) start += product(problem, operands, row, column, k);
  return start;
}

using Sum = float (*)(const Problem&, const Operands&, std::int64_t row, std::int64_t column);

FakeRun run_of(Sum sum) {
  return [sum](const Problem& problem, const Operands& operands, void*) {
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column)
        store_element(problem, operands, row, column, sum(problem, operands, row, column));
  };
}

float in_parts(const Problem& problem, const Operands& operands, std::int64_t row, std::int64_t column,
               std::int64_t parts) {
  float sum = 0;
  for (std::int64_t part = 0; part < parts; ++part)
    sum += sum_of(problem, operands, row, column, part * problem.k / parts, (part + 1) * problem.k / parts);
  return sum;
}

float in_two_parts(const Problem& problem, const Operands& operands, std::int64_t row, std::int64_t column) {
  return in_parts(problem, operands, row, column, 2);
}

float split_by_m(const Problem& problem, const Operands& operands, std::int64_t row, std::int64_t column) {
  return in_parts(problem, operands, row, column, problem.m < 8 ? 4 : 1);
}

/// Rows behind the last whole tile of 8 go through another loop.
float other_tail(const Problem& problem, const Operands& operands, std::int64_t row, std::int64_t column) {
  const bool is_tail = row >= problem.m / 8 * 8;
  return in_parts(problem, operands, row, column, is_tail ? 3 : 1);
}

/// The accumulator still holds the row before, which is taken away at the end.
float with_neighbour(const Problem& problem, const Operands& operands, std::int64_t row,
                     std::int64_t column) {
  if (row % 2 == 0) return sum_of(problem, operands, row, column, 0, problem.k);
  const float other = sum_of(problem, operands, row - 1, column, 0, problem.k);
  return sum_of(problem, operands, row, column, 0, problem.k, other) - other;
}

Outcome outcome_of(const Problem& problem, FakeRun run) {
  FakeDevice device;
  const Candidate candidate = device.add({.name = "kernel", .run = std::move(run)});
  InProcessOptions options;
  options.bit_classes = true;
  InProcessEvaluator evaluator(device, options);
  const auto result = evaluator.finals(problem, std::vector{candidate}, 0);
  EXPECT_TRUE(result.ok()) << result.message();
  if (!result.ok()) return {};
  EXPECT_TRUE(result->times.empty());
  EXPECT_EQ(result->outcomes[0].kind, OutcomeKind::ok) << result->outcomes[0].reason;
  return result->outcomes[0];
}

TEST(BitClass, one_order_of_sums_is_one_class_at_every_m) {
  const std::string first = outcome_of(problem_of(1), right_gemm).bits.id;
  EXPECT_THAT(first, StartsWith("f32-"));
  for (const std::int64_t m : {2, 5, 6, 7, 12, 33}) {
    const BitClass bits = outcome_of(problem_of(m), right_gemm).bits;
    EXPECT_EQ(bits.id, first) << "M = " << m << ": " << bits.reason;
  }
}

TEST(BitClass, another_order_of_sums_is_another_class) {
  EXPECT_NE(outcome_of(problem_of(7), run_of(in_two_parts)).bits.id,
            outcome_of(problem_of(7), right_gemm).bits.id);
}

TEST(BitClass, a_family_without_float32_outputs_is_told_by_its_own_type) {
  const auto class_of = [](FakeRun run) {
    FakeDevice device;
    const Candidate candidate =
        device.add({.name = "kernel", .run = std::move(run), .accepts = [](const Problem& problem) -> Status {
                      if (problem.y_type == DataType::bf16) return {};
                      return Status::unsupported("types: only bf16");
                    }});
    InProcessOptions options;
    options.bit_classes = true;
    InProcessEvaluator evaluator(device, options);
    return evaluator.check_neighbour_m(problem_of(16), candidate, 16).bits;
  };
  const BitClass chain = class_of(right_gemm);
  EXPECT_THAT(chain.id, StartsWith("bf16-"));
  EXPECT_NE(class_of(run_of(in_two_parts)).id, chain.id);
}

TEST(BitClass, is_found_only_if_it_is_asked_for) {
  FakeDevice device;
  const Candidate candidate = device.add({.name = "kernel"});
  InProcessEvaluator evaluator(device, InProcessOptions());
  const auto result = evaluator.finals(problem_of(4), std::vector{candidate}, 0);
  ASSERT_TRUE(result.ok()) << result.message();
  EXPECT_EQ(result->outcomes[0].bits, BitClass());
}

TEST(BitClass, is_found_where_no_rounds_are_asked_for) {
  FakeDevice device;
  const std::vector candidates{device.add({.name = "kernel"})};
  InProcessOptions options;
  options.bit_classes = true;
  InProcessEvaluator evaluator(device, options);
  const auto timed = evaluator.finals(problem_of(4), candidates, 1);
  ASSERT_TRUE(timed.ok()) << timed.message();
  EXPECT_EQ(timed->outcomes[0].bits, BitClass());
  const auto verified = evaluator.finals(problem_of(4), candidates, 0);
  ASSERT_TRUE(verified.ok()) << verified.message();
  EXPECT_THAT(verified->outcomes[0].bits.id, StartsWith("f32-"));
}

TEST(BitClass, candidates_that_run_side_by_side_have_classes_of_their_own) {
  FakeDevice device;
  const auto only_bf16 = [](const Problem& problem) -> Status {
    return problem.y_type == DataType::bf16 ? Status() : Status::unsupported("types: only bf16");
  };
  const std::vector candidates{
      device.add({.name = "chain", .run = right_gemm}),
      device.add({.name = "by_m", .run = run_of(split_by_m)}),
      device.add({.name = "narrow", .run = right_gemm, .accepts = only_bf16}),
      device.add({.name = "parts", .run = run_of(in_two_parts), .workspace_bytes = 64}),
      device.add({.name = "also_chain", .run = right_gemm})};
  InProcessOptions options;
  options.bit_classes = true;
  InProcessEvaluator evaluator(device, options);
  const auto result = evaluator.finals(problem_of(9), candidates, 0);
  ASSERT_TRUE(result.ok()) << result.message();
  const auto id = [&](std::size_t i) { return result->outcomes[i].bits.id; };
  EXPECT_EQ(id(0), outcome_of(problem_of(9), right_gemm).bits.id);
  EXPECT_EQ(id(4), id(0));
  EXPECT_THAT(id(1), IsEmpty());
  EXPECT_THAT(result->outcomes[1].bits.reason, StartsWith(bit_phrase::rows));
  EXPECT_THAT(id(2), StartsWith("bf16-"));
  EXPECT_EQ(id(3), outcome_of(problem_of(9), run_of(in_two_parts)).bits.id);
}

TEST(BitClass, a_split_that_depends_on_m_has_none) {
  const BitClass bits = outcome_of(problem_of(33), run_of(split_by_m)).bits;
  EXPECT_THAT(bits.id, IsEmpty());
  EXPECT_THAT(bits.reason, StartsWith(bit_phrase::rows));
  EXPECT_THAT(bits.reason, HasSubstr("M = 1, row 0, element "));
  EXPECT_THAT(bits.reason, HasSubstr(" of M = 33 (y f32)"));
}

TEST(BitClass, a_tail_of_rows_with_another_sum_has_none) {
  const BitClass bits = outcome_of(problem_of(35), run_of(other_tail)).bits;
  EXPECT_THAT(bits.id, IsEmpty());
  EXPECT_THAT(bits.reason, StartsWith(bit_phrase::position));
  EXPECT_THAT(bits.reason, HasSubstr("M = 35, row 3"));
}

TEST(BitClass, a_neighbours_row_in_the_accumulator_has_none) {
  for (const std::int64_t m : {2, 33}) {
    const BitClass bits = outcome_of(problem_of(m), run_of(with_neighbour)).bits;
    EXPECT_THAT(bits.id, IsEmpty());
    EXPECT_THAT(bits.reason, StartsWith(bit_phrase::neighbours)) << "M = " << m;
    EXPECT_THAT(bits.reason, HasSubstr("row 1, element ")) << "M = " << m;
  }
}

TEST(BitClass, a_kernel_that_differs_from_run_to_run_has_none) {
  const FakeRun run = [runs = 0](const Problem& problem, const Operands& operands, void*) mutable {
    run_of(++runs % 3 == 0 ? split_by_m : in_two_parts)(problem, operands, nullptr);
  };
  const BitClass bits = outcome_of(problem_of(4), run).bits;
  EXPECT_THAT(bits.id, IsEmpty());
  EXPECT_THAT(bits.reason, StartsWith(bit_phrase::runs));
}

TEST(BitRows, each_probe_row_has_other_neighbours_and_another_position) {
  for (std::int64_t m = 1; m <= 40; ++m) {
    std::vector<std::vector<std::int64_t>> positions(probe_rows);
    for (const RowPlacement& placement : row_placements(m)) {
      ASSERT_EQ(std::ssize(placement.rows), m);
      for (std::int64_t i = 0; i < m; ++i) {
        const std::int32_t row = placement.rows[static_cast<std::size_t>(i)];
        ASSERT_GE(row, 0);
        ASSERT_LT(row, probe_rows + neighbour_rows);
        if (row < probe_rows) positions[static_cast<std::size_t>(row)].push_back(i);
      }
    }
    for (std::vector<std::int64_t>& of_row : positions) {
      ASSERT_FALSE(of_row.empty()) << "M = " << m;
      if (m == 1) continue;
      const auto first = std::ranges::count(of_row, of_row.front());
      EXPECT_GE(first, 2) << "M = " << m << ": no other neighbours";
      EXPECT_LT(first, std::ssize(of_row)) << "M = " << m << ": no other position";
    }
  }
}

TEST(BitRows, column_major_rows_are_those_of_row_major_ones) {
  Problem problem = problem_of(3);
  const auto plain = bit_operands(problem, 0, 1, 1);
  problem.x_order = Order::column_major;
  auto other = bit_operands(problem, 0, 1, 1);
  ASSERT_TRUE(plain.ok() && other.ok());
  constexpr std::int64_t rows = probe_rows + neighbour_rows;
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t k = 0; k < problem.k; ++k)
      store(problem.x_type, other->x.data(), k * rows + row,
            load_element(problem.x_type, plain->x.data(), row * problem.k + k));
  const std::vector<std::int32_t> chosen = {5, 0, 8};
  const HostOperands columns = placed_rows(problem, *other, chosen);
  for (std::size_t i = 0; i < chosen.size(); ++i)
    for (std::int64_t k = 0; k < problem.k; ++k)
      ASSERT_EQ(load_element(problem.x_type, columns.x.data(), k * 3 + static_cast<std::int64_t>(i)),
                load_element(problem.x_type, plain->x.data(), chosen[i] * problem.k + k));
}

}  // namespace
}  // namespace gemmtune::bit_class_test
