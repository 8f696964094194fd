// Problems of every operation through the C interface.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "capi/c_support.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

gemmtune_problem problem(gemmtune_operation operation, gemmtune_type x_type) {
  gemmtune_problem asked{};
  asked.size = sizeof asked;
  asked.operation = operation;
  asked.x_type = x_type;
  asked.m = 16;
  asked.n = 64;
  asked.k = 128;
  return asked;
}

Problem read(const gemmtune_problem& asked) {
  gemmtune_problem known;
  Problem problem;
  EXPECT_EQ(c::read_problem(&asked, known, problem), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_TRUE(check(problem).ok()) << check(problem).message();
  return problem;
}

TEST(COperations, NumbersAreThoseOfTheHeader) {
  EXPECT_EQ(c::operation_to_c(Operation::a16w16), GEMMTUNE_A16W16);
  EXPECT_EQ(c::operation_to_c({Operation::a8w8, false}), GEMMTUNE_A8W8);
  EXPECT_EQ(c::operation_to_c({Operation::a8w8, true}), GEMMTUNE_A8W8_BPRESHUFFLE);
  EXPECT_EQ(c::operation_to_c({Operation::a8w8_blockscale, true}), GEMMTUNE_A8W8_BLOCKSCALE_BPRESHUFFLE);
  EXPECT_EQ(c::operation_to_c(Operation::fused_moe), GEMMTUNE_FUSED_MOE);
  EXPECT_EQ(c::operation_to_c(Operation::a8w4_int4), GEMMTUNE_A8W4_INT4);
  EXPECT_EQ(all_operation_forms().size(), GEMMTUNE_A8W4_INT4 + 1);
}

TEST(COperations, EachIsTheProblemOfItsTable) {
  const gemmtune_type x_types[] = {
      GEMMTUNE_BF16,      GEMMTUNE_I8,      GEMMTUNE_I8,        GEMMTUNE_F8_E4M3FN,
      GEMMTUNE_F8_E4M3FN, GEMMTUNE_F4_E2M1, GEMMTUNE_BF16,      GEMMTUNE_I8,
      GEMMTUNE_BF16,      GEMMTUNE_BF16,    GEMMTUNE_F8_E4M3FN, GEMMTUNE_BF16,
      GEMMTUNE_F8_E4M3FN, GEMMTUNE_F4_E2M1, GEMMTUNE_BF16,      GEMMTUNE_I8};
  for (const OperationForm operation : all_operation_forms()) {
    if (operation == Operation::fused_moe) continue;
    const gemmtune_operation of = c::operation_to_c(operation);
    auto asked = problem(of, x_types[static_cast<std::size_t>(of)]);
    if (operation.packed) asked.weight_layout = GEMMTUNE_LAYOUT_ANY;
    Problem expected = default_problem(operation);
    expected.m = 16;
    expected.n = 64;
    expected.k = 128;
    EXPECT_EQ(print(read(asked)), print(expected));
  }
}

TEST(COperations, ABatchAndItsDefault) {
  auto asked = problem(GEMMTUNE_BATCHED_A8W8, GEMMTUNE_I8);
  EXPECT_EQ(read(asked).batch, 1);
  asked.batch = 12;
  EXPECT_EQ(read(asked).batch, 12);
}

TEST(COperations, TypesAreThoseOfTheirNumbers) {
  for (const auto& [given, type] :
       {std::pair(GEMMTUNE_F32, DataType::f32), std::pair(GEMMTUNE_F16, DataType::f16),
        std::pair(GEMMTUNE_BF16, DataType::bf16)}) {
    EXPECT_EQ(read(problem(GEMMTUNE_A16W16, given)).x_type, type);
    auto mixed = problem(GEMMTUNE_A16W16, GEMMTUNE_BF16);
    mixed.y_type = given;
    EXPECT_EQ(read(mixed).y_type, type);
  }
  EXPECT_EQ(read(problem(GEMMTUNE_A8W8, GEMMTUNE_F8_E4M3FN)).x_type, DataType::f8_e4m3fn);
  EXPECT_EQ(read(problem(GEMMTUNE_A8W8, GEMMTUNE_F8_E4M3FNUZ)).w_type, DataType::f8_e4m3fnuz);
}

gemmtune_moe mixture() {
  gemmtune_moe moe{};
  moe.size = sizeof moe;
  moe.experts = 32;
  moe.topk = 4;
  moe.activation = GEMMTUNE_ACTIVATION_SWIGLU;
  moe.quant_type = GEMMTUNE_QUANT_PER_1X32;
  moe.gated = 1;
  return moe;
}

TEST(COperations, WhatAMixtureOfExpertsHas) {
  const gemmtune_moe moe = mixture();
  auto asked = problem(GEMMTUNE_FUSED_MOE, GEMMTUNE_F4_E2M1);
  asked.w_type = GEMMTUNE_U8;
  asked.y_type = GEMMTUNE_F16;
  asked.moe = &moe;
  const Problem known = read(asked);
  EXPECT_EQ(known.w_type, DataType::u8);
  EXPECT_EQ(known.y_type, DataType::f16);
  EXPECT_EQ(known.moe, (MoeShape{.experts = 32,
                                 .topk = 4,
                                 .activation = Activation::swiglu,
                                 .quant_type = QuantType::per_1x32,
                                 .gated = true}));
}

/// What read_problem or check says of a wrong one.
std::string refusal(const gemmtune_problem& asked, gemmtune_status expected = GEMMTUNE_INVALID_ARGUMENT) {
  gemmtune_problem known;
  Problem problem;
  const gemmtune_status status = c::read_problem(&asked, known, problem);
  if (status == GEMMTUNE_OK) return check(problem).message();
  EXPECT_EQ(status, expected);
  return gemmtune_last_error();
}

TEST(COperations, AMixtureWithoutItsStructureAndTheStructureElsewhereAreRefused) {
  EXPECT_THAT(refusal(problem(GEMMTUNE_FUSED_MOE, GEMMTUNE_BF16), GEMMTUNE_NULL_POINTER),
              HasSubstr("gemmtune_problem: moe is null"));
  const gemmtune_moe moe = mixture();
  auto dense = problem(GEMMTUNE_A16W16, GEMMTUNE_BF16);
  dense.moe = &moe;
  EXPECT_THAT(refusal(dense), HasSubstr("mixture of experts"));
}

TEST(COperations, EnumeratorsThatDoNotExistAreNamedWithTheirField) {
  EXPECT_THAT(refusal(problem(static_cast<gemmtune_operation>(all_operation_forms().size()), GEMMTUNE_BF16)),
              HasSubstr("operation is " + std::to_string(all_operation_forms().size())));
  EXPECT_THAT(refusal(problem(GEMMTUNE_A16W16, static_cast<gemmtune_type>(10))), HasSubstr("x_type is 10"));
  EXPECT_THAT(refusal(problem(GEMMTUNE_A16W16, GEMMTUNE_TYPE_UNSET)), HasSubstr("x_type is not set"));
  auto asked = problem(GEMMTUNE_A16W16, GEMMTUNE_BF16);
  asked.w_type = static_cast<gemmtune_type>(11);
  EXPECT_THAT(refusal(asked), HasSubstr("w_type is 11"));
  asked.w_type = GEMMTUNE_TYPE_UNSET;
  asked.y_type = static_cast<gemmtune_type>(12);
  EXPECT_THAT(refusal(asked), HasSubstr("y_type is 12"));
  asked.y_type = GEMMTUNE_TYPE_UNSET;
  asked.weight_layout = 3;
  EXPECT_THAT(refusal(asked), HasSubstr("weight layout is 3"));
  gemmtune_moe moe = mixture();
  asked = problem(GEMMTUNE_FUSED_MOE, GEMMTUNE_BF16);
  asked.moe = &moe;
  moe.activation = static_cast<gemmtune_activation>(5);
  EXPECT_THAT(refusal(asked), HasSubstr("activation is 5"));
  moe.activation = GEMMTUNE_ACTIVATION_NONE;
  const int beyond_all = 8;  // no value of a C++ enumeration of these names: written as a C program does
  static_assert(sizeof beyond_all == sizeof moe.quant_type);
  std::memcpy(&moe.quant_type, &beyond_all, sizeof beyond_all);
  EXPECT_THAT(refusal(asked), HasSubstr("quant_type is 8"));
}

TEST(COperations, APackedOperationRefusesAPlainWeight) {
  EXPECT_THAT(refusal(problem(GEMMTUNE_A8W8_BPRESHUFFLE, GEMMTUNE_I8)), HasSubstr("expected a packed one"));
}

/// Products of sizes are checked before they overflow.
TEST(COperations, SizesWhoseProductsAreTooLargeAreRefused) {
  constexpr std::int64_t largest = (std::int64_t{1} << 31) - 1;
  auto asked = problem(GEMMTUNE_BATCHED_BF16, GEMMTUNE_BF16);
  asked.batch = asked.m = largest;
  EXPECT_THAT(refusal(asked), HasSubstr("2^47 bytes"));
  asked = problem(GEMMTUNE_A16W16, GEMMTUNE_F32);
  asked.n = asked.k = largest;
  EXPECT_THAT(refusal(asked), HasSubstr("2^47 bytes"));
  gemmtune_moe moe = mixture();
  moe.quant_type = GEMMTUNE_QUANT_NONE;
  moe.experts = static_cast<std::int32_t>(largest);
  asked = problem(GEMMTUNE_FUSED_MOE, GEMMTUNE_BF16);
  asked.moe = &moe;
  asked.n = asked.k = 1024;
  EXPECT_THAT(refusal(asked), HasSubstr("w1 and w2"));
  moe.topk = moe.experts;
  asked.n = asked.k = 1;
  asked.m = largest;
  EXPECT_THAT(refusal(asked), HasSubstr("topk_ids"));
}

std::vector<gemmtune_tuned_files> files_of_all_operations(const std::vector<std::string>& paths) {
  std::vector<gemmtune_tuned_files> files;
  for (std::size_t i = 0; i < paths.size(); ++i)
    files.push_back({static_cast<gemmtune_operation>(i), paths[i].c_str()});
  return files;
}

TEST(COperations, TunedFilesOfEachOperationAreRead) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < all_operation_forms().size(); ++i)
    paths.push_back("/none/" + std::to_string(i));
  const auto files = files_of_all_operations(paths);
  gemmtune_context_options options{};
  options.size = sizeof options;
  options.tuned_files = files.data();
  options.tuned_file_count = files.size();
  gemmtune_context* context = nullptr;
  ASSERT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
  const auto& sources = context->context->tables()->sources;
  ASSERT_EQ(sources.size(), all_operation_forms().size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(sources[i].operation, all_operation_forms()[i]);
    EXPECT_EQ(sources[i].path, "/none/" + std::to_string(i));
  }
  gemmtune_context_destroy(context);
}

