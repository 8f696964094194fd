// Triton configs through the C++ and the C interface: a program that is pointed at a folder runs the bucket's kernel.
#include <gemmtune/gemmtune.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace {

using ::testing::HasSubstr;

class TritonConfigs : public ::testing::Test {
 protected:
  ~TritonConfigs() override { unsetenv("GEMMTUNE_CONFIG_TRITON"); }

  gemmtune::Context open(const std::string& config_folder) {
    gemmtune::Options options;
    options.config_folder = config_folder;
    options.backend = "cpu";
    options.threads = 1;
    auto context = gemmtune::Context::open(options);
    EXPECT_TRUE(context.ok()) << context.status().message();
    return std::move(*context);
  }
  static gemmtune::Problem problem(std::int64_t m) {
    gemmtune::Problem asked{.m = m, .n = 48, .k = 32, .x_type = gemmtune::Type::f32};
    asked.y_type = gemmtune::Type::f32;
    return asked;
  }
  /// A config of this device whose one kernel is the slow `reference`, which nothing else would choose.
  std::string write_config(const std::string& folder) {
    const gemmtune::Context plain = open("/none");
    return folder_.write(folder + "/" + plain.device().gfx + "-GEMM-A16W16-N=48-K=32.json",
                         R"({"small_M": {"kernelName": "reference_r1"}, "large_M": {"BLOCK_SIZE_M": 16}})");
  }

  gemmtune::test::TemporaryFolder folder_;
};

TEST_F(TritonConfigs, TheConfigFolderAndTheVariableAreRead) {
  const std::string file = write_config("config");
  for (const bool by_variable : {false, true}) {
    if (by_variable) setenv("GEMMTUNE_CONFIG_TRITON", folder_.file("config").c_str(), 1);
    const gemmtune::Context context = open(by_variable ? "/none" : folder_.file("config"));
    for (const std::int64_t m : {1, 7, 256}) {
      const auto plan = context.plan(problem(m));
      ASSERT_TRUE(plan.ok()) << plan.status().message();
      const gemmtune::PlanInfo info = plan->info();
      EXPECT_EQ(info.match, gemmtune::Match::bucket);
      EXPECT_EQ(gemmtune::to_string(info.match), "bucket");
      EXPECT_EQ(info.kernel_name, "reference_r1");
      EXPECT_EQ(info.file, file);
      EXPECT_EQ(info.line, 1U);
      EXPECT_EQ(info.hit_m, 256);
      EXPECT_EQ(info.rule, "bucket small_M (M = 1 to 256), " + file + ":1");
      alignas(64) static float x[256 * 32];
      alignas(64) static float w[48 * 32];
      alignas(64) static float y[256 * 48];
      for (float& one : x) one = 1;
      for (float& one : w) one = 2;
      std::vector<std::byte> space(info.workspace_bytes + 64);
      void* workspace = space.data() + (64 - reinterpret_cast<std::uintptr_t>(space.data()) % 64) % 64;
      const auto status = plan->run({.x = x, .w = w, .y = y}, workspace);
      ASSERT_TRUE(status.ok()) << status.message();
      EXPECT_EQ(y[(m - 1) * 48 + 47], 64);
    }
    EXPECT_EQ(context.counters().bucket, 3U);
    EXPECT_EQ(context.counters().untuned, 0U);
    const auto other = context.plan(problem(5000));
    ASSERT_TRUE(other.ok());
    EXPECT_EQ(other->info().match, gemmtune::Match::untuned);
    EXPECT_THAT(std::string(other->info().rule), HasSubstr("a configuration that only Triton can run"));
    EXPECT_EQ(context.counters().invalid_rows, 1U);
    EXPECT_THAT(context.sources(), HasSubstr(file + ": 2 buckets"));
  }
}

/// A list of tuned files of an operation may name configs, and reading again sees new ones.
TEST_F(TritonConfigs, AListOfTunedFilesMayNameThem) {
  gemmtune::Options options;
  options.config_folder = "/none";
  options.backend = "cpu";
  options.threads = 1;
  options.tuned_files = {{gemmtune::Operation::a16w16, folder_.file("later")}};
  const auto context = gemmtune::Context::open(options);
  ASSERT_TRUE(context.ok());
  EXPECT_EQ((*context->plan(problem(3))).info().match, gemmtune::Match::untuned);
  write_config("later");
  ASSERT_TRUE(context->reload().ok());
  EXPECT_EQ((*context->plan(problem(3))).info().match, gemmtune::Match::bucket);
}

}  // namespace
