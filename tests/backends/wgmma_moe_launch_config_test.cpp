// Tiles and shared memory of wgmma_moe's stages, and what runs untuned.
#include "backends/cuda/families/wgmma_moe/wgmma_moe_launch_config.h"

#include <gtest/gtest.h>

#include "backends/cuda/families/wgmma_moe/wgmma_moe_cost.h"
#include "support/nvrtc.h"
#include "support/operation_problems.h"

namespace gemmtune::cuda {
namespace {

Problem layer(DataType type, std::int64_t tokens, int experts, int topk, std::int64_t n, std::int64_t k) {
  const QuantType quant = type == DataType::bf16 ? QuantType::none : QuantType::per_1x128;
  Problem problem = testing_problems::moe_problem(type, type, quant, {tokens, n, k});
  problem.moe.experts = experts;
  problem.moe.topk = topk;
  return problem;
}

TEST(WgmmaMoeLaunchConfig, DefaultsFitAndFollowTheTokensOfAnExpert) {
  const HopperLimits limits(limits_of("sm_90a"));
  std::int64_t before = 0;
  for (const std::int64_t tokens : {1, 16, 128, 1024, 4096}) {
    for (const DataType type : {DataType::bf16, DataType::f8_e4m3fn}) {
      for (const Problem& problem :
           {layer(type, tokens, 256, 8, 256, 7168), layer(type, tokens, 128, 8, 768, 2048),
            layer(type, tokens, 8, 2, 7168, 4096)}) {
        const Config config = default_wgmma_moe_config(problem, limits, wgmma_moe_cost(limits));
        const auto stages = wgmma_moe_stages(problem, config, limits);
        for (const WgmmaMoeStage& stage : stages) {
          EXPECT_EQ(refuse_wgmma_moe(stage), "") << print(problem) << " " << config.text();
          EXPECT_LE(stage.shared_bytes, static_cast<std::int64_t>(limits.shared_bytes_per_block));
          EXPECT_GE(stage.column_tiles * stage.rows, stage.weight_rows);
        }
        if (tokens == 1) {
          EXPECT_EQ(stages[0].tokens, 16) << config.text();
        }
      }
    }
    const Problem dense = layer(DataType::bf16, tokens, 8, 2, 7168, 4096);
    const auto stages =
        wgmma_moe_stages(dense, default_wgmma_moe_config(dense, limits, wgmma_moe_cost(limits)), limits);
    EXPECT_GE(stages[0].sorted_tokens(), before);
    before = stages[0].sorted_tokens();
  }
}

/// gpt-oss's layer: k is 22.5 units of 128.
TEST(WgmmaMoeLaunchConfig, RowsOfAnMxfp4LayerArePadded) {
  const HopperLimits limits(limits_of("sm_90a"));
  for (const std::int64_t tokens : {1, 16, 256, 1024}) {
    Problem problem = testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1, QuantType::per_1x32,
                                                    {tokens, 2880, 2880});
    problem.moe.experts = 128;
    problem.moe.topk = 4;
    const Config config = default_wgmma_moe_config(problem, limits, wgmma_moe_cost(limits));
    for (const WgmmaMoeStage& stage : wgmma_moe_stages(problem, config, limits)) {
      EXPECT_EQ(refuse_wgmma_moe(stage), "") << config.text();
      EXPECT_EQ(stage.weight_row_bytes, 1440);
      EXPECT_EQ(stage.k_bytes, 23 * fp4_unit * 2);
      EXPECT_EQ(stage.k_tiles, 12);
      EXPECT_EQ(stage.columns, stage.stage == 1 ? 23 * fp4_unit : 2880);
      EXPECT_EQ(stage.cluster, 1);
    }
  }
}

/// With buffers for output beside the stages they would have three.
TEST(WgmmaMoeLaunchConfig, WideTilesOfAnMxfp4WeightHaveFourStages) {
  const HopperLimits limits(limits_of("sm_90a"));
  const Problem problem = testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1,
                                                        QuantType::per_1x32, {1024, 2880, 2880});
  const auto candidate = parse_kernel_name("wgmma_moe_r1_bm48_bn256_bo256_wg4_cm1_bk256_smem226",
                                           {"bm", "bn", "bo", "wg", "cm", "bk", "smem"});
  ASSERT_TRUE(candidate.ok()) << candidate.message();
  for (const WgmmaMoeStage& stage : wgmma_moe_stages(problem, candidate->config, limits)) {
    EXPECT_EQ(stage.num_stages, 4);
    EXPECT_LE(stage.shared_bytes, static_cast<std::int64_t>(limits.shared_bytes_per_block));
  }
}

/// As measured: 128 x 256 tiles of a cluster take 1.13 times as long.
TEST(WgmmaMoeLaunchConfig, Fp8WithManyTokensOfAnExpertRunsTilesWithoutAClusterUntuned) {
  const HopperLimits limits(limits_of("sm_90a"));
  const Problem problem = layer(DataType::f8_e4m3fn, 4096, 128, 8, 768, 2048);
  const auto stages =
      wgmma_moe_stages(problem, default_wgmma_moe_config(problem, limits, wgmma_moe_cost(limits)), limits);
  EXPECT_EQ(stages[0].tokens, 96);
  EXPECT_EQ(stages[0].cluster, 1);
  EXPECT_TRUE(stages[0].quantizes);
}

