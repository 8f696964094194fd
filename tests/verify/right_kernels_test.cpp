// No false alarms: float32 accumulation in any order passes, on awkward shapes, deep K and all type
// combinations.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <string>

#include "support/elements.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

using testing::load_row;
using testing::store_element;

using Dot = float (*)(const float* x, const float* w, std::int64_t k);

float forward(const float* x, const float* w, std::int64_t k) {
  float sum = 0;
  for (std::int64_t i = 0; i < k; ++i) sum += x[i] * w[i];
  return sum;
}

float backward_fma(const float* x, const float* w, std::int64_t k) {
  float sum = 0;
  for (std::int64_t i = k; i-- > 0;) sum = std::fma(x[i], w[i], sum);
  return sum;
}

// Sixteen lanes, then their sum: a vector register.
float lanes(const float* x, const float* w, std::int64_t k) {
  float lane[16] = {};
  for (std::int64_t i = 0; i < k; ++i) lane[i % 16] += x[i] * w[i];
  for (int width = 8; width > 0; width /= 2)
    for (int i = 0; i < width; ++i) lane[i] += lane[i + width];
  return lane[0];
}

// Blocks of 256 over k, each summed apart and then added: a blocked kernel or split-K with float32 partial
// sums.
float blocks(const float* x, const float* w, std::int64_t k) {
  float sum = 0;
  for (std::int64_t at = 0; at < k; at += 256)
    sum += forward(x + at, w + at, std::min<std::int64_t>(256, k - at));
  return sum;
}

// vdpbf16ps: pairs, subnormal results flushed to zero after each step (Intel SDM, VDPBF16PS: DAZ and FTZ,
// RNE).
float pairs_flushed(const float* x, const float* w, std::int64_t k) {
  const auto flush = [](float value) { return std::fabs(value) < 0x1p-126F ? 0.0F : value; };
  float lane[16] = {};
  for (std::int64_t i = 0; i < k; i += 2) {
    float& sum = lane[i / 2 % 16];
    if (i + 1 < k) sum = flush(std::fma(x[i + 1], w[i + 1], sum));
    sum = flush(std::fma(x[i], w[i], sum));
  }
  float sum = 0;
  for (const float part : lane) sum += part;
  return sum;
}

// An AMX tile adds pairs of products before it adds them to the sum.
float pair_first(const float* x, const float* w, std::int64_t k) {
  float sum = 0;
  for (std::int64_t i = 0; i < k; i += 2) {
    float pair = x[i] * w[i];
    if (i + 1 < k) pair += x[i + 1] * w[i + 1];
    sum += pair;
  }
  return sum;
}

struct Order {
  const char* name;
  Dot dot;
};

constexpr Order orders[] = {
    {"forward", forward}, {"backward_fma", backward_fma},   {"lanes", lanes},
    {"blocks", blocks},   {"pairs_flushed", pairs_flushed}, {"pair_first", pair_first}};

std::vector<std::byte> multiply(const Problem& problem, const HostOperands& host, Dot dot) {
  std::vector<std::byte> y(static_cast<std::size_t>(bytes_of(problem.y_type, problem.m * problem.n)));
  Operands operands;
  operands.bias = host.bias.data();
  operands.x_scale = host.x_scale.data();
  operands.w_scale = host.w_scale.data();
  operands.y = y.data();
  operands.ldy = problem.n;
  std::vector<float> x(static_cast<std::size_t>(problem.m * problem.k));
  std::vector<float> w(static_cast<std::size_t>(problem.k));
  load_row(problem.x_type, host.x.data(), 0, x);
  for (std::int64_t column = 0; column < problem.n; ++column) {
    load_row(problem.w_type, host.w.data(), column * problem.k, w);
    for (std::int64_t row = 0; row < problem.m; ++row)
      store_element(problem, operands, row, column, dot(x.data() + row * problem.k, w.data(), problem.k));
  }
  return y;
}

struct Shape {
  std::int64_t m, n, k;
};

constexpr Shape shapes[] = {{1, 1, 1},     {1, 1, 16384}, {1, 3, 2},     {2, 1, 7},     {7, 5, 15},
                            {1, 257, 16},  {15, 17, 31},  {33, 9, 63},   {3, 65, 100},  {16, 31, 129},
                            {64, 33, 255}, {5, 127, 257}, {4, 40, 4096}, {3, 16, 16384}};
constexpr DataType types[] = {DataType::bf16, DataType::f16, DataType::f32};

void expect_right(const Problem& problem, std::uint64_t seed) {
  const auto operands = make_inputs(problem, seed);
  ASSERT_TRUE(operands.ok()) << operands.message();
  const auto reference = compute_reference(problem, *operands, {});
  ASSERT_TRUE(reference.ok()) << reference.message();
  const Tolerance tolerance = tolerance_for(problem, 0.05);
  for (const Order& order : orders) {
    const std::vector<std::byte> y = multiply(problem, *operands, order.dot);
    const CheckReport report = check_output(problem, *reference, y, problem.n, tolerance);
    EXPECT_TRUE(report.right) << print(problem) << " " << order.name << " seed " << seed << ": "
                              << report.reason;
    EXPECT_EQ(report.err_ratio, 0) << print(problem) << " " << order.name;
  }
}

TEST(RightKernels, pass_for_every_type_on_awkward_shapes) {
  for (const Shape& shape : shapes)
    for (const DataType in : types)
      for (const DataType out : types)
        for (const bool bias : {false, true}) {
          Problem problem;
          problem.m = shape.m;
          problem.n = shape.n;
          problem.k = shape.k;
          problem.x_type = problem.w_type = in;
          problem.y_type = out;
          problem.bias = bias;
          expect_right(problem, 1);
        }
}

TEST(RightKernels, pass_for_many_seeds) {
  for (std::uint64_t seed = 0; seed < 150; ++seed) {
    Problem problem;
    problem.m = static_cast<std::int64_t>(1 + seed % 5);
    problem.n = static_cast<std::int64_t>(1 + seed % 37);
    problem.k = static_cast<std::int64_t>(1 + (seed * seed * 7) % 900);
    problem.x_type = problem.w_type = types[seed % 3];
    problem.y_type = types[seed / 3 % 3];
    problem.bias = seed % 2 == 1;
    problem.scale_ab = seed % 7 == 0;
    expect_right(problem, seed);
  }
}

// The figures behind tolerance.cpp: how many outputs of one long chain flip to a neighbour.
TEST(RightKernels, misrounded_share_is_far_below_the_limit) {
  for (const DataType out : {DataType::bf16, DataType::f16})
    for (const std::int64_t k : {256, 4096, 16384}) {
      Problem problem;
      problem.m = 8;
      problem.n = 64;
      problem.k = k;
      problem.y_type = out;
      const auto operands = make_inputs(problem, 3);
      const auto reference = compute_reference(problem, *operands, {});
      const auto y = multiply(problem, *operands, forward);
      const Tolerance tolerance = tolerance_for(problem, 0.05);
      const CheckReport report = check_output(problem, *reference, y, problem.n, tolerance);
      EXPECT_LT(report.misrounded, tolerance.max_misrounded / 2) << print(problem);
      RecordProperty(print(problem), std::to_string(report.misrounded));
    }
}

}  // namespace
}  // namespace gemmtune
