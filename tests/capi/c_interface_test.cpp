// The C functions over the fake device: structures of any size, what run refuses, strides, packed weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "support/c_interface_fixture.h"

namespace gemmtune {
namespace {

using test::CInterface;
using test::row;
using test::small_problem;
using ::testing::Each;
using ::testing::HasSubstr;

TEST_F(CInterface, RunsAPlanAndDescribesIt) {
  make(problem(3, true));
  ASSERT_EQ(run(operands()), GEMMTUNE_OK) << gemmtune_last_error();
  expect_result(3, true);
  gemmtune_plan_info info{};
  info.size = sizeof info;
  ASSERT_EQ(gemmtune_plan_get_info(plan_, &info), GEMMTUNE_OK);
  EXPECT_EQ(info.match, GEMMTUNE_MATCH_EXACT);
  EXPECT_EQ(info.hit_m, 3);
  EXPECT_STREQ(info.kernel_name, "alpha_r1_a1");
  EXPECT_STREQ(info.family, "alpha");
  EXPECT_THAT(info.file, HasSubstr("t.csv"));
  EXPECT_EQ(info.line, 3U);
  EXPECT_EQ(info.workspace_bytes, 128U);
  EXPECT_EQ(info.size, sizeof info);
}

TEST_F(CInterface, LeadingDimensionsAreHonoured) {
  make(problem(3));
  gemmtune_operands given = operands();
  given.ldx = 37;
  given.ldy = 29;
  ASSERT_EQ(run(given), GEMMTUNE_OK) << gemmtune_last_error();
  expect_result(3, false, 37, 29);
}

TEST_F(CInterface, BadLeadingDimensionsAreRefusedAndNothingIsWritten) {
  make(problem(3));
  gemmtune_operands given = operands();
  given.ldx = k - 1;
  EXPECT_EQ(run(given), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("ldx = 23, expected 24"));
  given = operands();
  given.ldy = -1;
  EXPECT_EQ(run(given), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("ldy = -1"));
  EXPECT_THAT(arrays_.y, Each(untouched));
}

TEST_F(CInterface, AFoundPlanIsOneThatWasMade) {
  gemmtune_problem asked = problem(3);
  gemmtune_plan* found = nullptr;
  EXPECT_EQ(gemmtune_plan_find(&handle_, &asked, &found), GEMMTUNE_NOT_FOUND);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("no plan of a16w16 m=3 n=20 k=24"));
  EXPECT_EQ(found, nullptr);
  make(asked);
  gemmtune_counters before{};
  before.size = sizeof before;
  ASSERT_EQ(gemmtune_context_counters(&handle_, &before), GEMMTUNE_OK);
  ASSERT_EQ(gemmtune_plan_find(&handle_, &asked, &found), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(found, plan_);
  gemmtune_plan_release(found);
  gemmtune_counters after = before;
  ASSERT_EQ(gemmtune_context_counters(&handle_, &after), GEMMTUNE_OK);
  const auto answers = [](const gemmtune_counters& c) {
    return c.exact + c.range + c.fine + c.coarse + c.untuned;
  };
  EXPECT_EQ(answers(after), answers(before) + 1);
  EXPECT_EQ(after.plans_made, before.plans_made);
  ASSERT_EQ(gemmtune_context_reload(&handle_), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(gemmtune_plan_find(&handle_, &asked, &found), GEMMTUNE_NOT_FOUND);
}

TEST_F(CInterface, AnOrderThatIsNoneIsNamed) {
  gemmtune_problem asked = problem(3);
  gemmtune_plan* plan = nullptr;
  asked.x_order = std::bit_cast<gemmtune_order>(2);
  EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("x_order is 2, none of enum gemmtune_order"));
  asked = problem(3);
  asked.w_order = std::bit_cast<gemmtune_order>(-1);
  EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("w_order"));
  asked = problem(3);
  asked.operation = GEMMTUNE_A8W8;
  asked.x_type = GEMMTUNE_I8;
  asked.w_order = GEMMTUNE_COLUMN_MAJOR;
  EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("with a16w16 only"));
}

