// Every operation through the C functions, as a program calls them, against the float64 reference.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "capi/c_support.h"
#include "numbers/bfloat16.h"
#include "problem/operands.h"
#include "support/c_problem.h"
#include "support/dispatch_fake_device.h"
#include "verify/inputs.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

using test::CProblem;
using ::testing::HasSubstr;

Problem problem_of(OperationForm operation, DataType type) {
  Problem p = default_problem(operation);
  p.m = 11;
  p.n = 160;
  p.k = 256;
  p.alignment = 1;
  set_types(p, type);
  if (is_packed(p)) p.weight_layout = WeightLayout::panel16;
  if (operation == Operation::batched_bf16 || operation == Operation::batched_a8w8) p.batch = 3;
  if (operation == Operation::fused_moe) {
    p.moe = {.experts = 6, .topk = 2, .activation = Activation::silu, .gated = true};
    if (bits(type) == 8) p.moe.quant_type = QuantType::per_token;
    if (bits(type) == 4) p.moe.quant_type = QuantType::per_1x32;
  }
  return p;
}

std::vector<Problem> problems() {
  using enum Operation;
  constexpr auto fn = DataType::f8_e4m3fn;
  std::vector<Problem> all{problem_of(a16w16, DataType::bf16),
                           problem_of(a16w16, fn),
                           problem_of(a8w8, DataType::i8),
                           problem_of(a8w8, DataType::f8_e4m3fnuz),
                           problem_of({a8w8, true}, DataType::i8),
                           problem_of({a8w8, true}, fn),
                           problem_of(a8w8_blockscale, fn),
                           problem_of({a8w8_blockscale, true}, fn),
                           problem_of(a4w4_blockscale, DataType::f4_e2m1),
                           problem_of(batched_bf16, DataType::bf16),
                           problem_of(batched_a8w8, DataType::i8),
                           problem_of(fused_moe, DataType::bf16),
                           problem_of(fused_moe, fn),
                           problem_of(fused_moe, DataType::f4_e2m1),
                           problem_of(a16w4, DataType::bf16),
                           problem_of(a8w4, fn),
                           problem_of(a16w4_nvfp4, DataType::bf16),
                           problem_of(a8w4_nvfp4, fn),
                           problem_of(a4w4_nvfp4, DataType::f4_e2m1),
                           problem_of(a16w4_int4, DataType::bf16),
                           problem_of(a8w4_int4, DataType::i8)};
  all[18].bias = true;
  all[19].zero_points = true;
  all[20].w_group = static_cast<std::int32_t>(all[20].k);
  all[1].scale_ab = true;
  all[2].bias = all[12].bias = true;
  for (const bool packed : {false, true}) {
    all.push_back(problem_of({a8w8_blockscale, packed}, fn));
    all.back().e8m0_scales = true;
  }
  all.push_back(problem_of(fused_moe, DataType::bf16));
  all.back().w_type = DataType::f4_e2m1;
  all.back().moe.quant_type = QuantType::per_1x16;
  all.push_back(problem_of(fused_moe, DataType::bf16));
  all.back().w_type = DataType::i4;
  all.back().moe.quant_type = QuantType::per_group;
  all.back().w_group = 32;
  all.back().zero_points = true;
  for (const std::size_t shuffled : {5U, 7U}) {
    all.push_back(all[shuffled]);
    all.back().weight_layout = WeightLayout::aiter16x16;
  }
  return all;
}

class Operations : public ::testing::TestWithParam<Problem> {
 protected:
  void SetUp() override {
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.config_folder = "/none";
    options.backend = "cpu";
    options.threads = 2;
    ASSERT_EQ(gemmtune_context_create(&options, &context_), GEMMTUNE_OK) << gemmtune_last_error();
    auto host = make_inputs(GetParam(), 3);
    ASSERT_TRUE(host.ok()) << host.message();
    host_ = std::move(*host);
    y_.resize(static_cast<std::size_t>(operand_shapes(GetParam()).y.bytes()));
  }
  void TearDown() override { gemmtune_context_destroy(context_); }

