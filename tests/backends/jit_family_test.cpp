// What all families of kernels compiled at run time have in common, on a family of one parameter.
#include "backends/gpu/families/jit_family.h"

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "support/dense_problem.h"

namespace gemmtune::gpu {
namespace {

struct TinyLaunch {
  std::int64_t rows = 0;
  std::int64_t shared_bytes = 0;
};

class TinyKernel final : public Kernel {
 public:
  std::size_t workspace_bytes() const override { return 0; }
  WeightLayout weight_layout() const override { return WeightLayout::plain; }
  Status run(const Operands&, void*, Stream) const override { return {}; }
};

class TinyProgram final : public Program {
 public:
  explicit TinyProgram(std::size_t& reserved) : reserved_(reserved) {}
  const Resources& resources() const override { return resources_; }
  const LoadedKernel& loaded() const override { return loaded_; }
  Status reserve_shared(std::size_t bytes) override {
    if (bytes > 1000) return Status::unsupported("{} bytes", bytes);
    reserved_ = bytes;
    return {};
  }
  Status launch(const LaunchShape&, void**, Stream) const override { return {}; }

 private:
  Resources resources_;
  LoadedKernel loaded_;
  std::size_t& reserved_;
};

class TinyRuntime final : public Runtime {
 public:
  const Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<Program>> load(const Source& source) override {
    if (source.kernel == refused) return Status::invalid("{} is refused", source.kernel);
    loads.push_back(source.kernel);
    return std::shared_ptr<Program>(std::make_shared<TinyProgram>(reserved[source.kernel]));
  }

  std::string refused;
  std::vector<std::string> loads;
  std::map<std::string, std::size_t> reserved;

 private:
  Limits limits_;
  std::string architecture_ = "sm_90a";
};

class TinyFamily final : public JitFamily<TinyLaunch> {
 public:
  explicit TinyFamily(Runtime& runtime)
      : JitFamily(runtime,
                  {.name = "tiny", .tie_rank = 7, .packed = WeightLayout::fragment64, .revision = 3}) {}
  Status accepts(const Problem&) const override { return {}; }
  Config default_config(const Problem&) const override {
    ++defaults;
    Config config;
    config.set("bm", std::int64_t{2});
    return config;
  }

  mutable int defaults = 0;
  mutable int launch_configs = 0;
  mutable std::size_t programs = 0;  // that the last kernel was made of

 protected:
  TinyLaunch launch_config(const Problem&, const Config& config) const override {
    ++launch_configs;
    return {.rows = config.number("bm", 1), .shared_bytes = 100 * config.number("bm", 1)};
  }
  void fill(LaunchSpace<TinyLaunch>& space) const override {
    space.add(Parameter{
        .key = "bm", .values = {"1", "2", "4", "8", "16", "32"}, .absent = "1", .meaning = "block_m"});
    space.rule("rows", Rule::build,
               [](const TinyLaunch& launch) { return launch.rows == 32 ? "32 rows" : ""; });
    space.rule("few", Rule::search, [](const Problem& problem, const TinyLaunch& launch) {
      return launch.rows > problem.m ? "more rows than there are" : "";
    });
    space.rule("text", Rule::search, [](const Problem&, const Config& config, const TinyLaunch& launch) {
      return config.number("bm") == launch.rows ? "" : "of another config";
    });
    refuse_slow(space, 2);
  }
  double cost(const Problem&, const TinyLaunch& launch) const override {
    return static_cast<double>(launch.rows);
  }
  std::vector<Part> parts(const Problem&, const TinyLaunch& launch) const override {
    return {{{"tiny", device_text(), {}, "first"}, launch.shared_bytes},
            {{"tiny", device_text(), {}, "second"}}};
  }
  Result<std::unique_ptr<Kernel>> make_kernel(Programs made, const Problem&,
                                              const TinyLaunch&) const override {
    programs = made.size();
    return std::unique_ptr<Kernel>(std::make_unique<TinyKernel>());
  }
  std::string device_text() const override { return "the source"; }
};

class JitFamilyTest : public ::testing::Test {
 protected:
  static Config config_of(std::int64_t rows) {
    Config config;
    config.set("bm", rows);
    return config;
  }

  TinyRuntime runtime_;
  TinyFamily family_{runtime_};
  Problem problem_ = dense(16, 64, 64);
};

TEST_F(JitFamilyTest, SaysWhatItIs) {
  EXPECT_EQ(family_.name(), "tiny");
  EXPECT_EQ(family_.revision(), 3);
  EXPECT_EQ(family_.tie_rank(), 7);
  EXPECT_EQ(family_.packed_layout(problem_), WeightLayout::fragment64);
  EXPECT_EQ(family_.identity(), "tiny r3 source " + text_hash("the source"));
  EXPECT_EQ(family_.thread_pool(), "gpu");
  EXPECT_EQ(family_.predicted_microseconds(problem_, config_of(8)), 8);
  EXPECT_EQ(family_.resources(problem_, config_of(8)), 800);
}

TEST_F(JitFamilyTest, RulesSeeTheLaunchConfigOfTheirConfig) {
  const Space space = family_.space(problem_);
  EXPECT_EQ(space.build_refusal(config_of(32)), "32 rows");
  EXPECT_EQ(space.refusal(config_of(16)), "the cost model says much slower than the default");
  problem_.m = 3;
  EXPECT_EQ(family_.space(problem_).refusal(config_of(4)), "more rows than there are");
  const std::vector<Config> configs = space.enumerate();
  ASSERT_EQ(configs.size(), 3U);
  for (const Config& config : configs) EXPECT_EQ(space.refusal(config), "") << config.text();
}

TEST_F(JitFamilyTest, AllRulesOfAConfigShareItsLaunchConfig) {
  const Space space = family_.space(problem_);
  ASSERT_EQ(space.enumerate().size(), 3U);
  EXPECT_EQ(family_.launch_configs, 6 + 1) << "of each point, and of the default";
}

TEST_F(JitFamilyTest, TheDefaultIsSearchedForOnceAndNotForABuild) {
  const Space space = family_.space(problem_);
  EXPECT_EQ(space.build_refusal(config_of(16)), "");
  EXPECT_EQ(family_.defaults, 0);
  const Space copy = space;
  EXPECT_EQ(space.enumerate().size(), copy.enumerate().size());
  EXPECT_EQ(family_.defaults, 1);
}

TEST_F(JitFamilyTest, AKernelIsMadeOfAllItsPrograms) {
  const auto kernel = family_.build(problem_, config_of(4));
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  EXPECT_EQ(family_.programs, 2U);
  EXPECT_EQ(runtime_.loads, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(runtime_.reserved["first"], 400U);
  EXPECT_EQ(runtime_.reserved["second"], 0U);
  const std::vector<Source> sources = family_.sources(problem_, config_of(4));
  ASSERT_EQ(sources.size(), 2U);
  EXPECT_EQ(sources[1].kernel, "second");
}

TEST_F(JitFamilyTest, WhatAProgramIsRefusedForIsTheAnswer) {
  EXPECT_EQ(family_.build(problem_, config_of(16)).message(), "1600 bytes");
  runtime_.refused = "second";
  EXPECT_EQ(family_.build(problem_, config_of(4)).message(), "second is refused");
}

}  // namespace
}  // namespace gemmtune::gpu