/// A program of the release before the orders passes the size that the structure had then.
TEST_F(CInterface, AProgramThatKnowsNoOrdersHasRowMajorOperands) {
  gemmtune_problem asked = problem(3);
  asked.size = offsetof(gemmtune_problem, x_order);
  asked.x_order = GEMMTUNE_COLUMN_MAJOR;  // behind what it knows
  make(asked);
  ASSERT_EQ(run(operands()), GEMMTUNE_OK) << gemmtune_last_error();
  expect_result(3, false);
}

TEST_F(CInterface, NullPointersAreNamed) {
  make(problem(3, true));
  const auto without = [&](auto member, const char* name) {
    gemmtune_operands given = operands();
    given.*member = nullptr;
    EXPECT_EQ(run(given), GEMMTUNE_NULL_POINTER);
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(std::string(name) + " is null"));
  };
  without(&gemmtune_operands::x, "x");
  without(&gemmtune_operands::w, "w");
  without(&gemmtune_operands::bias, "bias");
  without(&gemmtune_operands::y, "y");
  const gemmtune_operands given = operands();
  EXPECT_EQ(gemmtune_plan_run(plan_, &given, nullptr, nullptr), GEMMTUNE_NULL_POINTER);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("workspace is null"));
  EXPECT_EQ(gemmtune_plan_run(nullptr, &given, nullptr, nullptr), GEMMTUNE_NULL_POINTER);
  EXPECT_EQ(gemmtune_plan_run(plan_, nullptr, nullptr, nullptr), GEMMTUNE_NULL_POINTER);
  EXPECT_THAT(arrays_.y, Each(untouched));
  make(problem(3));
  without(&gemmtune_operands::y, "y");
  gemmtune_operands no_bias = operands();
  no_bias.bias = nullptr;
  EXPECT_EQ(run(no_bias), GEMMTUNE_OK);
}

TEST_F(CInterface, MisalignedPointersAreRefused) {
  make(problem(3));
  gemmtune_operands given = operands();
  given.w = arrays_.w + 1;
  EXPECT_EQ(run(given), GEMMTUNE_MISALIGNED);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("expected a multiple of 16 bytes"));
  const gemmtune_operands right = operands();
  EXPECT_EQ(gemmtune_plan_run(plan_, &right, arrays_.workspace + 16, nullptr), GEMMTUNE_MISALIGNED);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("workspace"));
  EXPECT_THAT(arrays_.y, Each(untouched));
  gemmtune_problem loose = problem(3);
  loose.alignment = 4;
  make(loose);
  EXPECT_EQ(run(given), GEMMTUNE_OK) << gemmtune_last_error();
}

TEST_F(CInterface, ZeroRowsReturnAtOnce) {
  make(problem(0));
  gemmtune_operands nothing{};
  nothing.size = sizeof nothing;
  EXPECT_EQ(gemmtune_plan_run(plan_, &nothing, nullptr, nullptr), GEMMTUNE_OK);
  const gemmtune_problem zero = problem(0);
  const gemmtune_operands given = operands();
  EXPECT_EQ(gemmtune_gemm(&handle_, &zero, &given, nullptr), GEMMTUNE_OK);
  EXPECT_THAT(arrays_.y, Each(untouched));
}

