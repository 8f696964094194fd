// Every function of KernelFamily through every decorator of families: it reaches the family behind it. A function that is
// added does not compile here until the spy has it, and fails until it is called.
#include "backends/forwarding_family.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backends/cpu/families/bound_family.h"
#include "backends/cpu/threads/thread_pool_executor.h"

namespace gemmtune::forwarding_family_test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class SpyKernel final : public Kernel {
 public:
  std::size_t workspace_bytes() const override { return 12; }
  WeightLayout weight_layout() const override { return WeightLayout::panel16; }
  Status run(const Operands&, void*, Stream) const override { return {}; }
};

Config config_of(const char* value) {
  Config config;
  config.set("key", std::string(value));
  return config;
}

/// Answers with what LeafFamily does not, and writes down what it is asked.
class Spy final : public KernelFamily {
 public:
  explicit Spy(std::vector<std::string>& calls) : calls_(calls) {}

  std::string_view name() const override { return "spy"; }
  int revision() const override { return 7; }
  std::string identity() const override { return "spy's identity"; }
  int tie_rank() const override { return 5; }
  Status accepts(const Problem& problem) const override {
    note("accepts", problem);
    return Status::unsupported("spy: refused");
  }
  std::optional<WeightLayout> packed_layout(const Problem& problem) const override {
    note("packed_layout", problem);
    return WeightLayout::panel16;
  }
  Space space(const Problem& problem) const override {
    note("space", problem);
    return space_of("space");
  }
  Space exhaustive_space(const Problem& problem) const override {
    note("exhaustive_space", problem);
    return space_of("exhaustive");
  }
  Config default_config(const Problem& problem) const override {
    note("default_config", problem);
    return config_of("default");
  }
  Config fast_config(const Problem& problem) const override {
    note("fast_config", problem);
    return config_of("fast");
  }
  Accuracy accuracy(const Problem& problem, const Config&) const override {
    note("accuracy", problem);
    return Accuracy::tensor_core;
  }
  std::string sum_order(const Problem& problem, const Config&) const override {
    note("sum_order", problem);
    return "spy's order";
  }
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config&) const override {
    note("build", problem);
    return std::unique_ptr<Kernel>(std::make_unique<SpyKernel>());
  }
  std::vector<LauncherParameter> launcher_parameters(const Config& config) const override {
    return {{"launcher", std::string(config.word("key"))}};
  }
  double predicted_microseconds(const Problem& problem, const Config&) const override {
    note("predicted_microseconds", problem);
    return 3.5;
  }
  std::int64_t resources(const Problem& problem, const Config&) const override {
    note("resources", problem);
    return 11;
  }
  std::string_view thread_pool() const override { return "spy's pool"; }

 private:
  static Space space_of(const char* key) {
    Space space;
    space.add(Parameter{key, {"1"}, "1", "which"});
    return space;
  }
  void note(const char* what, const Problem& problem) const {
    calls_.push_back(std::string(what) + (problem.e8m0_scales ? " with e8m0 scales" : ""));
  }

  std::vector<std::string>& calls_;
};

/// Asks everything; the spy's own answers must come back.
void expect_forwarded(const KernelFamily& family, const Problem& problem) {
  EXPECT_EQ(family.name(), "spy");
  EXPECT_EQ(family.revision(), 7);
  EXPECT_THAT(family.identity(), StartsWith("spy's identity"));
  EXPECT_EQ(family.tie_rank(), 5);
  EXPECT_EQ(family.thread_pool(), "spy's pool");
  EXPECT_THAT(family.accepts(problem).message(), HasSubstr("spy: refused"));
  EXPECT_EQ(family.packed_layout(problem), WeightLayout::panel16);
  EXPECT_THAT(family.space(problem).keys(), ElementsAre("space"));
  EXPECT_THAT(family.exhaustive_space(problem).keys(), ElementsAre("exhaustive"));
  EXPECT_EQ(family.default_config(problem), config_of("default"));
  EXPECT_EQ(family.fast_config(problem), config_of("fast"));
  EXPECT_EQ(family.accuracy(problem, {}), Accuracy::tensor_core);
  EXPECT_EQ(family.sum_order(problem, {}), "spy's order");
  const auto kernel = family.build(problem, {});
  ASSERT_TRUE(kernel.ok()) << kernel.message();
  EXPECT_EQ((*kernel)->weight_layout(), WeightLayout::panel16);
  const auto launcher = family.launcher_parameters(config_of("seen"));
  ASSERT_EQ(launcher.size(), 1U);
  EXPECT_EQ(launcher.front().name, "launcher");
  EXPECT_EQ(family.predicted_microseconds(problem, {}), 3.5);
  EXPECT_EQ(family.resources(problem, {}), 11);
}

constexpr int functions_of_a_problem = 11;

TEST(ForwardingFamilies, ForwardEveryFunction) {
  std::vector<std::string> calls;
  const Spy spy(calls);
  expect_forwarded(ForwardingFamily(spy), default_problem(Operation::a16w16));
  EXPECT_EQ(calls.size(), functions_of_a_problem);
}

TEST(ForwardingFamilies, ABoundFamilyForwardsEveryFunctionWithFloatScales) {
  std::vector<std::string> calls;
  cpu::ThreadTeam team(Team::own, cpu::PoolOptions{});
  const auto family = cpu::bind_family(std::make_unique<Spy>(calls), team);
  Problem problem = default_problem(Operation::a8w8_blockscale);
  problem.e8m0_scales = true;
  expect_forwarded(*family, problem);
  EXPECT_EQ(calls.size(), functions_of_a_problem);
  EXPECT_THAT(calls, Each(Not(HasSubstr("e8m0"))));
}

}  // namespace
}  // namespace gemmtune::forwarding_family_test