/// Where a tile of w1 has the 128 columns of a scale, in two warp groups: no kernel between the stages then.
TEST(WgmmaMoeLaunchConfig, TilesOfAScalesColumnsQuantizeTheHiddenLayer) {
  const HopperLimits limits(limits_of("sm_90a"));
  const auto quantizes = [&](const char* tile, std::int64_t n, bool gated) {
    Problem problem = layer(DataType::f8_e4m3fn, 4096, 128, 8, n, 2048);
    problem.moe.gated = gated;
    const auto candidate = parse_kernel_name(std::string("wgmma_moe_r1_") + tile + "_cm1_bk128_smem226",
                                             {"bm", "bn", "bo", "wg", "cm", "bk", "smem"});
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    const auto stages = wgmma_moe_stages(problem, candidate->config, limits);
    EXPECT_EQ(refuse_wgmma_moe(stages[0]), "") << tile;
    EXPECT_FALSE(stages[1].quantizes);
    // The magnitudes that the warp groups pass each other are beside what the launch asks for.
    const std::int64_t beside = stages[0].quantizes ? 2 * 2 * stages[0].tokens * 4 : 0;
    EXPECT_LE(stages[0].shared_bytes + beside, static_cast<std::int64_t>(limits.shared_bytes_per_block));
    return stages[0].quantizes;
  };
  EXPECT_TRUE(quantizes("bm96_bn256_bo256_wg2", 768, true));
  EXPECT_TRUE(quantizes("bm64_bn256_bo128_wg2", 256, true));
  EXPECT_TRUE(quantizes("bm96_bn128_bo128_wg2", 768, false));
  EXPECT_FALSE(quantizes("bm48_bn256_bo256_wg2", 768, true));  // few tokens
  EXPECT_FALSE(quantizes("bm96_bn128_bo128_wg2", 768, true));  // 64 columns
  EXPECT_FALSE(quantizes("bm64_bn256_bo128_wg1", 768, true));  // one warp group
  EXPECT_FALSE(quantizes("bm96_bn256_bo256_wg2", 832, true));  // the last scale has 64 columns
}

TEST(WgmmaMoeLaunchConfig, RefusesWhatDoesNotFit) {
  const HopperLimits limits(limits_of("sm_90a"));
  const Problem problem = layer(DataType::bf16, 4096, 8, 2, 7168, 4096);
  const auto refusal = [&](const char* name) {
    const auto candidate = parse_kernel_name(name, {"bm", "bn", "bo", "wg", "cm", "bk", "smem"});
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    const auto stages = wgmma_moe_stages(problem, candidate->config, limits);
    const std::string first = refuse_wgmma_moe(stages[0]);
    return first.empty() ? refuse_wgmma_moe(stages[1]) : first;
  };
  EXPECT_EQ(refusal("wgmma_moe_r1_bm128_bn256_bo256_wg2_cm2_bk64_smem226"), "");
  EXPECT_EQ(refusal("wgmma_moe_r1_bm256_bn256_bo256_wg2_cm1_bk64_smem226"),
            "more accumulators than registers");
  EXPECT_EQ(refusal("wgmma_moe_r1_bm64_bn64_bo128_wg1_cm2_bk64_smem226"),
            "no cluster of tiles of 64 rows, or of blocks that sort");
  EXPECT_EQ(refusal("wgmma_moe_r1_bm128_bn256_bo256_wg2_cm1_bk128_smem112"),
            "two blocks of a multiprocessor have too few registers");
}

TEST(WgmmaMoeLaunchConfig, NoReallocationOfRegistersWaitsForEver) {
  const HopperLimits limits(limits_of("sm_90a"));
  int reallocated = 0;
  for (const DataType type : {DataType::bf16, DataType::f8_e4m3fn}) {
    const Problem problem = layer(type, 4096, 8, 2, 7168, 4096);
    Space space;
    for (Parameter& parameter : wgmma_moe_parameters(problem)) space.add(std::move(parameter));
    for (const Config& config : space.enumerate()) {
      for (const WgmmaMoeStage& stage : wgmma_moe_stages(problem, config, limits)) {
        if (!refuse_wgmma_moe(stage).empty() || !stage.reallocates_registers()) continue;
        ++reallocated;
        // A block starts with 168 registers for each of its 384 threads.
        EXPECT_LE(128 * stage.producer_registers() + 256 * stage.consumer_registers(), 168 * 384);
        EXPECT_GT(stage.consumer_registers(), 168);
        EXPECT_EQ(stage.consumer_registers() % 8, 0);
        EXPECT_EQ(stage.producer_registers() % 8, 0);
      }
    }
  }
  EXPECT_GE(reallocated, 8);
}

/// Four warp groups of an MXFP4 weight: a block of 640 threads starts with 96 registers each.
TEST(WgmmaMoeLaunchConfig, FourWarpGroupsHaveTheRegistersThatABlockStartsWith) {
  const HopperLimits limits(limits_of("sm_90a"));
  const Problem problem = testing_problems::moe_problem(DataType::bf16, DataType::f4_e2m1,
                                                        QuantType::per_1x32, {4096, 2880, 2880});
  Space space;
  for (Parameter& parameter : wgmma_moe_parameters(problem)) space.add(std::move(parameter));
  int reallocated = 0;
  for (const Config& config : space.enumerate()) {
    for (const WgmmaMoeStage& stage : wgmma_moe_stages(problem, config, limits)) {
      if (!refuse_wgmma_moe(stage).empty()) continue;
      EXPECT_EQ(stage.rows % (64 * stage.warpgroups), 0) << config.text();
      if (!stage.reallocates_registers()) continue;
      ++reallocated;
      EXPECT_EQ(stage.threads(), 640);
      EXPECT_LE(128 * stage.producer_registers() + 512 * stage.consumer_registers(), 96 * 640);
      EXPECT_GT(stage.consumer_registers(), 96);
      EXPECT_LE(stage.tokens, 48) << config.text();
    }
  }
  EXPECT_GE(reallocated, 4);
}

}  // namespace
}  // namespace gemmtune::cuda
