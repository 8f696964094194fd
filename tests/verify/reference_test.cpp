#include "verify/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "support/elements.h"

namespace gemmtune::reference_test {
namespace {

using testing::load_element;

struct Exact {
  double value = 0;
  double magnitude = 0;
};

std::vector<std::byte> scale_bytes(float scale) {
  std::vector<std::byte> bytes(sizeof(scale));
  std::memcpy(bytes.data(), &scale, sizeof(scale));
  return bytes;
}

double scale_of(const std::vector<std::byte>& bytes) {
  float scale = 1;
  if (!bytes.empty()) std::memcpy(&scale, bytes.data(), sizeof(scale));
  return static_cast<double>(scale);
}

// One element by the definition.
Exact element(const Problem& problem, const HostOperands& operands, std::int64_t row, std::int64_t column) {
  Exact exact;
  for (std::int64_t k = 0; k < problem.k; ++k) {
    const double product =
        static_cast<double>(load_element(problem.x_type, operands.x.data(), row * problem.k + k)) *
        static_cast<double>(load_element(problem.w_type, operands.w.data(), column * problem.k + k));
    exact.value += product;
    exact.magnitude += std::fabs(product);
  }
  const double scale = scale_of(operands.x_scale) * scale_of(operands.w_scale);
  exact.value *= scale;
  exact.magnitude *= scale;
  if (problem.bias) {
    const auto bias = static_cast<double>(load_element(problem.y_type, operands.bias.data(), column));
    exact.value += bias;
    exact.magnitude += std::fabs(bias);
  }
  return exact;
}

void expect_near(const Exact& exact, double value, double magnitude) {
  EXPECT_NEAR(value, exact.value, 1e-12 * exact.magnitude);
  EXPECT_NEAR(magnitude, exact.magnitude, 1e-3 * exact.magnitude);
}

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k, DataType type) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = k;
  problem.x_type = problem.w_type = problem.y_type = type;
  return problem;
}

TEST(Reference, is_the_definition_on_awkward_shapes) {
  const struct {
    std::int64_t m, n, k;
  } shapes[] = {{1, 1, 1}, {1, 3, 2}, {2, 65, 7}, {5, 63, 511}, {33, 64, 513}, {34, 129, 31}, {70, 9, 1030}};
  int variant = 0;
  for (const auto& shape : shapes)
    for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
      Problem problem = problem_of(shape.m, shape.n, shape.k, type);
      problem.bias = variant % 2 == 0;
      problem.scale_ab = variant++ % 3 == 0;
      const auto operands = make_inputs(problem, 1);
      const auto reference = compute_reference(problem, *operands, {.threads = 1 + variant % 3});
      ASSERT_TRUE(reference.ok()) << reference.message();
      EXPECT_TRUE(reference->complete);
      ASSERT_EQ(reference->values.size(), static_cast<std::size_t>(shape.m * shape.n));
      for (std::int64_t row = 0; row < shape.m; ++row)
        for (std::int64_t column = 0; column < shape.n; ++column) {
          const auto at = static_cast<std::size_t>(row * shape.n + column);
          expect_near(element(problem, *operands, row, column), reference->values[at],
                      reference->magnitudes[at]);
        }
    }
}

TEST(Reference, does_not_depend_on_the_number_of_threads) {
  const Problem problem = problem_of(9, 500, 200, DataType::bf16);
  const auto operands = make_inputs(problem, 1);
  const auto one = compute_reference(problem, *operands, {.threads = 1});
  const auto five = compute_reference(problem, *operands, {.threads = 5});
  EXPECT_EQ(one->values, five->values);
  EXPECT_EQ(one->magnitudes, five->magnitudes);
}

TEST(Reference, of_a_large_problem_is_sampled) {
  Problem problem = problem_of(41, 150, 90, DataType::bf16);
  problem.bias = true;
  const auto operands = make_inputs(problem, 1);
  const auto reference = compute_reference(
      problem, *operands, {.threads = 2, .max_complete_flops = 1, .sampled_rows = 4, .sampled_columns = 6});
  ASSERT_TRUE(reference.ok()) << reference.message();
  EXPECT_FALSE(reference->complete);
  ASSERT_EQ(reference->rows.size(), 4U);
  ASSERT_EQ(reference->columns.size(), 6U);
  EXPECT_EQ(reference->rows.front(), 0);
  EXPECT_EQ(reference->rows.back(), 40);
  EXPECT_EQ(reference->columns.back(), 149);
  std::size_t at = 0;
  for (const std::int64_t row : reference->rows)
    for (std::int64_t column = 0; column < problem.n; ++column, ++at)
      expect_near(element(problem, *operands, row, column), reference->values[at], reference->magnitudes[at]);
  for (const std::int64_t column : reference->columns)
    for (std::int64_t row = 0; row < problem.m; ++row, ++at)
      expect_near(element(problem, *operands, row, column), reference->values[at], reference->magnitudes[at]);
  EXPECT_EQ(at, reference->values.size());
  ASSERT_EQ(reference->product.size(), 41U);
  for (std::int64_t row = 0; row < problem.m; ++row) {
    double product = 0;
    double squares = 0;
    for (std::int64_t column = 0; column < problem.n; ++column) {
      const Exact exact = element(problem, *operands, row, column);
      product += exact.value * reference->vector[static_cast<std::size_t>(column)];
      squares += exact.magnitude * exact.magnitude;
    }
    EXPECT_NEAR(reference->product[static_cast<std::size_t>(row)], product, 1e-9 * std::sqrt(squares));
    EXPECT_GE(reference->product_magnitudes[static_cast<std::size_t>(row)], std::sqrt(squares));
  }
}

