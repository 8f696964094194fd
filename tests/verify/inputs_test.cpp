#include "verify/inputs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "support/elements.h"

namespace gemmtune::inputs_test {
namespace {

using testing::load_row;

std::vector<float> values(DataType type, const std::vector<std::byte>& bytes) {
  std::vector<float> all(bytes.size() / static_cast<std::size_t>(testing::element_size(type)));
  load_row(type, bytes.data(), 0, all);
  return all;
}

float first_scale(const std::vector<std::byte>& scales) {
  float scale = 0;
  if (scales.size() >= sizeof(scale)) std::memcpy(&scale, scales.data(), sizeof(scale));
  return scale;
}

Problem problem_of(DataType type) {
  Problem problem;
  problem.m = 64;
  problem.n = 96;
  problem.k = 256;
  problem.x_type = problem.w_type = problem.y_type = type;
  problem.bias = true;
  return problem;
}

TEST(Inputs, have_a_normal_range_in_every_type) {
  for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
    const auto operands = make_inputs(problem_of(type), 1);
    ASSERT_TRUE(operands.ok());
    const auto check = [](const std::vector<float>& all, double sigma) {
      double sum = 0;
      double squares = 0;
      double fourth = 0;
      for (const float value : all) {
        sum += static_cast<double>(value);
        squares += std::pow(static_cast<double>(value), 2);
        fourth += std::pow(static_cast<double>(value), 4);
      }
      const auto count = static_cast<double>(all.size());
      EXPECT_NEAR(sum / count, 0, 0.05 * sigma);
      EXPECT_NEAR(std::sqrt(squares / count), sigma, 0.05 * sigma);
      EXPECT_NEAR(fourth / count / std::pow(squares / count, 2), 2.7, 0.3) << "kurtosis: uniform has 1.8";
    };
    check(values(type, operands->x), 1);
    check(values(type, operands->w), 0.5);
    EXPECT_EQ(operands->bias.size(), 96U * static_cast<unsigned>(testing::element_size(type)));
  }
}

TEST(Inputs, are_the_same_for_a_seed_and_fresh_for_another) {
  const Problem problem = problem_of(DataType::bf16);
  const auto one = make_inputs(problem, 1);
  const auto again = make_inputs(problem, 1);
  const auto other = make_inputs(problem, 2);
  EXPECT_EQ(one->x, again->x);
  EXPECT_EQ(one->w, again->w);
  EXPECT_NE(one->x, other->x);
  EXPECT_NE(one->w, other->w);
  EXPECT_NE(one->bias, other->bias);
  Problem longer = problem;
  longer.n = 97;
  EXPECT_NE(one->x, make_inputs(longer, 1)->x) << "another problem has other data";
}

TEST(Inputs, of_another_init_type_fill_x_and_w) {
  Problem problem = problem_of(DataType::f32);
  const auto x_of = [&](InitType init) {
    auto planned = plan_inputs(problem, 1, Signs::both, init);
    EXPECT_TRUE(planned.ok() && planned->fill_all(2).ok());
    EXPECT_FALSE(planned->host.w.empty());
    return values(DataType::f32, planned->host.x);
  };
  const std::vector<float> uniform = x_of(InitType::hpl);
  EXPECT_LE(*std::max_element(uniform.begin(), uniform.end()), 0.5F);
  EXPECT_GE(*std::min_element(uniform.begin(), uniform.end()), -0.5F);
  const auto within =
      std::count_if(uniform.begin(), uniform.end(), [](float x) { return std::fabs(x) < 0.25F; });
  EXPECT_NEAR(static_cast<double>(within) / static_cast<double>(uniform.size()), 0.5, 0.1);
  const std::vector<float> sines = x_of(InitType::trig_float);
  for (const std::size_t i : {std::size_t{0}, std::size_t{1}, std::size_t{77}})
    EXPECT_FLOAT_EQ(sines[i], static_cast<float>(std::sin(static_cast<double>(i)))) << i;
  const std::vector<float> zeros = x_of(InitType::zeros);
  EXPECT_TRUE(std::all_of(zeros.begin(), zeros.end(), [](float x) { return x == 0 && !std::signbit(x); }));
  EXPECT_EQ(x_of(InitType::randn), values(DataType::f32, make_inputs(problem, 1)->x));
}

TEST(Inputs, init_types_have_names) {
  for (const char* name : {"randn", "hpl", "trig_float", "zeros"}) {
    const auto type = parse_init_type(name);
    ASSERT_TRUE(type.has_value()) << name;
    EXPECT_EQ(to_string(*type), name);
  }
  EXPECT_FALSE(parse_init_type("ones").has_value());
}

TEST(Inputs, whole_scales_are_numbers_of_both_signs_with_zero_and_the_smallest) {
  for (const OperationForm operation :
       {OperationForm(Operation::a16w4_nvfp4), OperationForm(Operation::a16w4_int4)}) {
    Problem problem = default_problem(operation);
    problem.m = 3;
    problem.n = 64;
    problem.k = 1024;
    auto inputs = plan_inputs(problem, 1, Signs::both, InitType::randn, {}, ScaleCodes::whole);
    ASSERT_TRUE(inputs.ok()) << inputs.message();
    ASSERT_TRUE(inputs->fill_all(1).ok());
    const ScaleShape shape = operand_shapes(problem).w.scale;
    const double smallest = shape.type == ScaleType::e4m3 ? 0x1p-9 : 0x1p-133;
    std::int64_t negative = 0;
    std::int64_t zeros = 0;
    std::int64_t smallest_ones = 0;
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      const double scale = scale_value(shape.type, inputs->host.w_scale.data(), i);
      ASSERT_TRUE(std::isfinite(scale));
      negative += scale < 0 ? 1 : 0;
      zeros += scale == 0 ? 1 : 0;
      smallest_ones += std::abs(scale) == smallest ? 1 : 0;
    }
    for (const std::int64_t some : {negative, zeros, smallest_ones})
      EXPECT_GT(some, shape.elements() / 20) << to_string(operation);
    EXPECT_LT(negative, shape.elements() / 2) << to_string(operation);
  }
}

