#include <gtest/gtest.h>

#include "candidates/config.h"
#include "candidates/space.h"

namespace gemmtune {
namespace {

Candidate sample() {
  Candidate candidate{"tiled", 2, {}};
  candidate.config.set("isa", "avx512bf16");
  candidate.config.set("mr", 14);
  candidate.config.set("m", 3);
  return candidate;
}

TEST(KernelName, RoundTrips) {
  const std::vector<std::string> keys{"isa", "mr", "m", "kc"};
  EXPECT_EQ(sample().kernel_name(), "tiled_r2_isaavx512bf16_mr14_m3");
  const auto read = parse_kernel_name(sample().kernel_name(), keys);
  ASSERT_TRUE(read.ok()) << read.message();
  EXPECT_EQ(*read, sample());
  EXPECT_EQ(read->config.number("kc", 7), 7);
  EXPECT_EQ(read->config.word("isa"), "avx512bf16");
}

TEST(KernelName, RefusesWhatIsNotItsOwn) {
  const std::vector<std::string> keys{"isa", "mr", "m", "kc"};
  for (const char* bad :
       {"tiled", "tiled_r0_mr1", "tiled_rx", "tiled_r1_zz4", "tiled_r1_kc", "tiled_r1_mr4_mr4",
        "tiled_r1_mr4_isaavx2", "tiled_r1_mr4/5", "tiled_r1_", "", "_ZN5aiter39bf16gemm_r1"}) {
    EXPECT_FALSE(parse_kernel_name(bad, keys).ok()) << bad;
  }
  EXPECT_EQ(family_of_kernel_name("tiled_r2_mr4"), "tiled");
  EXPECT_EQ(family_of_kernel_name("my_family_r3"), "my_family");
  EXPECT_EQ(family_of_kernel_name("_ZN5aiter_r1_E"), std::nullopt);
  EXPECT_EQ(family_of_kernel_name("Cijk_Alik_Bljk"), std::nullopt);
  EXPECT_EQ(family_of_kernel_name("_r1"), std::nullopt);
}

TEST(Space, EnumeratesWhatTheConstraintsAllow) {
  Space space;
  space.add(Parameter{"a", {"1", "2", "3"}, "1", ""});
  space.add(Parameter{"b", {"1", "2"}, "1", ""});
  space.add(Constraint{"sum", [](const Config& config) {
                         return config.number("a") + config.number("b") == 4 ? std::string("a + b is 4") : "";
                       }});
  space.add(Constraint{
      "waste", [](const Config& config) { return config.number("a") == 9 ? std::string("a is 9") : ""; },
      Rule::search});
  Config wasteful;
  wasteful.set("a", 9);
  wasteful.set("b", 1);
  EXPECT_EQ(space.refusal(wasteful), "a is 9");
  EXPECT_EQ(space.build_refusal(wasteful), "");
  EXPECT_EQ(space.points(), 6);
  const auto configs = space.enumerate();
  ASSERT_EQ(configs.size(), 4U);
  EXPECT_EQ(configs[0].text(), "a1_b1");
  EXPECT_EQ(configs[1].text(), "a1_b2");
  EXPECT_EQ(configs[2].text(), "a2_b1");
  EXPECT_EQ(configs[3].text(), "a3_b2");
  EXPECT_EQ(space.enumerate(2).size(), 2U);
  EXPECT_EQ(Space().enumerate().size(), 1U);
}

TEST(Space, ARuleIsAskedOnceItsKeysHaveValues) {
  const auto make = [](std::vector<std::string> reads, int& asked) {
    Space space;
    space.add(Parameter{"a", {"1", "2", "3"}, "1", ""});
    space.add(Parameter{"b", {"1", "2"}, "1", ""});
    space.add(Parameter{"c", {"1", "2", "3", "4"}, "1", ""});
    space.add(Constraint{"a is not 2",
                         [&asked](const Config& config) {
                           ++asked;
                           return config.number("a") == 2 ? "a is 2" : "";
                         },
                         Rule::build, std::move(reads)});
    return space;
  };
  int late = 0;
  int early = 0;
  const auto all = make({}, late).enumerate();
  const auto pruned = make({"a"}, early).enumerate();
  EXPECT_EQ(all.size(), 16U);
  EXPECT_EQ(pruned, all) << "the same configs in the same order";
  EXPECT_EQ(late, 24);
  EXPECT_EQ(early, 3);
}

TEST(Space, ListedConfigsStandInsteadOfAllCombinations) {
  Space space;
  Parameter parameter = {
      .key = "a", .values = {"1", "2"}, .absent = "1", .meaning = "a number", .range = NumberRange()};
  space.add(parameter);
  parameter.key = "b";
  space.add(parameter);
  space.add(
      Constraint{"even", [](const Config& config) { return config.number("b") % 2 == 0 ? "" : "b is odd"; }});
  std::vector<Config> configs(3);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    configs[i].set("a", std::int64_t{7});
    configs[i].set("b", static_cast<std::int64_t>(i));
  }
  space.list(configs);
  EXPECT_EQ(space.points(), 3);
  const auto allowed = space.enumerate();
  ASSERT_EQ(allowed.size(), 2U);
  EXPECT_EQ(allowed[0], configs[0]);
  EXPECT_EQ(allowed[1], configs[2]);
  EXPECT_EQ(space.enumerate(1).size(), 1U);
}

}  // namespace
}  // namespace gemmtune
