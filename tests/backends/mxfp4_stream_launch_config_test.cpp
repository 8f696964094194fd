// What mxfp4_stream's launches must hold for the kernel, without a GPU.
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_launch_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_cost.h"
#include "support/hopper_limits.h"
#include "support/operation_problems.h"

namespace gemmtune::cuda::stream_test {
namespace {

using testing_problems::moe_of_weights_alone;

using test::hopper_limits;

Problem layer(Problem problem, int experts) {
  problem.moe.experts = experts;
  problem.moe.topk = 8;
  return problem;
}

/// Qwen3-30B-A3B's and Kimi-K2.5's on eight GPUs, and sizes of few strips.
const Problem problems[] = {
    layer(moe_of_weights_alone(DataType::bf16, QuantType::per_1x16, {16, 768, 2048}), 128),
    layer(moe_of_weights_alone(DataType::f16, QuantType::per_group, {64, 768, 2048}, 128), 128),
    layer(moe_of_weights_alone(DataType::bf16, QuantType::per_group, {64, 768, 2048}, 64, true), 128),
    layer(moe_of_weights_alone(DataType::bf16, QuantType::per_group, {16, 256, 7168}, 32), 384),
    layer(moe_of_weights_alone(DataType::bf16, QuantType::per_1x16, {9, 320, 192}), 40),
    layer(testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32,
                                        {64, 2880, 2880}),
          128)};

template <typename Check>
int for_each_launch(const Problem& problem, const Check& check) {
  Space space;
  for (Parameter& parameter : stream_parameters(problem)) space.add(std::move(parameter));
  int launches = 0;
  for (const Config& config : space.enumerate()) {
    const StreamLaunches both = stream_launches(problem, config, hopper_limits());
    if (!refuse_stream(problem, both).empty()) continue;
    SCOPED_TRACE(config.text());
    for (const StreamLaunch& launch : both) {
      ++launches;
      check(launch);
    }
  }
  return launches;
}

/// The parity of a barrier's phase says enough where a stage is always of one team and a team's slabs that follow each other are in different stages: kernels
/// with a stage a team did not end. A team adds a slab's sums when it has begun its next one; a warp alone does not wait for sums.
TEST(StreamLaunchConfig, StagesAndSlotsServeTheTeams) {
  for (const Problem& problem : problems) {
    const int launches = for_each_launch(problem, [](const StreamLaunch& launch) {
      EXPECT_EQ(launch.num_stages % launch.teams, 0);
      EXPECT_GE(launch.num_stages, (launch.team_warps() > 1 ? 2 : 1) * launch.teams);
      EXPECT_GE(launch.num_slots, launch.num_stages);
      EXPECT_GT(launch.num_slots, launch.teams);
      EXPECT_EQ(launch.warps, launch.teams * launch.team_warps());
      EXPECT_LE(launch.warps, 15);
      EXPECT_GE(launch.team_warps() * launch.warp_units, launch.units);
      EXPECT_LE(launch.shared_bytes * launch.blocks, 227 * 1024);
    });
    EXPECT_GT(launches, 8) << print(problem);
  }
}

TEST(StreamLaunchConfig, SlabsAreTheWholeWeightAndOfWholeSectors) {
  for (const Problem& problem : problems) {
    for_each_launch(problem, [](const StreamLaunch& launch) {
      EXPECT_EQ(launch.slabs * launch.strips * strip_rows, launch.weight_rows);
      EXPECT_GE(launch.stage_bytes,
                launch.strips * strip_rows * (launch.pitch + launch.scale_pitch + launch.zero_pitch));
      // Bulk copies of half a slab.
      EXPECT_EQ(launch.strips * strip_rows / 2 * launch.scale_row % 16, 0);
      EXPECT_EQ(launch.strips * strip_rows / 2 * launch.zero_row % 16, 0);
    });
  }
}

/// Short rows have several teams and several strips in a stage; long ones fill both.
TEST(StreamLaunchConfig, TeamsAndStripsFollowTheLengthOfRows) {
  Config config;
  for (const auto& [key, value] : {std::pair{"bm", 8}, {"ku", 8}, {"smem", 226}, {"warps", 15}, {"slab", 16}})
    config.set(key, std::int64_t{value});
  const StreamLaunches qwen = stream_launches(problems[0], config, hopper_limits());
  EXPECT_EQ(qwen[0].teams, 3);
  EXPECT_EQ(qwen[0].strips, 1);
  EXPECT_EQ(qwen[1].teams, 6);  // with seven not two stages each
  EXPECT_EQ(qwen[1].strips, 2);
  EXPECT_TRUE(qwen[0].wide());
  const StreamLaunches kimi = stream_launches(problems[3], config, hopper_limits());
  EXPECT_EQ(kimi[0].teams, 1);
  EXPECT_EQ(kimi[1].teams, 12);  // of a warp, with a stage each
  EXPECT_EQ(kimi[1].strips, 8);
  EXPECT_FALSE(kimi[0].wide());
  const StreamLaunches mxfp4 = stream_launches(problems[5], {}, hopper_limits());
  EXPECT_EQ(mxfp4[0].teams, 1);
  EXPECT_EQ(mxfp4[0].strips, 1);
}

/// 64 tokens of Qwen are 4 an expert, 128 are 8, where wgmma_moe was measured to be faster; 256 of Kimi are 5.3.
TEST(StreamLaunchConfig, UntunedLayersOfFewTokensAnExpertRunIt) {
  Problem qwen = problems[0], kimi = problems[3];
  qwen.m = 64;
  kimi.m = 256;
  EXPECT_TRUE(runs_stream_untuned(qwen));
  EXPECT_TRUE(runs_stream_untuned(kimi));
  qwen.m = 128;
  EXPECT_FALSE(runs_stream_untuned(qwen));
  Problem mxfp4 = problems[5];
  mxfp4.m = 128;
  EXPECT_TRUE(runs_stream_untuned(mxfp4));
}

/// Blocks sort what they can, 512 pairs: the same kernel takes 6.6 us less at 64 tokens of Qwen than behind one that sorts.
TEST(StreamLaunchConfig, BlocksSortWhatTheyCan) {
  Problem qwen = problems[1];
  const gpu::Limits limits = hopper_limits();
  for (const auto& [tokens, sort] : {std::pair{2, 1}, {32, 1}, {64, 1}, {65, 0}}) {
    qwen.m = tokens;
    EXPECT_EQ(default_stream_config(qwen, limits, stream_cost(limits)).number("sort"), sort) << tokens;
  }
}

/// Few experts with several tiles: whole, so that a tile's tokens are loaded once.
TEST(StreamLaunchConfig, TilesTakeTurnsWhereMostExpertsHaveSeveral) {
  Problem qwen = problems[1];
  Config config;
  config.set("ku", std::int64_t{8});
  EXPECT_EQ(stream_launches(qwen, config, hopper_limits())[0].chunk, 96);
  qwen.m = 128;
  EXPECT_EQ(stream_launches(qwen, config, hopper_limits())[0].chunk, 30);
}

}  // namespace
}  // namespace gemmtune::cuda::stream_test