  /// The weight in the problem's layout, by the C functions.
  const std::vector<std::byte>& weight() {
    if (!is_packed(GetParam())) return host_.w;
    const CProblem asked(GetParam());
    std::size_t bytes = 0;
    EXPECT_EQ(gemmtune_packed_weight_bytes(context_, asked.get(), asked->weight_layout, &bytes), GEMMTUNE_OK)
        << gemmtune_last_error();
    const test::FakeBuffer packed(bytes);
    EXPECT_EQ(
        gemmtune_pack_weight(context_, asked.get(), asked->weight_layout, host_.w.data(), packed.data()),
        GEMMTUNE_OK)
        << gemmtune_last_error();
    std::vector<std::byte> back(host_.w.size());
    EXPECT_EQ(gemmtune_unpack_weight(context_, asked.get(), asked->weight_layout, packed.data(), back.data()),
              GEMMTUNE_OK);
    EXPECT_EQ(back, host_.w);
    const auto* const begin = static_cast<const std::byte*>(packed.data());
    packed_.assign(begin, begin + bytes);
    return packed_;
  }

  gemmtune_operands operands(const std::vector<std::byte>& w) {
    gemmtune_operands given{};
    given.size = sizeof given;
    given.x = host_.x.data();
    given.w = w.data();
    given.bias = host_.bias.data();
    given.y = y_.data();
    given.x_scale = host_.x_scale.data();
    given.w_scale = host_.w_scale.data();
    given.x_global_scale = reinterpret_cast<const float*>(host_.x_global_scale.data());
    given.w_global_scale = reinterpret_cast<const float*>(host_.w_global_scale.data());
    given.w_zero_points = reinterpret_cast<const std::int8_t*>(host_.w_zero_points.data());
    given.moe = &moe_;
    moe_.size = sizeof moe_;
    moe_.w2 = host_.w2.data();
    moe_.w2_scale = host_.w2_scale.data();
    moe_.w2_global_scale = reinterpret_cast<const float*>(host_.w2_global_scale.data());
    moe_.w2_zero_points = reinterpret_cast<const std::int8_t*>(host_.w2_zero_points.data());
    moe_.bias2 = reinterpret_cast<const float*>(host_.bias2.data());
    moe_.topk_ids = host_.topk_ids.data();
    moe_.topk_weights = host_.topk_weights.data();
    return given;
  }

  std::string check_result() {
    const auto reference = compute_reference(GetParam(), host_, {});
    EXPECT_TRUE(reference.ok()) << reference.message();
    const auto tolerance = tolerance_for(GetParam(), 0.05);
    return check_output(GetParam(), *reference, y_, output_columns(GetParam()), tolerance).reason;
  }

  gemmtune_context* context_ = nullptr;
  HostOperands host_;
  std::vector<std::byte> packed_;
  gemmtune_moe_operands moe_{};
  std::vector<std::byte> y_;
};