TEST_F(CInterface, ZeroColumnsReturnAtOnce) {
  gemmtune_problem asked = problem(3);
  asked.n = 0;
  gemmtune_operands nothing{};
  nothing.size = sizeof nothing;
  EXPECT_EQ(gemmtune_gemm(&handle_, &asked, &nothing, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  make(asked);
  EXPECT_EQ(gemmtune_plan_run(plan_, &nothing, nullptr, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
}

TEST_F(CInterface, WithoutASumYIsTheBiasOrZero) {
  for (const bool bias : {false, true}) {
    gemmtune_problem asked = problem(3, bias);
    asked.k = 0;
    make(asked);
    gemmtune_plan_info info{};
    info.size = sizeof info;
    ASSERT_EQ(gemmtune_plan_get_info(plan_, &info), GEMMTUNE_OK);
    EXPECT_STREQ(info.rule, "K = 0: each row of y is the bias, or zero");
    for (float& value : arrays_.y) value = untouched;
    gemmtune_operands given = operands();
    given.x = given.w = nullptr;
    given.ldy = 29;
    ASSERT_EQ(run(given), GEMMTUNE_OK) << gemmtune_last_error();
    for (std::size_t i = 0; i < 3; ++i)
      for (std::size_t j = 0; j < 29; ++j)
        ASSERT_EQ(arrays_.y[i * 29 + j], j >= 20 ? untouched : bias ? arrays_.bias[j] : 0) << i << ' ' << j;
    EXPECT_EQ(gemmtune_gemm(&handle_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  }
}

TEST_F(CInterface, AnOutputThatOverlapsAnInputIsRefused) {
  make(problem(3, true));
  const auto refused = [&](const char* name, const void* x, const void* w, const void* bias, void* y) {
    gemmtune_operands given = operands();
    given.x = x;
    given.w = w;
    given.bias = bias;
    given.y = y;
    EXPECT_EQ(run(given), GEMMTUNE_INVALID_ARGUMENT) << name;
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(std::string("y overlaps ") + name));
  };
  refused("x", arrays_.x, arrays_.w, arrays_.bias, arrays_.x);
  refused("x", arrays_.x, arrays_.w, arrays_.bias, arrays_.x + 3 * k - 4);
  refused("w", arrays_.x, arrays_.w, arrays_.bias, arrays_.w + n * k - 4);
  refused("bias", arrays_.x, arrays_.w, arrays_.y + 2 * n, arrays_.y);
  EXPECT_THAT(arrays_.y, Each(untouched));
  gemmtune_operands given = operands();  // behind each other
  given.x = arrays_.w + n * k;
  given.y = arrays_.w + n * k + 3 * k;
  EXPECT_EQ(run(given), GEMMTUNE_OK) << gemmtune_last_error();
}

TEST_F(CInterface, RowsOfXAndYMayTakeTurns) {
  make(problem(3));
  gemmtune_operands given = operands();
  for (std::size_t i = 0; i < 3; ++i) std::copy_n(arrays_.x + i * k, k, arrays_.y + i * 48);
  given.x = arrays_.y;
  given.y = arrays_.y + k;
  given.ldx = given.ldy = 48;
  ASSERT_EQ(run(given), GEMMTUNE_OK) << gemmtune_last_error();
  const auto expect_sum = [&](std::size_t i, std::size_t j) {
    float sum = 0;
    for (std::size_t l = 0; l < k; ++l) sum += arrays_.x[i * k + l] * arrays_.w[j * k + l];
    EXPECT_EQ(arrays_.y[i * 48 + k + j], sum) << i << ' ' << j;
  };
  for (std::size_t i = 0; i < 3; ++i)
    for (std::size_t j = 0; j < n; ++j) expect_sum(i, j);
  given.y = arrays_.y + k - 4;
  EXPECT_EQ(run(given), GEMMTUNE_INVALID_ARGUMENT);
}

TEST_F(CInterface, TheShortFormFindsItsWorkspace) {
  const gemmtune_problem asked = problem(3, true);
  const gemmtune_operands given = operands();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(gemmtune_gemm(&handle_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  }
  expect_result(3, true);
  EXPECT_EQ(handle_.context->workspaces().buffers(), 1U);
  gemmtune_counters counters{};
  counters.size = sizeof counters;
  ASSERT_EQ(gemmtune_context_counters(&handle_, &counters), GEMMTUNE_OK);
  EXPECT_EQ(counters.exact, 3U);
  EXPECT_EQ(counters.plans_made, 1U);
}

// ---- structures of other versions ------------------------------------------------------------------------

/// Every structure that a function takes is read by these rules.
TEST_F(CInterface, AStructureWithoutItsSizeIsRefusedByName) {
  const auto refused = [](gemmtune_status status, const char* name) {
    EXPECT_EQ(status, GEMMTUNE_INVALID_ARGUMENT) << name;
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(std::string(name) + ": size is"));
  };
  gemmtune_problem asked = problem(3);
  asked.size = offsetof(gemmtune_problem, predecessor_triggers);  // less than in the first release
  gemmtune_plan* plan = nullptr;
  refused(gemmtune_plan_create(&handle_, &asked, &plan), "gemmtune_problem");
  refused(gemmtune_gemm(&handle_, &asked, nullptr, nullptr), "gemmtune_problem");
  gemmtune_layout layout = GEMMTUNE_LAYOUT_PLAIN;
  refused(gemmtune_weight_layout(&handle_, &asked, &layout), "gemmtune_problem");
  asked = problem(3);
  asked.operation = GEMMTUNE_FUSED_MOE;
  const gemmtune_moe moe{};
  asked.moe = &moe;
  refused(gemmtune_plan_create(&handle_, &asked, &plan), "gemmtune_moe");
  make(problem(3));
  gemmtune_operands given = operands();
  given.size = 8;
  refused(run(given), "gemmtune_operands");
  asked = problem(3);
  refused(gemmtune_gemm(&handle_, &asked, &given, nullptr), "gemmtune_operands");
  gemmtune_plan_info info{};
  refused(gemmtune_plan_get_info(plan_, &info), "gemmtune_plan_info");
  gemmtune_device_info device{};
  refused(gemmtune_context_device(&handle_, &device), "gemmtune_device_info");
  gemmtune_counters counters{};
  refused(gemmtune_context_counters(&handle_, &counters), "gemmtune_counters");
  gemmtune_miss_handler handler{};
  refused(gemmtune_context_set_miss_handler(&handle_, &handler), "gemmtune_miss_handler");
  const gemmtune_context_options options{};
  gemmtune_context* context = &handle_;
  refused(gemmtune_context_create(&options, &context), "gemmtune_context_options");
  EXPECT_EQ(context, nullptr);
}

TEST_F(CInterface, WordsOfTypesAreTheDevices) {
  gemmtune_type type = GEMMTUNE_TYPE_UNSET;
  ASSERT_EQ(gemmtune_context_type(&handle_, "fp8", &type), GEMMTUNE_OK);
  EXPECT_EQ(type, GEMMTUNE_F8_E4M3FN) << "of a CPU";
  ASSERT_EQ(gemmtune_context_type(&handle_, "torch.float8_e4m3fnuz", &type), GEMMTUNE_OK);
  EXPECT_EQ(type, GEMMTUNE_F8_E4M3FNUZ);
  ASSERT_EQ(gemmtune_context_type(&handle_, "int4", &type), GEMMTUNE_OK);
  EXPECT_EQ(type, GEMMTUNE_I4);
  EXPECT_EQ(gemmtune_context_type(&handle_, "fp7", &type), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(gemmtune_last_error(), "word is 'fp7', expected a type such as bf16 or fp8");
}

TEST_F(CInterface, NullArgumentsAreNamed) {
  const auto refused = [](gemmtune_status status, const char* text) {
    EXPECT_EQ(status, GEMMTUNE_NULL_POINTER) << text;
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(text));
  };
  const gemmtune_problem asked = problem(3);
  gemmtune_plan* plan = nullptr;
  gemmtune_context* none = nullptr;
  refused(gemmtune_context_create(nullptr, nullptr), "gemmtune_context_create: context is null");
  refused(gemmtune_default_context(nullptr), "gemmtune_default_context: context is null");
  refused(gemmtune_context_reload(none), "gemmtune_context_reload: context is null");
  refused(gemmtune_context_reload_online(none), "gemmtune_context_reload_online: context is null");
  refused(gemmtune_context_sources(none, nullptr, 0, nullptr), "gemmtune_context_sources: context is null");
  refused(gemmtune_context_sources(&handle_, nullptr, 5, nullptr), "gemmtune_context_sources: text is null");
  refused(gemmtune_context_device(none, nullptr), "gemmtune_context_device: context is null");
  refused(gemmtune_context_device(&handle_, nullptr), "gemmtune_device_info: the structure is null");
  gemmtune_type type = GEMMTUNE_TYPE_UNSET;
  refused(gemmtune_context_type(none, "fp8", &type), "gemmtune_context_type: context is null");
  refused(gemmtune_context_type(&handle_, nullptr, &type), "gemmtune_context_type: word is null");
  refused(gemmtune_context_type(&handle_, "fp8", nullptr), "gemmtune_context_type: type is null");
  refused(gemmtune_context_counters(none, nullptr), "gemmtune_context_counters: context is null");
  refused(gemmtune_context_counters(&handle_, nullptr), "gemmtune_counters: the structure is null");
  refused(gemmtune_context_log(none, 1, "x"), "gemmtune_context_log: context is null");
  refused(gemmtune_context_log(&handle_, 1, nullptr), "gemmtune_context_log: line is null");
  refused(gemmtune_context_set_miss_handler(none, nullptr),
          "gemmtune_context_set_miss_handler: context is null");
  gemmtune_miss_handler handler{};
  handler.size = sizeof handler;
  refused(gemmtune_context_set_miss_handler(&handle_, &handler),
          "gemmtune_context_set_miss_handler: missed is null");
  refused(gemmtune_capture_flush(none), "gemmtune_capture_flush: context is null");
  refused(gemmtune_plan_create(none, &asked, &plan), "gemmtune_plan_create: context is null");
  refused(gemmtune_plan_create(&handle_, &asked, nullptr), "gemmtune_plan_create: plan is null");
  refused(gemmtune_plan_create(&handle_, nullptr, &plan), "gemmtune_problem: the structure is null");
  refused(gemmtune_plan_create_tuned(none, &asked, &plan), "gemmtune_plan_create_tuned: context is null");
  refused(gemmtune_plan_find(none, &asked, &plan), "gemmtune_plan_find: context is null");
  refused(gemmtune_plan_get_info(nullptr, nullptr), "gemmtune_plan_get_info: plan is null");
  refused(gemmtune_gemm(&handle_, nullptr, nullptr, nullptr), "gemmtune_problem: the structure is null");
  refused(gemmtune_gemm(&handle_, &asked, nullptr, nullptr), "gemmtune_operands: the structure is null");
  std::size_t bytes = 0;
  gemmtune_layout layout = GEMMTUNE_LAYOUT_AITER16X16;
  refused(gemmtune_weight_layout(none, &asked, &layout), "gemmtune_weight_layout: context is null");
  refused(gemmtune_weight_layout(&handle_, &asked, nullptr), "gemmtune_weight_layout: layout is null");
  refused(gemmtune_packed_weight_bytes(none, &asked, layout, &bytes),
          "gemmtune_packed_weight_bytes: context is null");
  refused(gemmtune_packed_weight_bytes(&handle_, &asked, layout, nullptr),
          "gemmtune_packed_weight_bytes: bytes is null");
  refused(gemmtune_pack_weight(none, &asked, layout, arrays_.w, arrays_.y),
          "gemmtune_pack_weight: context is null");
  refused(gemmtune_pack_weight(&handle_, &asked, layout, nullptr, arrays_.y),
          "gemmtune_pack_weight: plain is null");
  refused(gemmtune_pack_weight(&handle_, &asked, layout, arrays_.w, nullptr),
          "gemmtune_pack_weight: packed is null");
  refused(gemmtune_unpack_weight(none, &asked, layout, arrays_.w, arrays_.y),
          "gemmtune_unpack_weight: context is null");
  refused(gemmtune_unpack_weight(&handle_, &asked, layout, nullptr, arrays_.y),
          "gemmtune_unpack_weight: packed is null");
  refused(gemmtune_unpack_weight(&handle_, &asked, layout, arrays_.w, nullptr),
          "gemmtune_unpack_weight: plain is null");
  gemmtune_plan_retain(nullptr);
  gemmtune_plan_release(nullptr);
  gemmtune_context_destroy(nullptr);
}

TEST_F(CInterface, APlanLivesAsLongAsItsReferencesAndItsContextNeedNot) {
  auto context = std::make_unique<gemmtune_context>();
  context->context =
      std::make_unique<Context>(ContextOptions(), Environment(), std::make_unique<test::FakeDevice>());
  const gemmtune_problem asked = problem(3);
  gemmtune_plan* plan = nullptr;
  ASSERT_EQ(gemmtune_plan_create(context.get(), &asked, &plan), GEMMTUNE_OK) << gemmtune_last_error();
  gemmtune_plan_retain(plan);
  gemmtune_plan_release(plan);
  gemmtune_context_destroy(context.release());
  const gemmtune_operands given = operands();
  EXPECT_EQ(gemmtune_plan_run(plan, &given, arrays_.workspace, nullptr), GEMMTUNE_OK)
      << gemmtune_last_error();
  expect_result(3, false);
  gemmtune_plan_release(plan);
}

TEST_F(CInterface, WhatYHeldIsNotRead) {
  for (float& value : arrays_.y) value = std::numeric_limits<float>::quiet_NaN();
  make(problem(3));
  ASSERT_EQ(run(operands()), GEMMTUNE_OK);
  expect_result(3, false);
}

TEST_F(CInterface, ExtentsBeyondTheLimitAreRefusedBeforeAnythingIsTouched) {
  gemmtune_problem asked = problem(8);
  make(asked);
  gemmtune_operands given = operands();
  given.ldx = INT64_MIN;
  EXPECT_EQ(run(given), GEMMTUNE_INVALID_ARGUMENT);
  given.ldx = INT64_MAX;
  EXPECT_EQ(run(given), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("ldx = 9223372036854775807"));
  // Dimensions in range whose product is not.
  asked.m = (std::int64_t{1} << 31) - 1;
  asked.n = asked.k = 1;
  make(asked);
  given = operands();
  given.ldy = asked.m;
  EXPECT_EQ(run(given), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("y extends over 4611686011984936963 elements"));
  given = operands();
  given.ldx = asked.m;
  EXPECT_EQ(run(given), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("x extends over"));
  EXPECT_THAT(arrays_.y, Each(untouched));
}

TEST(CContext, RefusesNumbersOfVariablesThatAreNone) {
  gemmtune_context* context = nullptr;
  for (const char* threads : {"abc", "4294967297", "-1"}) {
    ::setenv("GEMMTUNE_NUM_THREADS", threads, 1);
    EXPECT_EQ(gemmtune_context_create(nullptr, &context), GEMMTUNE_INVALID_ARGUMENT) << threads;
    EXPECT_THAT(gemmtune_last_error(), ::testing::HasSubstr(std::string("GEMMTUNE_NUM_THREADS ") + threads));
    EXPECT_EQ(context, nullptr);
  }
  ::unsetenv("GEMMTUNE_NUM_THREADS");
}

TEST_F(CInterface, ValuesOutsideTheirEnumsAreRefused) {
  gemmtune_plan* plan = nullptr;
  gemmtune_problem asked = problem(3);
  asked.x_type = GEMMTUNE_TYPE_UNSET;
  EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_INVALID_ARGUMENT);
  asked = problem(3);
  asked.alignment = 3;
  EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_INVALID_ARGUMENT);
  asked = problem(3);
  asked.n = std::int64_t{1} << 40;
  EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("N = 1099511627776"));
  asked = problem(-1);
  EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
}

TEST_F(CInterface, PackedWeightsGoThroughTheLayoutOfTheTable) {
  const gemmtune_problem weight = problem(0);
  gemmtune_layout layout = GEMMTUNE_LAYOUT_PLAIN;
  ASSERT_EQ(gemmtune_weight_layout(&handle_, &weight, &layout), GEMMTUNE_OK);
  ASSERT_STREQ(gemmtune_layout_text(layout), "panel16");  // two rows of alpha, one of gamma
  std::size_t bytes = 0;
  ASSERT_EQ(gemmtune_packed_weight_bytes(&handle_, &weight, layout, &bytes), GEMMTUNE_OK);
  ASSERT_EQ(bytes, 2U * 32 * 16 * 4);
  const test::FakeBuffer packed(bytes);
  ASSERT_EQ(gemmtune_pack_weight(&handle_, &weight, layout, arrays_.w, packed.data()), GEMMTUNE_OK);
  std::vector<float> back(n * k);
  ASSERT_EQ(gemmtune_unpack_weight(&handle_, &weight, layout, packed.data(), back.data()),
            GEMMTUNE_UNSUPPORTED)
      << "the fake device has no inverse";

  gemmtune_problem asked = problem(5);
  asked.weight_layout = layout;
  gemmtune_operands given = operands();
  given.w = packed.data();
  ASSERT_EQ(gemmtune_gemm(&handle_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  expect_result(5, false);
  EXPECT_EQ(gemmtune_packed_weight_bytes(&handle_, &weight, GEMMTUNE_LAYOUT_PLAIN, &bytes),
            GEMMTUNE_INVALID_ARGUMENT);
}

TEST_F(CInterface, AWeightWithoutPackedRowsStaysPlain) {
  gemmtune_problem weight = problem(0);
  weight.n = 64;
  gemmtune_layout layout = GEMMTUNE_LAYOUT_ANY;
  ASSERT_EQ(gemmtune_weight_layout(&handle_, &weight, &layout), GEMMTUNE_OK);
  EXPECT_EQ(layout, GEMMTUNE_LAYOUT_PLAIN);
}

TEST_F(CInterface, NamesTheSourcesAndTheDevice) {
  std::size_t needed = 0;
  ASSERT_EQ(gemmtune_context_sources(&handle_, nullptr, 0, &needed), GEMMTUNE_OK);
  std::string text(needed, '\0');
  ASSERT_EQ(gemmtune_context_sources(&handle_, text.data(), text.size(), nullptr), GEMMTUNE_OK);
  EXPECT_THAT(text, HasSubstr("t.csv: 5 rows"));
  char few[4];
  ASSERT_EQ(gemmtune_context_sources(&handle_, few, sizeof few, nullptr), GEMMTUNE_OK);
  EXPECT_EQ(std::strlen(few), 3U);
  gemmtune_device_info info{};
  info.size = sizeof info;
  ASSERT_EQ(gemmtune_context_device(&handle_, &info), GEMMTUNE_OK);
  EXPECT_STREQ(info.gfx, "x86-fake");
  EXPECT_EQ(info.cu_num, 2);
}

TEST_F(CInterface, AnUnknownBackendIsAnErrorWithItsName) {
  gemmtune_context_options options{};
  options.size = sizeof options;
  options.backend = "abacus";
  gemmtune_context* context = &handle_;
  EXPECT_NE(gemmtune_context_create(&options, &context), GEMMTUNE_OK);
  EXPECT_EQ(context, nullptr);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("abacus"));
}

TEST_F(CInterface, AnUndecidedLayoutIsThePlansChoice) {
  gemmtune_problem asked = problem(16);
  asked.weight_layout = GEMMTUNE_LAYOUT_ANY;
  gemmtune_plan_info info{};
  info.size = sizeof info;
  ASSERT_EQ(gemmtune_plan_get_info(make(asked), &info), GEMMTUNE_OK);
  EXPECT_STREQ(gemmtune_layout_text(info.weight_layout), "panel16");
  EXPECT_NE(info.weight_layout, GEMMTUNE_LAYOUT_ANY);
  const gemmtune_operands given = operands();
  EXPECT_EQ(gemmtune_gemm(&handle_, &asked, &given, nullptr), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("weight_layout is any"));
  EXPECT_THAT(arrays_.y, Each(untouched));
  ASSERT_EQ(gemmtune_plan_get_info(make(problem(3)), &info), GEMMTUNE_OK);
  EXPECT_EQ(info.weight_layout, GEMMTUNE_LAYOUT_PLAIN);
  ASSERT_EQ(gemmtune_plan_get_info(make(problem(0)), &info), GEMMTUNE_OK);
  EXPECT_EQ(info.weight_layout, GEMMTUNE_LAYOUT_PLAIN);
}

TEST_F(CInterface, AMisalignedPackedWeightIsRefused) {
  const gemmtune_problem weight = problem(0);
  gemmtune_layout layout = GEMMTUNE_LAYOUT_PLAIN;
  ASSERT_EQ(gemmtune_weight_layout(&handle_, &weight, &layout), GEMMTUNE_OK);
  std::size_t bytes = 0;
  ASSERT_EQ(gemmtune_packed_weight_bytes(&handle_, &weight, layout, &bytes), GEMMTUNE_OK);
  const test::FakeBuffer packed(bytes + 64);
  EXPECT_EQ(gemmtune_pack_weight(&handle_, &weight, layout, arrays_.w,
                                 static_cast<unsigned char*>(packed.data()) + 32),
            GEMMTUNE_MISALIGNED);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("packed"));
}

TEST(CLayouts, EachHasAnIdAndAWord) {
  for (const WeightLayout layout : all_weight_layouts()) {
    const gemmtune_layout id = c::layout_to_c(layout);
    EXPECT_EQ(gemmtune_layout_text(id), to_string(layout));
    WeightLayout back = WeightLayout::plain;
    EXPECT_EQ(c::read_layout(id, back), GEMMTUNE_OK);
    EXPECT_EQ(back, layout);
  }
  EXPECT_EQ(c::layout_to_c(WeightLayout::plain), GEMMTUNE_LAYOUT_PLAIN);
  EXPECT_EQ(c::layout_to_c(WeightLayout::any), GEMMTUNE_LAYOUT_ANY);
  EXPECT_EQ(c::layout_to_c(WeightLayout::aiter16x16), GEMMTUNE_LAYOUT_AITER16X16);
  WeightLayout none = WeightLayout::plain;
  EXPECT_EQ(c::read_layout(3, none), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_STREQ(gemmtune_layout_text(3), "unknown layout");
}

TEST(CStatus, AnErrorIsOfItsThreadAndCutToItsBuffer) {
  EXPECT_EQ(gemmtune_set_last_error(GEMMTUNE_IO_ERROR, "the disk is full"), GEMMTUNE_IO_ERROR);
  std::thread([] {
    EXPECT_STREQ(gemmtune_last_error(), "");
    gemmtune_set_last_error(GEMMTUNE_INTERNAL, "another thread's");
  }).join();
  EXPECT_STREQ(gemmtune_last_error(), "the disk is full");
  EXPECT_EQ(gemmtune_set_last_error(GEMMTUNE_INTERNAL, gemmtune_last_error() + 4), GEMMTUNE_INTERNAL);
  EXPECT_STREQ(gemmtune_last_error(), "disk is full");
  gemmtune_set_last_error(GEMMTUNE_INTERNAL, std::string(5000, 'x').c_str());
  EXPECT_EQ(std::strlen(gemmtune_last_error()), 2047U);
  gemmtune_set_last_error(GEMMTUNE_OK, nullptr);
  EXPECT_STREQ(gemmtune_last_error(), "");
}

TEST(CStatus, EveryCodeHasAWord) {
  for (int code = GEMMTUNE_OK; code <= GEMMTUNE_MISALIGNED; ++code) {
    EXPECT_STRNE(gemmtune_status_text(static_cast<gemmtune_status>(code)), "unknown status") << code;
  }
  EXPECT_STREQ(gemmtune_status_text(static_cast<gemmtune_status>(15)), "unknown status");
}

}  // namespace
}  // namespace gemmtune