TEST(COperations, WrongTunedFilesAreNamed) {
  std::vector<gemmtune_tuned_files> files{{GEMMTUNE_A8W8, "/none/a"}, {GEMMTUNE_A8W8, "/none/b"}};
  gemmtune_context_options options{};
  options.size = sizeof options;
  options.tuned_file_count = files.size();
  gemmtune_context* context = nullptr;
  EXPECT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_NULL_POINTER);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("tuned_files is null"));
  options.tuned_files = files.data();
  EXPECT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("tuned_files[1]: a second entry of a8w8"));
  files[1].operation = static_cast<gemmtune_operation>(all_operation_forms().size());
  EXPECT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(),
              HasSubstr("operation is " + std::to_string(all_operation_forms().size())));
  EXPECT_EQ(context, nullptr);
  files[1] = {GEMMTUNE_A16W16, nullptr};  // the default
  EXPECT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
  gemmtune_context_destroy(context);
}

TEST(COperations, WeightsArePackedAsTheirOperationTakesThem) {
  gemmtune_context_options options{};
  options.size = sizeof options;
  options.config_folder = "/none";
  options.backend = "cpu";
  gemmtune_context* context = nullptr;
  ASSERT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
  const auto plain = problem(GEMMTUNE_A8W8, GEMMTUNE_I8);
  const auto packed = problem(GEMMTUNE_A8W8_BPRESHUFFLE, GEMMTUNE_I8);
  // Without rows: plain, or what the fallback reads if there is no plain weight.
  gemmtune_layout layout = GEMMTUNE_LAYOUT_ANY;
  ASSERT_EQ(gemmtune_weight_layout(context, &plain, &layout), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(layout, GEMMTUNE_LAYOUT_PLAIN);
  ASSERT_EQ(gemmtune_weight_layout(context, &packed, &layout), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_STREQ(gemmtune_layout_text(layout), "panel16");
  std::size_t bytes = 0;
  // An a8w8 weight is plain; packed it belongs to a8w8_bpreshuffle.
  EXPECT_EQ(gemmtune_packed_weight_bytes(context, &plain, layout, &bytes), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(gemmtune_packed_weight_bytes(context, &packed, GEMMTUNE_LAYOUT_ANY, &bytes),
            GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(gemmtune_packed_weight_bytes(context, &packed, layout, &bytes), GEMMTUNE_OK)
      << gemmtune_last_error();
  gemmtune_context_destroy(context);
}

gemmtune_scales scales_of(const gemmtune_problem& asked) {
  gemmtune_scales scales{};
  scales.size = sizeof scales;
  EXPECT_EQ(gemmtune_problem_scales(&asked, &scales), GEMMTUNE_OK) << gemmtune_last_error();
  return scales;
}

/// The table at gemmtune_operands, written out once more; sizes that 32 and 128 do not divide where they may be so.
TEST(COperations, EachHasTheScalesOfItsTable) {
  const auto counts = [](gemmtune_problem asked) {
    const gemmtune_scales found = scales_of(asked);
    return std::vector<std::int64_t>{found.x,      found.x_type,   found.x_or_one, found.w,
                                     found.w_type, found.w_or_one, found.w2};
  };
  using Counts = std::vector<std::int64_t>;
  auto bf16 = problem(GEMMTUNE_A16W16, GEMMTUNE_BF16);
  EXPECT_EQ(counts(bf16), (Counts{0, 0, 0, 0, 0, 0, 0}));
  auto fp8 = problem(GEMMTUNE_A16W16, GEMMTUNE_F8_E4M3FN);
  fp8.scale_ab = 1;
  fp8.y_type = GEMMTUNE_BF16;
  EXPECT_EQ(counts(fp8), (Counts{1, GEMMTUNE_F32, 0, 1, GEMMTUNE_F32, 0, 0}));
  EXPECT_EQ(counts(problem(GEMMTUNE_A8W8, GEMMTUNE_I8)),
            (Counts{16, GEMMTUNE_F32, 1, 64, GEMMTUNE_F32, 1, 0}));
  auto none = problem(GEMMTUNE_A8W8, GEMMTUNE_I8);
  none.m = 0;
  EXPECT_EQ(counts(none), (Counts{0, GEMMTUNE_F32, 1, 64, GEMMTUNE_F32, 1, 0}));
  auto batches = problem(GEMMTUNE_BATCHED_A8W8, GEMMTUNE_I8);
  batches.batch = 3;
  EXPECT_EQ(counts(batches), (Counts{48, GEMMTUNE_F32, 1, 192, GEMMTUNE_F32, 1, 0}));
  auto blocks = problem(GEMMTUNE_A8W8_BLOCKSCALE, GEMMTUNE_F8_E4M3FN);
  blocks.n = 130;
  blocks.k = 272;
  EXPECT_EQ(counts(blocks), (Counts{48, GEMMTUNE_F32, 0, 6, GEMMTUNE_F32, 0, 0}));
  blocks.e8m0_scales = 1;
  EXPECT_EQ(counts(blocks), (Counts{48, GEMMTUNE_U8, 0, 6, GEMMTUNE_U8, 0, 0}));
  EXPECT_EQ(counts(problem(GEMMTUNE_A4W4_BLOCKSCALE, GEMMTUNE_F4_E2M1)),
            (Counts{64, GEMMTUNE_U8, 0, 256, GEMMTUNE_U8, 0, 0}));
  EXPECT_EQ(counts(problem(GEMMTUNE_A16W4, GEMMTUNE_BF16)), (Counts{0, 0, 0, 256, GEMMTUNE_U8, 0, 0}));
  EXPECT_EQ(counts(problem(GEMMTUNE_A8W4, GEMMTUNE_F8_E4M3FN)),
            (Counts{16, GEMMTUNE_F32, 1, 256, GEMMTUNE_U8, 0, 0}));
}

TEST(COperations, AMixtureHasTheScalesOfItsQuantization) {
  gemmtune_moe moe{};
  moe.size = sizeof moe;
  moe.experts = 5;
  moe.topk = 2;
  moe.gated = 1;
  moe.activation = GEMMTUNE_ACTIVATION_SILU;
  const auto counts = [&](gemmtune_quant_type quant_type, gemmtune_type x_type, gemmtune_type w_type) {
    auto asked = problem(GEMMTUNE_FUSED_MOE, x_type);
    asked.n = 96;   // inter_dim: w1 has 192 rows
    asked.k = 160;  // model_dim
    asked.w_type = w_type;
    asked.moe = &moe;
    moe.quant_type = quant_type;
    asked.w_group = quant_type == GEMMTUNE_QUANT_PER_GROUP ? 32 : 0;
    asked.zero_points = quant_type == GEMMTUNE_QUANT_PER_GROUP ? 1 : 0;
    const gemmtune_scales found = scales_of(asked);
    EXPECT_EQ(found.x_or_one + found.w_or_one, 0);
    const int global = quant_type == GEMMTUNE_QUANT_PER_1X16 ? 1 : 0;
    EXPECT_EQ(found.w_global, global);
    EXPECT_EQ(found.w2_global, global);
    EXPECT_EQ(found.w_zero_points, asked.zero_points == 0 ? 0 : found.w);
    EXPECT_EQ(found.w2_zero_points, asked.zero_points == 0 ? 0 : found.w2);
    return std::vector<std::int64_t>{found.x, found.x_type, found.w, found.w_type, found.w2, found.w2_type};
  };
  using Counts = std::vector<std::int64_t>;
  constexpr auto fp8 = GEMMTUNE_F8_E4M3FN;
  constexpr auto fp4 = GEMMTUNE_F4_E2M1;
  constexpr auto f32 = GEMMTUNE_F32;
  constexpr auto u8 = GEMMTUNE_U8;
  EXPECT_EQ(counts(GEMMTUNE_QUANT_NONE, GEMMTUNE_BF16, GEMMTUNE_BF16), (Counts{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(counts(GEMMTUNE_QUANT_PER_TENSOR, fp8, fp8), (Counts{1, f32, 5, f32, 5, f32}));
  EXPECT_EQ(counts(GEMMTUNE_QUANT_PER_TOKEN, fp8, fp8), (Counts{16, f32, 5 * 192, f32, 5 * 160, f32}));
  EXPECT_EQ(counts(GEMMTUNE_QUANT_PER_1X128, fp8, fp8), (Counts{32, f32, 5 * 2 * 2, f32, 5 * 2, f32}));
  EXPECT_EQ(counts(GEMMTUNE_QUANT_PER_1X32, GEMMTUNE_BF16, fp4),
            (Counts{0, 0, 5 * 192 * 5, u8, 5 * 160 * 3, u8}));
  // Scales of MXFP4 weights are per 1 x 32 whatever those of the tokens are.
  EXPECT_EQ(counts(GEMMTUNE_QUANT_PER_TOKEN, fp8, fp4), (Counts{16, f32, 5 * 192 * 5, u8, 5 * 160 * 3, u8}));
  EXPECT_EQ(counts(GEMMTUNE_QUANT_PER_1X16, GEMMTUNE_BF16, fp4),
            (Counts{0, 0, 5 * 192 * 10, fp8, 5 * 160 * 6, fp8}));
  EXPECT_EQ(counts(GEMMTUNE_QUANT_PER_GROUP, GEMMTUNE_BF16, GEMMTUNE_I4),
            (Counts{0, 0, 5 * 192 * 5, GEMMTUNE_BF16, 5 * 160 * 3, GEMMTUNE_BF16}));
}

TEST(COperations, ScalesOfWhatNoKernelMayHave) {
  gemmtune_scales scales{};
  scales.size = sizeof scales;
  auto asked = problem(GEMMTUNE_A16W4, GEMMTUNE_BF16);
  EXPECT_EQ(gemmtune_problem_scales(nullptr, &scales), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_problem_scales(&asked, nullptr), GEMMTUNE_NULL_POINTER);
  asked.k = 33;
  EXPECT_EQ(gemmtune_problem_scales(&asked, &scales), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("33"));
  scales.size = 8;
  EXPECT_EQ(gemmtune_problem_scales(&asked, &scales), GEMMTUNE_INVALID_ARGUMENT);
}

/// The workspace of a mixture is computed in 64 bits, and one that no machine has is refused.
TEST(COperations, AMixtureOfVeryManyExpertsHasAWorkspaceForAllOfThem) {
  gemmtune_context_options options{};
  options.size = sizeof options;
  options.config_folder = "/none";
  options.backend = "cpu";
  gemmtune_context* context = nullptr;
  ASSERT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
  for (const std::int64_t experts : {1000LL, 536870910LL, 536870911LL, 1073741823LL, 2147483647LL}) {
    gemmtune_moe moe{};
    moe.size = sizeof moe;
    moe.experts = static_cast<std::int32_t>(experts);
    moe.topk = 1;
    moe.activation = GEMMTUNE_ACTIVATION_SILU;
    auto asked = problem(GEMMTUNE_FUSED_MOE, GEMMTUNE_BF16);
    asked.m = asked.n = asked.k = 1;
    asked.moe = &moe;
    gemmtune_plan* plan = nullptr;
    ASSERT_EQ(gemmtune_plan_create(context, &asked, &plan), GEMMTUNE_OK) << experts << gemmtune_last_error();
    gemmtune_plan_info info{};
    info.size = sizeof info;
    ASSERT_EQ(gemmtune_plan_get_info(plan, &info), GEMMTUNE_OK);
    EXPECT_GE(info.workspace_bytes, static_cast<std::size_t>(experts + 1) * 4) << info.kernel_name;
    EXPECT_LT(info.workspace_bytes, static_cast<std::size_t>(experts + 1) * 4 + (1U << 20));
    gemmtune_plan_release(plan);
  }
  gemmtune_context_destroy(context);
}

}  // namespace
}  // namespace gemmtune
