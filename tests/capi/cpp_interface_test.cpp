// The C++ layer over the C interface: every member reaches the C structure, and calls through it run.
#include <gemmtune/gemmtune.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace {

using ::testing::HasSubstr;

TEST(CppInterface, ScalesOfAProblem) {
  gemmtune::Problem problem{.m = 7, .n = 64, .k = 128, .x_type = gemmtune::Type::f8_e4m3fn};
  problem.operation = gemmtune::Operation::a8w4;
  problem.w_type = gemmtune::Type::f4_e2m1;
  const auto found = gemmtune::scales(problem);
  ASSERT_TRUE(found.ok()) << found.status().message();
  EXPECT_EQ(found->x.count, 7);
  EXPECT_EQ(found->x.type, gemmtune::Type::f32);
  EXPECT_TRUE(found->x.or_one);
  EXPECT_EQ(found->w.count, 64 * 4);
  EXPECT_EQ(found->w.type, gemmtune::Type::u8);
  EXPECT_FALSE(found->w.or_one);
  EXPECT_EQ(found->w2.count, 0);
  problem.k = 33;
  EXPECT_EQ(gemmtune::scales(problem).status().code(), GEMMTUNE_INVALID_ARGUMENT);
}

TEST(CppInterface, AProblemReachesTheCStructure) {
  gemmtune::Problem problem{.m = 1, .n = 2, .k = 3, .x_type = gemmtune::Type::f8_e4m3fn};
  problem.y_type = gemmtune::Type::f16;
  problem.w_type = gemmtune::Type::i4;
  problem.bias = true;
  problem.weight_layout = gemmtune::Layout::aiter16x16;
  problem.alignment = 8;
  problem.operation = gemmtune::Operation::fused_moe;
  problem.scale_ab = true;
  problem.batch = 5;
  problem.constant_weights = true;
  problem.predecessor_triggers = true;
  problem.x_order = gemmtune::Order::column_major;
  problem.w_order = gemmtune::Order::column_major;
  problem.moe = {7, 6, gemmtune::Activation::gelu, gemmtune::QuantType::per_128x128, true, true, 2};
  const gemmtune::detail::CProblem given(problem);
  const gemmtune_problem& c = *given.get();
  EXPECT_EQ(c.size, sizeof c);
  EXPECT_EQ(c.operation, GEMMTUNE_FUSED_MOE);
  EXPECT_EQ(c.x_type, GEMMTUNE_F8_E4M3FN);
  EXPECT_EQ(c.w_type, GEMMTUNE_I4);
  EXPECT_EQ(c.y_type, GEMMTUNE_F16);
  EXPECT_EQ(c.m, 1);
  EXPECT_EQ(c.n, 2);
  EXPECT_EQ(c.k, 3);
  EXPECT_EQ(c.batch, 5);
  EXPECT_EQ(c.bias, 1);
  EXPECT_EQ(c.scale_ab, 1);
  EXPECT_EQ(c.weight_layout, GEMMTUNE_LAYOUT_AITER16X16);
  EXPECT_EQ(c.alignment, 8);
  EXPECT_EQ(c.constant_weights, 1);
  EXPECT_EQ(c.predecessor_triggers, 1);
  EXPECT_EQ(c.x_order, GEMMTUNE_COLUMN_MAJOR);
  EXPECT_EQ(c.w_order, GEMMTUNE_COLUMN_MAJOR);
  ASSERT_NE(c.moe, nullptr);
  EXPECT_EQ(c.moe->size, sizeof *c.moe);
  EXPECT_EQ(c.moe->experts, 7);
  EXPECT_EQ(c.moe->topk, 6);
  EXPECT_EQ(c.moe->activation, GEMMTUNE_ACTIVATION_GELU);
  EXPECT_EQ(c.moe->quant_type, GEMMTUNE_QUANT_PER_128X128);
  EXPECT_EQ(c.moe->gated, 1);
  EXPECT_EQ(c.moe->doweight_stage1, 1);
  EXPECT_EQ(c.moe->shared_experts, 2);
  problem.operation = gemmtune::Operation::a16w16;
  EXPECT_EQ(gemmtune::detail::CProblem(problem).get()->moe, nullptr);
}

TEST(CppInterface, OperandsReachTheCStructure) {
  float memory[8] = {};
  const std::int32_t ids[1] = {};
  gemmtune::Operands operands{.x = memory, .w = memory + 1, .bias = memory + 2, .y = memory + 3};
  operands.ldx = 11;
  operands.ldy = 12;
  operands.x_scale = memory + 4;
  operands.w_scale = memory + 5;
  operands.x_scale_per_tensor = true;
  operands.w_scale_per_tensor = true;
  operands.x_batch_stride = 13;
  operands.y_batch_stride = 14;
  operands.w2 = memory + 6;
  operands.w2_scale = memory + 7;
  operands.topk_ids = ids;
  operands.topk_weights = memory;
  operands.bias2 = memory + 1;
  operands.w2_global_scale = memory + 2;
  const std::int8_t zero_points[1] = {};
  operands.w2_zero_points = zero_points;
  const gemmtune::detail::COperands given(operands);
  const gemmtune_operands& c = *given.get();
  EXPECT_EQ(c.size, sizeof c);
  EXPECT_EQ(c.x, memory);
  EXPECT_EQ(c.w, memory + 1);
  EXPECT_EQ(c.bias, memory + 2);
  EXPECT_EQ(c.y, memory + 3);
  EXPECT_EQ(c.ldx, 11);
  EXPECT_EQ(c.ldy, 12);
  EXPECT_EQ(c.x_scale, memory + 4);
  EXPECT_EQ(c.w_scale, memory + 5);
  EXPECT_EQ(c.x_scale_per_tensor, 1);
  EXPECT_EQ(c.w_scale_per_tensor, 1);
  EXPECT_EQ(c.x_batch_stride, 13);
  EXPECT_EQ(c.y_batch_stride, 14);
  ASSERT_NE(c.moe, nullptr);
  EXPECT_EQ(c.moe->size, sizeof *c.moe);
  EXPECT_EQ(c.moe->w2, memory + 6);
  EXPECT_EQ(c.moe->w2_scale, memory + 7);
  EXPECT_EQ(c.moe->topk_ids, ids);
  EXPECT_EQ(c.moe->topk_weights, memory);
  EXPECT_EQ(c.moe->bias2, memory + 1);
  EXPECT_EQ(c.moe->w2_global_scale, memory + 2);
  EXPECT_EQ(c.moe->w2_zero_points, zero_points);
}