TEST(Inputs, are_the_same_for_any_number_of_threads) {
  for (const DataType type : {DataType::bf16, DataType::f32}) {
    Problem problem = problem_of(type);
    problem.m = 1031;  // no multiple of what a thread draws
    problem.n = 4099;
    problem.k = 515;
    const auto one = make_inputs(problem, 1, 1);
    for (const int threads : {0, 2, 3, 7}) {
      const auto many = make_inputs(problem, 1, threads);
      EXPECT_EQ(many->x, one->x) << threads;
      EXPECT_EQ(many->w, one->w) << threads;
    }
  }
}

TEST(Inputs, can_be_drawn_in_any_parts) {
  for (const DataType type : {DataType::bf16, DataType::f32, DataType::f8_e4m3fn}) {
    const RandomFill all = random_fill(type, 1003, 1, Random(7));
    std::vector<std::byte> whole(all.bytes());
    fill_random(all, 0, whole);
    constexpr std::size_t firsts[] = {0, 1, 2, 3, 4, 5, 501, 1000, 1002};
    for (const std::size_t first : firsts) {
      for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{7}, 1003 - first}) {
        if (first + count > 1003) continue;
        std::vector<std::byte> part(count * all.element_bytes);
        fill_random(all, first, part);
        EXPECT_TRUE(std::equal(part.begin(), part.end(),
                               whole.begin() + static_cast<std::ptrdiff_t>(first * all.element_bytes)))
            << first << " " << count;
      }
    }
  }
}

// Promised to be the same on every machine: these values stand for all later versions (policy text: normal1).
TEST(Inputs, first_values_never_change) {
  Problem problem = problem_of(DataType::f32);
  const std::vector<float> x = values(DataType::f32, make_inputs(problem, 1)->x);
  EXPECT_FLOAT_EQ(x[0], 1.0425183F);
  EXPECT_FLOAT_EQ(x[1], -0.16417694F);
}

// A kernel that reads a neighbouring row, or a row at a power of two away, must see other data.
TEST(Inputs, have_no_equal_rows) {
  Problem problem = problem_of(DataType::bf16);
  problem.n = 512;
  problem.k = 64;
  const auto operands = make_inputs(problem, 3);
  std::set<std::string> rows;
  for (std::int64_t row = 0; row < problem.n; ++row)
    rows.insert(std::string(reinterpret_cast<const char*>(operands->w.data()) + row * 128, 128));
  EXPECT_EQ(rows.size(), 512U);
  std::set<std::string> fragments;  // 8 elements each, at any place
  for (std::size_t at = 0; at + 16 <= operands->w.size(); at += 16)
    fragments.insert(std::string(reinterpret_cast<const char*>(operands->w.data()) + at, 16));
  EXPECT_EQ(fragments.size(), operands->w.size() / 16);
}

TEST(Inputs, odd_sizes_are_filled_to_the_end) {
  Problem problem = problem_of(DataType::f32);
  problem.m = 1;
  problem.n = 7;
  problem.k = 3;
  const auto operands = make_inputs(problem, 1);
  EXPECT_EQ(operands->x.size(), 12U);
  EXPECT_EQ(operands->w.size(), 84U);
  for (const float value : values(DataType::f32, operands->w)) EXPECT_NE(value, 0);
}

TEST(Inputs, scales_are_random_and_never_alike) {
  for (const std::int64_t k : {1, 16, 100, 4096}) {
    Problem problem = problem_of(DataType::bf16);
    problem.k = k;
    problem.scale_ab = true;
    const auto operands = make_inputs(problem, 5);
    EXPECT_GT(first_scale(operands->x_scale), 1.5F * first_scale(operands->w_scale));
    EXPECT_NE(first_scale(operands->x_scale), first_scale(make_inputs(problem, 6)->x_scale));
  }
  EXPECT_TRUE(make_inputs(problem_of(DataType::bf16), 1)->x_scale.empty());
}

TEST(Inputs, outputs_fit_into_fp16_for_every_k) {
  for (const std::int64_t k : {1, 7, 512, 16384}) {
    Problem problem = problem_of(DataType::f16);
    problem.m = 4;
    problem.n = 16;
    problem.k = k;
    const auto operands = make_inputs(problem, 1);
    const std::vector<float> x = values(DataType::f16, operands->x);
    const std::vector<float> w = values(DataType::f16, operands->w);
    for (std::int64_t i = 0; i < 4; ++i)
      for (std::int64_t j = 0; j < 16; ++j) {
        float sum = 0;
        for (std::int64_t l = 0; l < k; ++l)
          sum += x[static_cast<std::size_t>(i * k + l)] * w[static_cast<std::size_t>(j * k + l)];
        EXPECT_LT(std::fabs(sum), 1000);
      }
  }
}

TEST(Inputs, types_without_data_are_refused) {
  Problem problem = problem_of(DataType::bf16);
  problem.x_type = problem.w_type = DataType::u8;
  EXPECT_EQ(make_inputs(problem, 1).code(), StatusCode::unsupported);
}

}  // namespace
}  // namespace gemmtune::inputs_test
