// From a program that asks to one that is answered: capture, `gemmtune tune`, exact rows; no file is named.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "cli/program.h"
#include "dispatch/context.h"

namespace gemmtune::test {
namespace {

Problem problem(std::int64_t m, std::int64_t n) {
  Problem asked;
  asked.m = m;
  asked.n = n;
  asked.k = 64;
  return asked;
}

/// The match of each problem; the first one is asked for five times.
std::vector<Match> plan_all(const Program& program, bool capture) {
  ContextOptions options;
  options.config_folder = program.config_folder();
  options.capture = capture;
  auto context = Context::open(options);
  EXPECT_TRUE(context.ok()) << context.message();
  std::vector<Match> matches;
  for (const Problem& asked : {problem(3, 64), problem(5, 96)}) {
    for (int i = 0; i < (asked.m == 3 ? 5 : 1); ++i) {
      const auto plan = (*context)->plan(asked);
      EXPECT_TRUE(plan.ok()) << plan.message();
      if (i == 0) matches.push_back((*plan)->account().match);
    }
  }
  return matches;
}

TEST(Capture, WhatWasCapturedIsTunedAndAnswersExactly) {
  const SimulatedProgram program;
  EXPECT_EQ(plan_all(program, true), (std::vector{Match::untuned, Match::untuned}));
  const auto result =
      program.run({"tune", "--libtype", "tiled,skinny", "--budget", "60", "--iters", "5", "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  std::vector<int> calls;
  const auto report = nlohmann::json::parse(result.out);
  for (const auto& shape : report["problems"]) calls.push_back(shape["calls"]);
  EXPECT_EQ(calls, (std::vector{5, 1}));
  EXPECT_EQ(plan_all(program, false), (std::vector{Match::exact, Match::exact}));
}

}  // namespace
}  // namespace gemmtune::test