TEST(Reference, few_rows_are_never_sampled) {
  const Problem problem = problem_of(8, 50, 20, DataType::bf16);
  const auto operands = make_inputs(problem, 1);
  EXPECT_TRUE(compute_reference(problem, *operands, {.max_complete_flops = 1})->complete);
}

TEST(Reference, reads_fp8_operands) {
  Problem problem = problem_of(2, 3, 40, DataType::f8_e4m3fn);
  problem.y_type = DataType::bf16;
  problem.scale_ab = true;
  HostOperands operands = *make_inputs(problem, 1);
  EXPECT_EQ(operands.x.size(), 80U);
  // 0x38 is 1, 0x40 is 2, 0x01 is 2^-9, 0x7e is 448 (OCP 8-bit floating point, E4M3).
  std::fill(operands.x.begin(), operands.x.end(), std::byte{0});
  std::fill(operands.w.begin(), operands.w.end(), std::byte{0x38});
  operands.x[0] = std::byte{0x40};
  operands.x[1] = std::byte{0x01};
  operands.x[2] = std::byte{0xfe};
  operands.x_scale = scale_bytes(2);
  operands.w_scale = scale_bytes(0.5F);
  const auto reference = compute_reference(problem, operands, {});
  ASSERT_TRUE(reference.ok()) << reference.message();
  EXPECT_EQ(reference->values[0], 2 + 0x1p-9 - 448);
}

/// The bytes of a matrix [lines, width], transposed.
std::vector<std::byte> transposed(const std::vector<std::byte>& from, std::int64_t lines,
                                  std::int64_t width) {
  std::vector<std::byte> to(from.size());
  const auto size = from.size() / static_cast<std::size_t>(lines * width);
  for (std::int64_t line = 0; line < lines; ++line)
    for (std::int64_t at = 0; at < width; ++at)
      std::copy_n(
          from.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(line * width + at) * size),
          size, to.begin() + static_cast<std::ptrdiff_t>(static_cast<std::size_t>(at * lines + line) * size));
  return to;
}

TEST(Reference, of_column_major_operands_is_that_of_their_transposes) {
  for (const DataType type : {DataType::bf16, DataType::f32, DataType::f8_e4m3fn}) {
    Problem rows = problem_of(37, 70, 45, type);
    rows.scale_ab = type == DataType::f8_e4m3fn;
    rows.y_type = DataType::bf16;
    const auto operands = make_inputs(rows, 1);
    ASSERT_TRUE(operands.ok()) << operands.message();
    ReferenceOptions sampled;
    sampled.max_complete_flops = 0;
    Problem columns = rows;
    HostOperands others = *operands;
    columns.x_order = Order::column_major;
    others.x = transposed(operands->x, rows.m, rows.k);
    for (const bool both : {false, true}) {
      if (both) {
        columns.w_order = Order::column_major;
        others.w = transposed(operands->w, rows.n, rows.k);
      }
      for (const ReferenceOptions& options : {ReferenceOptions(), sampled}) {
        const auto expected = compute_reference(rows, *operands, options);
        const auto got = compute_reference(columns, others, options);
        ASSERT_TRUE(expected.ok() && got.ok()) << expected.message() << got.message();
        EXPECT_EQ(got->values, expected->values);
        EXPECT_EQ(got->magnitudes, expected->magnitudes);
        EXPECT_EQ(got->product, expected->product);
      }
    }
  }
}

TEST(Reference, refuses_what_it_does_not_know) {
  Problem problem = problem_of(2, 2, 2, DataType::bf16);
  const auto operands = make_inputs(problem, 1);
  Problem other = problem;
  other.x_type = other.w_type = DataType::u8;
  EXPECT_EQ(compute_reference(other, *operands, {}).code(), StatusCode::unsupported);
  other = problem;
  other.operation = Operation::fused_moe;
  other.moe = {.experts = 2, .topk = 1, .activation = Activation::swiglu};
  EXPECT_EQ(compute_reference(other, *operands, {}).code(), StatusCode::unsupported);
  other = problem;
  other.y_type = DataType::i8;
  EXPECT_EQ(compute_reference(other, *operands, {}).code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace gemmtune::reference_test
