// The C functions over the fake device: structures of any size, what run refuses, strides, packed weights.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include <cstring>
#include <string>
#include <vector>

#include "capi/c_support.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;
using ::testing::Each;
using ::testing::HasSubstr;

struct Arrays {
  alignas(64) float x[8 * 64] = {};
  alignas(64) float w[64 * 64] = {};
  alignas(64) float bias[64] = {};
  alignas(64) float y[8 * 64] = {};
  alignas(64) unsigned char workspace[256] = {};
};

class CInterface : public ::testing::Test {
 protected:
  CInterface() {
    for (std::size_t i = 0; i < std::size(arrays_.x); ++i) arrays_.x[i] = static_cast<float>(i % 7) - 3;
    for (std::size_t i = 0; i < std::size(arrays_.w); ++i) arrays_.w[i] = static_cast<float>(i % 5) - 2;
    for (std::size_t i = 0; i < std::size(arrays_.bias); ++i) arrays_.bias[i] = static_cast<float>(i);
    for (float& value : arrays_.y) value = untouched;
    // alpha has a workspace.
    Problem tuned = f32(3);
    Problem tuned_bias = tuned;
    tuned_bias.bias = true;
    ContextOptions options;
    options.tuned_files.a16w16 = test::write_rows(
        folder_, "t.csv",
        {row(tuned, "alpha_r1_a1"), row(tuned_bias, "alpha_r1_a1"), row(test::packed(f32(16)), "alpha_r1_a1"),
         row(test::packed(f32(32)), "alpha_r1_a2"), row(test::packed(f32(1)), "gamma_r1_a1")});
    handle_.context = std::make_unique<Context>(options, Environment(), std::make_unique<test::FakeDevice>());
  }
  ~CInterface() override { gemmtune_plan_release(plan_); }

  static Problem f32(std::int64_t m) {
    Problem problem = small_problem(m, n, k);
    problem.x_type = problem.w_type = problem.y_type = DataType::f32;
    return problem;
  }
  static gemmtune_problem problem(std::int64_t m, bool bias = false) {
    gemmtune_problem asked{};
    asked.size = sizeof asked;
    asked.x_type = GEMMTUNE_F32;
    asked.m = m;
    asked.n = n;
    asked.k = k;
    asked.bias = bias;
    return asked;
  }
  gemmtune_operands operands() {
    gemmtune_operands given{};
    given.size = sizeof given;
    given.x = arrays_.x;
    given.w = arrays_.w;
    given.bias = arrays_.bias;
    given.y = arrays_.y;
    return given;
  }
  gemmtune_plan* make(const gemmtune_problem& asked) {
    gemmtune_plan_release(plan_);
    plan_ = nullptr;
    EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan_), GEMMTUNE_OK) << gemmtune_last_error();
    return plan_;
  }
  gemmtune_status run(const gemmtune_operands& given) {
    return gemmtune_plan_run(plan_, &given, arrays_.workspace, nullptr);
  }
  void expect_result(std::int64_t m, bool bias, std::int64_t ldx = k, std::int64_t ldy = n) const {
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        float sum = bias ? arrays_.bias[j] : 0;
        for (std::int64_t l = 0; l < k; ++l) sum += arrays_.x[i * ldx + l] * arrays_.w[j * k + l];
        ASSERT_EQ(arrays_.y[i * ldy + j], sum) << i << ' ' << j;
      }
      for (std::int64_t j = n; j < ldy; ++j) ASSERT_EQ(arrays_.y[i * ldy + j], untouched);
    }
  }

  static constexpr std::int64_t n = 20;
  static constexpr std::int64_t k = 24;
  static constexpr float untouched = -77;
  test::TemporaryFolder folder_;
  gemmtune_context handle_;
  gemmtune_plan* plan_ = nullptr;
  Arrays arrays_;
};

TEST_F(CInterface, RunsAPlanAndTellsOfIt) {
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
  EXPECT_EQ(gemmtune_gemm_a16w16(&handle_, &zero, &given, nullptr), GEMMTUNE_OK);
  EXPECT_THAT(arrays_.y, Each(untouched));
}