gemmtune::Options on_cpu() {
  gemmtune::Options options;
  options.config_folder = "/none";
  options.backend = "cpu";
  options.threads = 1;
  return options;
}

TEST(CppInterface, TunedFilesGoToTheirOperations) {
  gemmtune::Options options = on_cpu();
  options.tuned_files = {{gemmtune::Operation::a8w8, "/none/eight"},
                         {gemmtune::Operation::fused_moe, "/none/moe"}};
  const auto context = gemmtune::Context::open(options);
  ASSERT_TRUE(context.ok()) << context.status().message();
  EXPECT_THAT(context->sources(), HasSubstr("/none/eight"));
  EXPECT_THAT(context->sources(), HasSubstr("/none/moe"));
  EXPECT_THAT(context->sources(), HasSubstr("/none/bf16_tuned_gemm.csv"));
  options.tuned_files.push_back(options.tuned_files.front());
  const auto refused = gemmtune::Context::open(options);
  EXPECT_EQ(refused.status().code(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(refused.status().message(), HasSubstr("a8w8"));
}

/// Two experts of 1 x 1 in float-exact numbers: y[t] = r · (w2 · (w1 · x + bias1) + bias2), without an activation.
TEST(CppInterface, AMixtureRunsThroughPlanAndCall) {
  const auto context = gemmtune::Context::open(on_cpu());
  ASSERT_TRUE(context.ok()) << context.status().message();
  constexpr std::uint16_t one = 0x3f80;  // bf16
  constexpr std::uint16_t two = 0x4000;
  constexpr std::uint16_t four = 0x4080;
  alignas(64) const std::uint16_t x[2] = {one, two};
  alignas(64) const std::uint16_t w1[2] = {one, two};
  alignas(64) const std::uint16_t w2[2] = {one, one};
  alignas(64) std::uint16_t y[2] = {};
  const std::int32_t ids[2] = {0, 1};
  const float weights[2] = {1, 1};
  gemmtune::Problem problem{.m = 2, .n = 1, .k = 1};
  problem.operation = gemmtune::Operation::fused_moe;
  problem.moe = {.experts = 2, .topk = 1};
  problem.alignment = 2;
  gemmtune::Operands operands{.x = x, .w = w1, .y = y};
  operands.w2 = w2;
  operands.topk_ids = ids;
  operands.topk_weights = weights;
  const auto called = gemmtune::gemm(problem, operands, &*context);
  ASSERT_TRUE(called.ok()) << called.message();
  EXPECT_EQ(y[0], one);
  EXPECT_EQ(y[1], four);
  const auto plan = context->plan(problem);
  ASSERT_TRUE(plan.ok()) << plan.status().message();
  EXPECT_EQ(to_string(plan->info().weight_layout), "plain");
  const gemmtune::Plan copy = *plan;
  EXPECT_EQ(copy.info().match, gemmtune::Match::untuned);
  // Of a caller that was built before biases: what its structure lacks is null.
  problem.bias = true;
  const float first[2] = {1, 2};
  const float second[2] = {0, -8};
  operands.bias = first;
  EXPECT_EQ(gemmtune::gemm(problem, operands, &*context).code(), GEMMTUNE_NULL_POINTER);
  operands.bias2 = second;
  ASSERT_TRUE(gemmtune::gemm(problem, operands, &*context).ok());
  EXPECT_EQ(y[0], two);     // 1 + 1
  EXPECT_EQ(y[1], 0xc000);  // 4 + 2 - 8
  problem.bias = false;
  operands.topk_ids = nullptr;
  const auto refused = gemmtune::gemm(problem, operands, &*context);
  EXPECT_EQ(refused.code(), GEMMTUNE_NULL_POINTER);
  EXPECT_THAT(refused.message(), HasSubstr("topk_ids"));
}

TEST(CppInterface, ViewsAreAnA16w16) {
  const auto context = gemmtune::Context::open(on_cpu());
  ASSERT_TRUE(context.ok()) << context.status().message();
  alignas(64) const float x[4] = {1, 2, 3, 4};
  alignas(64) const float w[2] = {5, 6};
  alignas(64) const float bias[1] = {100};
  alignas(64) float y[2] = {};
  const auto called = gemmtune::gemm(gemmtune::f32(x), gemmtune::f32(w), gemmtune::f32(y), 2, 1, 2,
                                     {.bias = bias, .context = &*context});
  ASSERT_TRUE(called.ok()) << called.message();
  EXPECT_EQ(y[0], 117);
  EXPECT_EQ(y[1], 139);
  const auto any = gemmtune::gemm(gemmtune::f32(x), gemmtune::f32(w), gemmtune::f32(y), 2, 1, 2,
                                  {.weight_layout = gemmtune::Layout::any, .context = &*context});
  EXPECT_EQ(any.code(), GEMMTUNE_INVALID_ARGUMENT);
}

}  // namespace
