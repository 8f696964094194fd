// Operands that a caller may have: NaN, infinities, sums that pass the range of float32 or of y's type. A right result is accepted
// whatever the order of its sums, a wrong one is not.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "support/elements.h"
#include "verify/output_check.h"

namespace gemmtune::non_finite_test {
namespace {

using testing::load_element;
using testing::store;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

/// A small product whose operands are changed before run(), and whose result after it.
struct Case {
  explicit Case(DataType y_type = DataType::bf16) {
    problem.m = 40;
    problem.n = 100;
    problem.k = 64;
    problem.y_type = y_type;
    problem.bias = true;
    operands = *make_inputs(problem, 1);
  }
  void x(std::int64_t row, std::int64_t k, double value) {
    store(problem.x_type, operands.x.data(), row * problem.k + k, static_cast<float>(value));
  }
  void w(std::int64_t column, std::int64_t k, double value) {
    store(problem.w_type, operands.w.data(), column * problem.k + k, static_cast<float>(value));
  }
  void bias(std::int64_t column, double value) {
    store(problem.y_type, operands.bias.data(), column, static_cast<float>(value));
  }
  /// y by float32 sums, over k from its begin or its end.
  void run(bool backwards = false) {
    y.resize(static_cast<std::size_t>(bytes_of(problem.y_type, problem.m * problem.n)));
    for (std::int64_t row = 0; row < problem.m; ++row)
      for (std::int64_t column = 0; column < problem.n; ++column) {
        float sum = 0;
        for (std::int64_t i = 0; i < problem.k; ++i) {
          const std::int64_t k = backwards ? problem.k - 1 - i : i;
          sum += load_element(problem.x_type, operands.x.data(), row * problem.k + k) *
                 load_element(problem.w_type, operands.w.data(), column * problem.k + k);
        }
        set(row, column, sum + load_element(problem.y_type, operands.bias.data(), column));
      }
  }
  void set(std::int64_t row, std::int64_t column, float value) {
    store(problem.y_type, y.data(), row * problem.n + column, value);
  }
  float get(std::int64_t row, std::int64_t column) const {
    return load_element(problem.y_type, y.data(), row * problem.n + column);
  }
  /// Why it is wrong; "" if it is right.
  std::string fault(bool complete) const {
    ReferenceOptions options;
    options.any_numbers = true;
    if (!complete) {
      options.max_complete_flops = 0;
      options.sampled_rows = 1;
      options.sampled_columns = 4;
    }
    const Reference reference = *compute_reference(problem, operands, options);
    EXPECT_EQ(reference.complete, complete);
    Tolerance tolerance = tolerance_for(problem, 1);
    tolerance.max_misrounded = 1;
    return check_output(problem, reference, y, problem.n, tolerance).reason;
  }
  /// Of the result with one element changed.
  std::string fault_with(std::int64_t row, std::int64_t column, double value, bool complete) {
    const float before = get(row, column);
    set(row, column, static_cast<float>(value));
    std::string reason = fault(complete);
    set(row, column, before);
    return reason;
  }
  void expect_right() const {
    for (const bool complete : {true, false}) EXPECT_EQ(fault(complete), "") << complete;
  }
  /// Found on the whole reference, and on a few rows and columns with the random vector.
  void expect_found(std::int64_t row, std::int64_t column, double value) {
    for (const bool complete : {true, false})
      EXPECT_NE(fault_with(row, column, value, complete), "") << row << " " << column << " " << value;
  }

  Problem problem;
  HostOperands operands;
  std::vector<std::byte> y;
};

constexpr DataType y_types[] = {DataType::bf16, DataType::f16, DataType::f32};

TEST(NonFinite, a_nan_makes_its_row_or_column_nan_and_nothing_else) {
  for (const DataType type : y_types)
    for (const int where : {0, 1, 2}) {
      Case c(type);
      if (where == 0) c.x(23, 5, nan);
      if (where == 1) c.w(51, 5, nan);
      if (where == 2) c.bias(51, nan);
      c.run();
      ASSERT_TRUE(std::isnan(c.get(23, 51)));
      c.expect_right();
      c.expect_found(23, 51, 1);
      c.expect_found(23, 51, infinity);
      c.expect_found(24, 52, nan);
      c.expect_found(24, 52, 1000);
    }
}

TEST(NonFinite, an_infinity_has_its_sign_and_is_nan_beside_zero_or_its_opposite) {
  for (const DataType type : y_types) {
    Case c(type);
    c.x(0, 5, infinity);  // of the rows that are sampled
    c.w(7, 5, 0);
    c.run();
    EXPECT_TRUE(std::isnan(c.get(0, 7)));
    c.expect_right();
    c.expect_found(0, 7, infinity);
    c.expect_found(0, 8, -static_cast<double>(c.get(0, 8)));
    c.expect_found(0, 8, nan);
    c.expect_found(0, 8, 3);
    c.x(0, 6, -infinity);
    c.run();
    c.expect_right();
  }
  Case unsampled;
  unsampled.x(23, 5, infinity);
  unsampled.run();
  unsampled.expect_right();
  unsampled.expect_found(23, 51, 3);
}

TEST(NonFinite, sums_that_pass_float32_are_what_some_order_gives) {
  Case c(DataType::f32);
  for (std::int64_t k = 0; k < 8; ++k) {
    c.x(0, k, k % 2 == 0 ? 1e38 : -1e38);
    c.w(7, k, k < 4 ? 2 : 4);
    c.w(8, k, (k < 4) == (k % 2 == 0) ? 2 : -2);  // first far up, then far down
  }
  c.run();
  ASSERT_EQ(c.get(0, 8), std::numeric_limits<float>::infinity());
  c.expect_right();
  c.run(true);
  ASSERT_EQ(c.get(0, 8), -std::numeric_limits<float>::infinity());
  c.expect_right();
  for (const bool complete : {true, false}) EXPECT_EQ(c.fault_with(0, 8, nan, complete), "");
  // Their magnitudes pass float32 too: a result that is no sum of them is found nevertheless.
  c.expect_found(0, 8, 3e38);
  c.expect_found(3, 9, nan);
}

TEST(NonFinite, what_is_above_the_range_of_y_is_infinite_and_not_the_largest_number) {
  Case c(DataType::f16);
  for (std::int64_t k = 0; k < 4; ++k) {
    c.x(0, k, 256);
    c.w(7, k, 128);
  }
  c.run();
  ASSERT_EQ(c.get(0, 7), std::numeric_limits<float>::infinity());
  c.expect_right();
  c.expect_found(0, 7, 65504);
  c.expect_found(0, 7, -infinity);
  c.expect_found(0, 7, nan);
}

TEST(NonFinite, a_kernel_that_loses_a_part_of_k_is_found_beside_them) {
  for (const bool complete : {true, false}) {
    Case c;
    c.x(3, 5, nan);
    c.w(9, 5, infinity);
    c.run();
    Case shorter = c;
    for (std::int64_t row = 0; row < c.problem.m; ++row)
      for (std::int64_t k = 56; k < 64; ++k) shorter.x(row, k, 0);
    shorter.run();
    c.y = shorter.y;
    EXPECT_NE(c.fault(complete), "");
  }
}

}  // namespace
}  // namespace gemmtune::non_finite_test
