// tune_gemm's rules of pruning against its documentation, point by point.
#include "candidates/tune_gemm_rules.h"

#include <gtest/gtest.h>

#include <string>
#include <tuple>
#include <utility>

#include "candidates/search_space.h"

namespace gemmtune {
namespace {

Problem problem_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem = default_problem(Operation::a16w16);
  problem.m = m;
  problem.n = n;
  problem.k = k;
  return problem;
}

/// The five sentences of the documentation, over all 33,000 points.
std::int64_t counted(std::int64_t m, std::int64_t n, std::int64_t k) {
  std::int64_t count = 0;
  for (const int block_m : {16, 32, 64, 128, 256})
    for (const int block_n : {16, 32, 64, 128, 256})
      for (const int block_k : {16, 32, 64, 128, 256})
        for (const int group : {1, 4, 8})
          for (const int split : {1, 2, 4, 5, 6, 8, 10, 12, 16, 18, 24}) {
            if (block_m < 32 || block_n < 32) continue;
            if (k % (split * block_k) != 0) continue;
            const bool split_is_needed = (m < 64 || n < 64) && k > 1024;
            if (split != 1 && !split_is_needed) continue;
            if (group != 1 && group * block_m >= m) continue;
            if (block_k == 128 && (block_m == 128 || block_n == 128)) continue;
            count += 4 * 2;  // warps and stages
          }
  return count;
}

TEST(TuneGemmRules, LeaveWhatTheDocumentationSays) {
  EXPECT_EQ(tune_gemm_v2_space(problem_of(16, 16, 16)).points(), 33000);
  for (const auto& [m, n, k] : {std::tuple{16, 16, 16},
                                {1, 2048, 8192},
                                {64, 4096, 4096},
                                {4864, 4096, 4160},
                                {63, 8192, 11520},
                                {8192, 8192, 1024},
                                {512, 32, 7168}}) {
    const auto steps = space_steps(tune_gemm_v2_space(problem_of(m, n, k)), nullptr, {});
    EXPECT_EQ(steps.back().left, counted(m, n, k)) << m << " " << n << " " << k;
  }
  EXPECT_EQ(counted(16, 16, 16), 128);
}

/// Each rule alone removes what its sentence says, whatever the others are.
TEST(TuneGemmRules, EachIsARuleOfItsOwnName) {
  const Problem problem = problem_of(512, 512, 4096);
  const auto reason_of = [&](const TuneGemmConfig& config, const std::string& name) {
    for (const Constraint& rule : tune_gemm_v2_rules(problem, [&](const Config&) { return config; }))
      if (rule.name == "tune_gemm_v2 " + name) return rule.refusal(Config());
    return std::string("no such rule");
  };
  EXPECT_NE(reason_of({.block_m = 16, .block_n = 32, .instruction = 32}, "block"), "");
  EXPECT_EQ(reason_of({.block_m = 32, .block_n = 32, .instruction = 32}, "block"), "");
  EXPECT_NE(reason_of({.block_k = 48, .split_k = 1}, "split-K divides"), "") << "of an undivided K too";
  EXPECT_EQ(reason_of({.block_k = 64, .split_k = 4}, "split-K divides"), "");
  EXPECT_NE(reason_of({.split_k = 2}, "split-K needed"), "");
  EXPECT_EQ(reason_of({.split_k = 1}, "split-K needed"), "");
  EXPECT_NE(reason_of({.block_m = 64, .group_m = 8}, "group"), "") << "8 * 64 is 512, not smaller";
  EXPECT_EQ(reason_of({.block_m = 64, .group_m = 4}, "group"), "");
  EXPECT_NE(reason_of({.block_m = 64, .block_n = 128, .block_k = 128}, "block_k 128"), "")
      << "one of them is enough";
  EXPECT_EQ(reason_of({.block_m = 64, .block_n = 256, .block_k = 128}, "block_k 128"), "");
  EXPECT_EQ(reason_of({}, "group"), "") << "a family without groups";
}

TEST(TuneGemmRules, AsASetTheyStandInsteadOfAFamilysOwn) {
  Space space;
  space.add(Parameter{.key = "sk", .values = {"1", "2", "3"}, .absent = "1", .meaning = ""});
  space.add(Constraint{"waste", [](const Config& c) { return c.number("sk") == 1 ? "sk is 1" : ""; },
                       Rule::search});
  space.add(Constraint{"fits", [](const Config& c) { return c.number("sk") == 3 ? "sk is 3" : ""; }});
  Space plain = space;
  turn_set(RuleSet::tune_gemm_v2, plain);
  EXPECT_EQ(plain.enumerate().size(), 1U) << "a family without the set keeps its rules";
  for (Constraint& rule : tune_gemm_v2_rules(problem_of(16, 64, 4096), [](const Config& c) {
         return TuneGemmConfig{.block_k = 64, .split_k = c.number("sk")};
       }))
    space.add(std::move(rule));
  EXPECT_EQ(space.enumerate().size(), 1U) << "off: sk is 2";
  turn_set(RuleSet::tune_gemm_v2, space);
  EXPECT_EQ(space.enumerate().size(), 2U) << "sk 1 and 2; 3 cannot be built";
  FamilySpace chosen;
  chosen.rules.push_back({{"waste", 1}, true});
  SearchSpace request;
  request.rules = RuleSet::tune_gemm_v2;
  chosen.family.text = "one";
  request.families = {chosen};
  choose(request, "one", Config(), space);
  EXPECT_EQ(space.enumerate().size(), 1U) << "a file's word comes last";
  SearchSpace own = request;
  own.rules = RuleSet::own;
  EXPECT_NE(request.text(), own.text());
  EXPECT_TRUE(request.changes("other"));
  EXPECT_FALSE(parse_rule_set("v2").ok());
}

}  // namespace
}  // namespace gemmtune