TEST_P(Operations, OneCallIsRight) {
  const std::vector<std::byte>& w = weight();
  const CProblem asked(GetParam());
  const gemmtune_operands given = operands(w);
  ASSERT_EQ(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(check_result(), "");
}

TEST_P(Operations, EmptySlotsAreTakenAndOtherIdsRefused) {
  if (GetParam().operation != Operation::fused_moe) return;
  const std::vector<std::byte>& w = weight();
  const CProblem asked(GetParam());
  const auto slots = static_cast<std::size_t>(GetParam().moe.routed_topk());
  host_.topk_ids[0] = -1;
  for (std::size_t i = host_.topk_ids.size() - slots; i < host_.topk_ids.size(); ++i) host_.topk_ids[i] = -1;
  gemmtune_operands given = operands(w);
  ASSERT_EQ(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(check_result(), "");
  for (const std::int32_t id : {-2, GetParam().moe.routed_experts()}) {
    host_.topk_ids[0] = id;
    EXPECT_EQ(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_INVALID_ARGUMENT);
    EXPECT_NE(std::string(gemmtune_last_error()).find("topk_ids[0][0] = " + std::to_string(id)),
              std::string::npos)
        << gemmtune_last_error();
  }
}

TEST_P(Operations, OneCallReturnsTheSameBitsEachTime) {
  const std::vector<std::byte>& w = weight();
  const CProblem asked(GetParam());
  const gemmtune_operands given = operands(w);
  ASSERT_EQ(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  const std::vector<std::byte> first = y_;
  for (int i = 0; i < 5; ++i) {
    y_.assign(y_.size(), std::byte{0x5a});
    ASSERT_EQ(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_OK);
    ASSERT_EQ(y_, first);
  }
}

/// Row 4 of x (of the last batch) gets a NaN: in an element, or in a scale if x has no NaN.
TEST_P(Operations, ANanReachesWhatDependsOnItAndNothingElse) {
  const Problem& p = GetParam();
  const std::vector<std::byte>& w = weight();
  const std::int64_t row = (p.batch - 1) * p.m + 4;
  const auto poison = [](std::vector<std::byte>& data, std::int64_t index, auto element) {
    std::memcpy(data.data() + index * static_cast<std::int64_t>(sizeof element), &element, sizeof element);
  };
  switch (p.x_type) {
    case DataType::bf16:
      poison(host_.x, row * p.k + 17, std::uint16_t{0x7fc0});
      break;
    case DataType::f8_e4m3fn:
      poison(host_.x, row * p.k + 17, std::uint8_t{0x7f});
      break;
    case DataType::f8_e4m3fnuz:
      poison(host_.x, row * p.k + 17, std::uint8_t{0x80});
      break;
    case DataType::f4_e2m1:
      poison(host_.x_scale, row * operand_shapes(p).x.scale.columns + 1, std::uint8_t{255});
      break;
    default:
      poison(host_.x_scale, row, std::numeric_limits<float>::quiet_NaN());
  }
  const CProblem asked(p);
  const gemmtune_operands given = operands(w);
  ASSERT_EQ(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  ASSERT_EQ(p.y_type, DataType::bf16);
  const std::int64_t columns = output_columns(p);
  for (std::int64_t i = 0; i < p.batch * p.m * columns; ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, y_.data() + i * 2, sizeof bits);
    ASSERT_EQ(std::isnan(bf16_to_f32(bits)), i / columns == row)
        << "row " << i / columns << " column " << i % columns;
  }
}

TEST_P(Operations, PlansFallBackToAKernelThatIsNotTheReference) {
  const std::vector<std::byte>& w = weight();
  const CProblem asked(GetParam());
  gemmtune_plan* plan = nullptr;
  ASSERT_EQ(gemmtune_plan_create(context_, asked.get(), &plan), GEMMTUNE_OK) << gemmtune_last_error();
  gemmtune_plan_info info{};
  info.size = sizeof info;
  ASSERT_EQ(gemmtune_plan_get_info(plan, &info), GEMMTUNE_OK);
  EXPECT_EQ(info.match, GEMMTUNE_MATCH_UNTUNED);
  EXPECT_STRNE(info.family, "reference");
  std::vector<std::byte> workspace(info.workspace_bytes + 64);
  void* aligned = workspace.data();
  std::size_t space = workspace.size();
  ASSERT_NE(std::align(64, info.workspace_bytes, aligned, space), nullptr);
  const gemmtune_operands given = operands(w);
  EXPECT_EQ(gemmtune_plan_run(plan, &given, info.workspace_bytes > 0 ? aligned : nullptr, nullptr),
            GEMMTUNE_OK)
      << gemmtune_last_error();
  EXPECT_EQ(check_result(), "");
  gemmtune_plan_release(plan);
}

/// x as [M, B, K] and y as [M, B, N]: each row of all batches, one after another.
TEST_P(Operations, BatchesMayLieSideBySide) {
  const Problem& p = GetParam();
  if (p.batch == 1) return;
  const std::vector<std::byte>& w = weight();
  const auto rows_of = [&](const std::vector<std::byte>& from, std::int64_t row_bytes, bool apart) {
    std::vector<std::byte> to(from.size());
    for (std::int64_t batch = 0; batch < p.batch; ++batch)
      for (std::int64_t row = 0; row < p.m; ++row) {
        const std::int64_t one = (batch * p.m + row) * row_bytes;
        const std::int64_t other = (row * p.batch + batch) * row_bytes;
        std::copy_n(from.begin() + (apart ? other : one), row_bytes, to.begin() + (apart ? one : other));
      }
    return to;
  };
  const std::vector<std::byte> beside = rows_of(host_.x, bytes_of(p.x_type, p.k), false);
  gemmtune_operands given = operands(w);
  given.x = beside.data();
  given.ldx = p.batch * p.k;
  given.x_batch_stride = p.k;
  given.ldy = p.batch * p.n;
  given.y_batch_stride = p.n;
  const CProblem asked(p);
  ASSERT_EQ(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  y_ = rows_of(y_, bytes_of(p.y_type, p.n), true);
  EXPECT_EQ(check_result(), "");
  // Rows of one batch would reach into the next.
  given.ldx = p.batch * p.k - 1;
  EXPECT_NE(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_OK);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("x_batch_stride"));
}

TEST_P(Operations, WhatIsMissingIsNamedAndNothingIsWritten) {
  const std::vector<std::byte>& w = weight();
  const CProblem asked(GetParam());
  const OperandShapes shapes = operand_shapes(GetParam());
  const auto refused = [&](const gemmtune_operands& given, const std::string& word) {
    EXPECT_NE(gemmtune_gemm(context_, asked.get(), &given, nullptr), GEMMTUNE_OK) << word;
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(word));
  };
  gemmtune_operands given = operands(w);
  if (shapes.x.scale.type != ScaleType::none) {
    given.x_scale = nullptr;
    refused(given, "x_scale");
    given = operands(w);
    given.w_scale = nullptr;
    refused(given, "w_scale");
  }
  given = operands(w);
  if (shapes.x.scale.global) {
    given.x_global_scale = nullptr;
    refused(given, "x_global_scale");
    given = operands(w);
  }
  if (shapes.w.scale.global) {
    given.w_global_scale = nullptr;
    refused(given, "w_global_scale");
    given = operands(w);
  }
  if (shapes.w.scale.zero_points) {
    given.w_zero_points = nullptr;
    refused(given, "w_zero_points");
    given = operands(w);
  }
  if (GetParam().operation == Operation::fused_moe) {
    moe_.topk_ids = nullptr;
    refused(given, "topk_ids");
    given = operands(w);
    moe_.w2 = nullptr;
    refused(given, "w2");
    given = operands(w);
    if (GetParam().bias) {
      moe_.bias2 = nullptr;
      refused(given, "bias2");
      given = operands(w);
      given.bias = nullptr;
      refused(given, "bias");
      given = operands(w);
    }
    moe_.size = 0;
    refused(given, "gemmtune_moe_operands: size is 0");
    given = operands(w);
    given.moe = nullptr;
    refused(given, "moe is null");
  }
  given = operands(w);
  if (bits(GetParam().x_type) == 4) {
    given.ldx = GetParam().k + 1;
    refused(given, "ldx");
  }
  given = operands(w);
  given.ldy = output_columns(GetParam()) - 1;
  refused(given, "ldy");
  given = operands(w);
  if (GetParam().batch > 1) {
    given.y_batch_stride = 5;
    refused(given, "y_batch_stride");
  }
  EXPECT_EQ(y_, std::vector<std::byte>(y_.size()));
}

INSTANTIATE_TEST_SUITE_P(All, Operations, ::testing::ValuesIn(problems()), [](const auto& test) {
  const Problem& p = test.param;
  return std::string(to_string(form_of(p))) + "_" + std::string(to_string(p.x_type)) + "_" +
         std::string(to_string(p.weight_layout)) + (p.e8m0_scales ? "_ue8m0" : "") +
         (is_mixture(p) ? "_" + std::string(to_string(p.w_type)) : "");
});

TEST(OperationsOfZeroRows, ReturnAtOnce) {
  for (const OperationForm operation : all_operation_forms()) {
    Problem p = problem_of(operation, default_problem(operation).x_type);
    p.m = 0;
    const CProblem asked(p);
    gemmtune_context* context = nullptr;
    ASSERT_EQ(gemmtune_context_create(nullptr, &context), GEMMTUNE_OK);
    EXPECT_EQ(gemmtune_gemm(context, asked.get(), nullptr, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
    gemmtune_plan* plan = nullptr;
    EXPECT_EQ(gemmtune_plan_create(context, asked.get(), &plan), GEMMTUNE_OK) << gemmtune_last_error();
    gemmtune_operands given{};
    given.size = sizeof given;
    EXPECT_EQ(gemmtune_plan_run(plan, &given, nullptr, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
    gemmtune_plan_release(plan);
    gemmtune_context_destroy(context);
  }
}

}  // namespace
}  // namespace gemmtune
