// Problems of every operation through the C interface, and structures of programs that know a16w16 only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

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
  Problem known;
  EXPECT_EQ(c::read_problem(&asked, known), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_TRUE(check(known).ok()) << check(known).message();
  return known;
}

TEST(COperations, EachIsTheProblemOfItsTable) {
  const gemmtune_type x_types[] = {GEMMTUNE_BF16,      GEMMTUNE_I8,      GEMMTUNE_I8,   GEMMTUNE_F8_E4M3FN,
                                   GEMMTUNE_F8_E4M3FN, GEMMTUNE_F4_E2M1, GEMMTUNE_BF16, GEMMTUNE_I8};
  for (const Operation operation : all_operations()) {
    if (operation == Operation::fused_moe) continue;
    const auto asked =
        problem(static_cast<gemmtune_operation>(operation), x_types[static_cast<std::size_t>(operation)]);
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

TEST(COperations, WhatAMixtureOfExpertsHas) {
  auto asked = problem(GEMMTUNE_FUSED_MOE, GEMMTUNE_F4_E2M1);
  asked.w_type = GEMMTUNE_U8;
  asked.y_type = GEMMTUNE_F16;
  asked.experts = 32;
  asked.topk = 4;
  asked.activation = GEMMTUNE_ACTIVATION_SWIGLU;
  asked.quant_type = GEMMTUNE_QUANT_PER_1X32;
  asked.gated = 1;
  const Problem known = read(asked);
  EXPECT_EQ(known.w_type, DataType::u8);
  EXPECT_EQ(known.y_type, DataType::f16);
  EXPECT_EQ(known.moe, (MoeShape{32, 4, Activation::swiglu, QuantType::per_1x32, true, false}));
}

TEST(COperations, WordsOutsideTheirEnumerationsAreNamed) {
  const auto refused = [](const gemmtune_problem& asked) {
    Problem known;
    EXPECT_EQ(c::read_problem(&asked, known), GEMMTUNE_INVALID_ARGUMENT);
    return std::string(gemmtune_last_error());
  };
  EXPECT_THAT(refused(problem(static_cast<gemmtune_operation>(9), GEMMTUNE_BF16)), HasSubstr("operation"));
  EXPECT_THAT(refused(problem(GEMMTUNE_A16W16, static_cast<gemmtune_type>(10))), HasSubstr("type"));
  auto asked = problem(GEMMTUNE_FUSED_MOE, GEMMTUNE_BF16);
  asked.activation = static_cast<gemmtune_activation>(5);
  EXPECT_THAT(refused(asked), HasSubstr("activation"));
  asked.activation = GEMMTUNE_ACTIVATION_NONE;
  asked.quant_type = static_cast<gemmtune_quant_type>(6);
  EXPECT_THAT(refused(asked), HasSubstr("quant_type"));
}

TEST(COperations, AProblemOfTheFirstHeaderKeepsTheDefaultsOfWhatItDoesNotKnow) {
  auto old = problem(GEMMTUNE_A16W16, GEMMTUNE_BF16);
  old.size = offsetof(gemmtune_problem, batch);
  old.batch = -7;  // behind what it has: not read
  old.experts = 3;
  const Problem known = read(old);
  EXPECT_EQ(known.batch, 1);
  EXPECT_EQ(known.moe, MoeShape());
}

TEST(COperations, OptionsOfTheFirstHeaderOpenAContext) {
  gemmtune_context_options old{};
  old.size = offsetof(gemmtune_context_options, tuned_files_a8w8);
  old.tuned_files_a8w8 = reinterpret_cast<const char*>(1);  // not read: it would not be survived
  old.capture = 1;
  gemmtune_context* context = nullptr;
  ASSERT_EQ(gemmtune_context_create(&old, &context), GEMMTUNE_OK) << gemmtune_last_error();
  gemmtune_context_destroy(context);
}

TEST(COperations, TunedFilesOfEachOperationAreRead) {
  gemmtune_context_options options{};
  options.size = sizeof options;
  options.tuned_files_a16w16 = "/none/0";
  options.tuned_files_a8w8 = "/none/1";
  options.tuned_files_a8w8_bpreshuffle = "/none/2";
  options.tuned_files_a8w8_blockscale = "/none/3";
  options.tuned_files_a8w8_blockscale_bpreshuffle = "/none/4";
  options.tuned_files_a4w4_blockscale = "/none/5";
  options.tuned_files_batched_bf16 = "/none/6";
  options.tuned_files_batched_a8w8 = "/none/7";
  options.tuned_files_fused_moe = "/none/8";
  gemmtune_context* context = nullptr;
  ASSERT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_OK) << gemmtune_last_error();
  const auto& sources = context->context->tables()->sources;
  ASSERT_EQ(sources.size(), all_operations().size());
  for (std::size_t i = 0; i < sources.size(); ++i) {
    EXPECT_EQ(sources[i].operation, all_operations()[i]);
    EXPECT_EQ(sources[i].path, "/none/" + std::to_string(i));
  }
  gemmtune_context_destroy(context);
}

TEST(COperations, OneCallFormsAndWeightsAreThoseOfTheirOperation) {
  gemmtune_context* context = nullptr;
  ASSERT_EQ(gemmtune_context_create(nullptr, &context), GEMMTUNE_OK) << gemmtune_last_error();
  const auto asked = problem(GEMMTUNE_A8W8, GEMMTUNE_I8);
  gemmtune_operands operands{};
  operands.size = sizeof operands;
  EXPECT_EQ(gemmtune_gemm_a16w16(context, &asked, &operands, nullptr), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("GEMMTUNE_A16W16"));
  std::size_t bytes = 0;
  // An a8w8 weight is plain; packed it belongs to a8w8_bpreshuffle.
  EXPECT_EQ(gemmtune_packed_weight_bytes(context, &asked, GEMMTUNE_LAYOUT_PANEL16, &bytes),
            GEMMTUNE_INVALID_ARGUMENT);
  const auto shuffled = problem(GEMMTUNE_A8W8_BPRESHUFFLE, GEMMTUNE_I8);
  EXPECT_EQ(gemmtune_packed_weight_bytes(context, &shuffled, GEMMTUNE_LAYOUT_PANEL16, &bytes), GEMMTUNE_OK)
      << gemmtune_last_error();
  gemmtune_context_destroy(context);
}

}  // namespace
}  // namespace gemmtune