TEST_F(CInterface, TheShortFormFindsItsWorkspace) {
  const gemmtune_problem asked = problem(3, true);
  const gemmtune_operands given = operands();
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(gemmtune_gemm_a16w16(&handle_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  }
  expect_result(3, true);
  EXPECT_EQ(handle_.context->workspaces().buffers(), 1U);
  gemmtune_counters counters{};
  counters.size = sizeof counters;
  ASSERT_EQ(gemmtune_context_counters(&handle_, &counters), GEMMTUNE_OK);
  EXPECT_EQ(counters.exact, 3U);
  EXPECT_EQ(counters.plans_made, 1U);
}

TEST_F(CInterface, StructuresOfOlderProgramsKeepTheirDefaults) {
  gemmtune_problem old = problem(3);
  old.bias = 1;  // beyond what this caller's header had
  old.size = offsetof(gemmtune_problem, bias);
  make(old);
  gemmtune_operands given = operands();
  given.bias = nullptr;
  given.ldx = -5;  // likewise
  given.size = offsetof(gemmtune_operands, ldx);
  ASSERT_EQ(run(given), GEMMTUNE_OK) << gemmtune_last_error();
  expect_result(3, false);

  gemmtune_plan_info info{};
  info.size = offsetof(gemmtune_plan_info, kernel_name);
  const char marker = 0;
  info.kernel_name = &marker;
  ASSERT_EQ(gemmtune_plan_get_info(plan_, &info), GEMMTUNE_OK);
  EXPECT_EQ(info.hit_m, 3);
  EXPECT_EQ(info.kernel_name, &marker);
}

TEST_F(CInterface, StructuresOfNewerProgramsAreTakenWhereTheySetNothingNew) {
  struct Newer {
    gemmtune_problem known;
    std::int64_t unknown;
  } newer{problem(3), 0};
  newer.known.size = sizeof newer;
  gemmtune_plan* plan = nullptr;
  EXPECT_EQ(gemmtune_plan_create(&handle_, &newer.known, &plan), GEMMTUNE_OK);
  gemmtune_plan_release(plan);
  newer.unknown = 1;
  EXPECT_EQ(gemmtune_plan_create(&handle_, &newer.known, &plan), GEMMTUNE_UNSUPPORTED);
  EXPECT_EQ(plan, nullptr);
}

TEST_F(CInterface, AStructureWithoutItsSizeIsRefused) {
  gemmtune_problem asked = problem(3);
  asked.size = 0;
  gemmtune_plan* plan = nullptr;
  EXPECT_EQ(gemmtune_plan_create(&handle_, &asked, &plan), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("size"));
  gemmtune_context_options options{};
  gemmtune_context* context = nullptr;
  EXPECT_EQ(gemmtune_context_create(&options, &context), GEMMTUNE_INVALID_ARGUMENT);
}

TEST(CContext, RefusesNumbersOfVariablesThatAreNone) {
  gemmtune_context* context = nullptr;
  for (const char* threads : {"abc", "4294967297", "-1"}) {
    ::setenv("GEMMTUNE_NUM_THREADS", threads, 1);
    EXPECT_EQ(gemmtune_context_create(nullptr, &context), GEMMTUNE_INVALID_ARGUMENT) << threads;
    EXPECT_THAT(gemmtune_last_error(), testing::HasSubstr(std::string("GEMMTUNE_NUM_THREADS ") + threads));
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
  ASSERT_EQ(layout, GEMMTUNE_LAYOUT_PANEL16);  // two rows of alpha, one of gamma
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
  ASSERT_EQ(gemmtune_gemm_a16w16(&handle_, &asked, &given, nullptr), GEMMTUNE_OK) << gemmtune_last_error();
  expect_result(5, false);
  EXPECT_EQ(gemmtune_packed_weight_bytes(&handle_, &weight, GEMMTUNE_LAYOUT_PLAIN, &bytes),
            GEMMTUNE_INVALID_ARGUMENT);
}

TEST_F(CInterface, AWeightWithoutPackedRowsStaysPlain) {
  gemmtune_problem weight = problem(0);
  weight.n = 64;
  gemmtune_layout layout = GEMMTUNE_LAYOUT_ONEDNN;
  ASSERT_EQ(gemmtune_weight_layout(&handle_, &weight, &layout), GEMMTUNE_OK);
  EXPECT_EQ(layout, GEMMTUNE_LAYOUT_PLAIN);
}

TEST_F(CInterface, TellsTheSourcesAndTheDevice) {
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

TEST(CStatus, EveryCodeHasAWord) {
  for (int code = GEMMTUNE_OK; code <= GEMMTUNE_MISALIGNED; ++code) {
    EXPECT_STRNE(gemmtune_status_text(static_cast<gemmtune_status>(code)), "unknown status") << code;
  }
  EXPECT_STREQ(gemmtune_status_text(static_cast<gemmtune_status>(15)), "unknown status");
}

}  // namespace
}  // namespace gemmtune
