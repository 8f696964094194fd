// The wgmma family without a GPU: launch configs and refusals, the instruction's text, and movable tensor
// maps.
#include "backends/cuda/families/wgmma/wgmma_launch_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/families/own_families.h"
#include "backends/cuda/families/wgmma/wgmma_cost.h"
#include "backends/cuda/tensor_map.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"

namespace gemmtune::cuda {
namespace {

using ::testing::HasSubstr;

Config config_of(const std::string& settings) {
  const auto candidate =
      parse_kernel_name("wgmma_r1_" + settings,
                        {"swap", "bm", "bn", "wg", "pp", "bk", "cm", "cn", "csk", "smem", "pdl", "prom"});
  EXPECT_TRUE(candidate.ok()) << candidate.message();
  return candidate->config;
}

const gpu::Limits h200 = limits_of("sm_90a");

TEST(WgmmaLaunchConfig, TilesAndStagesOfALargeProblem) {
  const WgmmaLaunchConfig launch =
      wgmma_launch_config(dense(4096, 7168, 2048), config_of("swap0_bm128_bn256_wg2_smem226"), h200);
  EXPECT_EQ(launch.tiles_m, 32);
  EXPECT_EQ(launch.tiles_n, 28);
  EXPECT_EQ(launch.stage_bytes, (128 + 256) * 128);
  EXPECT_EQ(launch.num_stages, 4);
  EXPECT_EQ(launch.accumulators(), 128);
  EXPECT_EQ(launch.threads(), 288);
  EXPECT_EQ(launch.num_blocks, 132);
  EXPECT_FALSE(launch.weight_read_once);
  EXPECT_LE(launch.shared_bytes, 232448);
}

/// Boxes have no more rows than x has in a tile, in multiples of eight, and a stage's bytes are those of the boxes.
TEST(WgmmaLaunchConfig, BoxesEndWithX) {
  const auto of = [](std::int64_t m, const char* settings) {
    return wgmma_launch_config(dense(m, 7168, 2048), config_of(settings), h200);
  };
  const WgmmaLaunchConfig alone = of(70, "swap0_bm128_bn64_wg2_smem226");
  EXPECT_EQ(alone.x_box_rows, 72);
  EXPECT_EQ(alone.loaded_bytes(alone.x_box_rows), (72 + 64) * 128);
  EXPECT_EQ(alone.last_x_box_rows, 72);
  const WgmmaLaunchConfig shared =
      of(72, "swap0_bm128_bn64_wg2_cn2_smem226");  // two blocks load half of x each
  EXPECT_EQ(shared.x_box_rows, 40);
  EXPECT_EQ(shared.loaded_bytes(shared.x_box_rows), (80 + 64) * 128);
  const WgmmaLaunchConfig swapped = of(1, "swap1_bm64_bn16_wg1_bk128_smem226");
  EXPECT_EQ(swapped.x_box_rows, 8);
  EXPECT_EQ(swapped.loaded_bytes(swapped.x_box_rows), 2 * (64 + 8) * 128);
  const WgmmaLaunchConfig two = of(137, "swap0_bm128_bn64_wg2_smem226");
  EXPECT_EQ(two.x_tiles, 2);
  EXPECT_EQ(two.x_box_rows, 128);
  EXPECT_EQ(two.last_x_box_rows, 16);
  EXPECT_EQ(two.loaded_bytes(two.last_x_box_rows), (16 + 64) * 128);
  const WgmmaLaunchConfig both =
      of(200, "swap0_bm128_bn64_wg2_cn2_smem226");  // 72 rows are left for two blocks
  EXPECT_EQ(both.last_x_box_rows, 40);
  EXPECT_EQ(both.loaded_bytes(both.last_x_box_rows), (80 + 64) * 128);
  const WgmmaLaunchConfig whole = of(256, "swap0_bm128_bn64_wg2_smem226");
  EXPECT_EQ(whole.last_x_box_rows, whole.x_box_rows);
  EXPECT_EQ(of(128, "swap0_bm128_bn64_wg2_cn4_smem226").x_box_rows, 32);
  Problem columns = dense(72, 7168, 2048);  // boxes of 64 rows, as many as the tile has
  columns.x_order = Order::column_major;
  const WgmmaLaunchConfig all = wgmma_launch_config(columns, config_of("swap0_bm128_bn64_wg2_smem226"), h200);
  EXPECT_EQ(all.loaded_bytes(all.x_box_rows), all.stage_bytes);
  EXPECT_EQ(all.last_x_box_rows, all.x_box_rows);
}

/// The tiles of all batches are one grid; their scales of rows leave tiles less room.
TEST(WgmmaLaunchConfig, TilesOfAllBatches) {
  const Config config = config_of("swap0_bm128_bn64_wg2_smem226");
  const WgmmaLaunchConfig launch = wgmma_launch_config(batched(16, 200, 512, 128), config, h200);
  EXPECT_EQ(launch.tiles_m, 2);
  EXPECT_EQ(launch.tiles_n, 8);
  EXPECT_EQ(launch.tiles(), 16 * 2 * 8);
  EXPECT_EQ(launch.num_blocks, 132);
  EXPECT_TRUE(wgmma_launch_config(batched(1, 128, 512, 128), config, h200).single_tile);
  const Config wide = config_of("swap0_bm128_bn256_wg2_smem226_prom0");
  EXPECT_EQ(refuse_wgmma(wgmma_launch_config(batched(16, 200, 512, 128), wide, h200), h200), "");
  EXPECT_THAT(
      refuse_wgmma(wgmma_launch_config(batched(16, 200, 512, 128, DataType::f8_e4m3fn), wide, h200), h200),
      HasSubstr("more registers than a thread has"));
}

TEST(WgmmaLaunchConfig, PartialSumsFitBesideTheSums) {
  Problem problem = dense(4096, 7168, 2048, DataType::f8_e4m3fn, DataType::bf16);
  const auto launch = [&](const std::string& settings) {
    return wgmma_launch_config(problem, config_of(settings), h200);
  };
  // One set of a whole tile, or of a half if that is too much; two sets of a tile.
  EXPECT_EQ(launch("swap0_bm128_bn224_wg2_prom1").accumulators(), 112 + 112);
  EXPECT_EQ(launch("swap0_bm128_bn224_wg2_prom1").n_slices, 1);
  EXPECT_EQ(launch("swap0_bm128_bn240_wg2_prom1").accumulators(), 120 + 60);
  EXPECT_EQ(launch("swap0_bm128_bn240_wg2_prom1").n_slices, 2);
  EXPECT_EQ(launch("swap0_bm128_bn144_wg2_prom2").accumulators(), 72 + 2 * 72);
  EXPECT_EQ(launch("swap1_bm64_bn128_wg1_prom2").accumulators(), 64 + 2 * 64);
  const auto refusal = [&](const std::string& settings) { return refuse_wgmma(launch(settings), h200); };
  for (const char* settings :
       {"swap0_bm128_bn256_wg2", "swap0_bm128_bn240_wg2_prom1", "swap0_bm128_bn144_wg2_prom2",
        "swap1_bm64_bn192_wg1_prom1", "swap0_bm256_bn144_wg2_prom1", "swap0_bm256_bn144_wg2",
        "swap0_bm128_bn144_wg2_pp1"})
    EXPECT_EQ(refusal(settings), "") << settings;
  EXPECT_THAT(refusal("swap0_bm128_bn160_wg2_prom2"), HasSubstr("registers"));
  EXPECT_THAT(refusal("swap0_bm128_bn256_wg2_prom1"), HasSubstr("registers"));
  EXPECT_THAT(refusal("swap0_bm256_bn160_wg2_prom1"), HasSubstr("prom 1 makes"));
  EXPECT_THAT(refusal("swap0_bm256_bn128_wg2_prom2"), HasSubstr("prom 2 is for"));
  EXPECT_THAT(refusal("swap0_bm128_bn64_wg2_bk256_prom2"), HasSubstr("prom 2 is for"));
  EXPECT_THAT(refusal("swap0_bm128_bn240_wg2_bk256_prom1"), HasSubstr("prom 1 makes"));
  // The producer of a packed weight needs more registers.
  problem.weight_layout = WeightLayout::any;
  EXPECT_EQ(launch("swap0_bm128_bn224_wg2_prom1").n_slices, 2);
}

TEST(WgmmaLaunchConfig, PromotionReallocatesRegistersIfTheBlockIsAlone) {
  const Problem problem = dense(4096, 7168, 2048, DataType::f8_e4m3fn, DataType::bf16);
  const auto launch = [&](const std::string& settings) {
    return wgmma_launch_config(problem, config_of(settings), h200);
  };
  const WgmmaLaunchConfig alone = launch("swap0_bm128_bn128_wg2_smem226_prom1");
  EXPECT_EQ(alone.threads(), 384);
  EXPECT_EQ(alone.consumer_registers(), 240);
  // A block starts with 168 registers for each of its threads, and a reallocation that needs more never ends.
  const auto in_use = [](const WgmmaLaunchConfig& of) {
    return 128 * of.producer_registers + 256 * of.consumer_registers();
  };
  EXPECT_LE(in_use(alone), 384 * 168);
  const Problem blocks = quantized(Operation::a8w8_blockscale, 4096, 4096, 7168, DataType::f8_e4m3fn);
  const auto of_blocks = [&](const Problem& of, const std::string& settings) {
    return wgmma_launch_config(of, config_of(settings), h200);
  };
  EXPECT_LE(in_use(of_blocks(blocks, "swap0_bm128_bn128_wg2_smem226_prom1")), 384 * 168);
  const WgmmaLaunchConfig widest = of_blocks(blocks, "swap0_bm256_bn128_wg2_smem226_prom1");
  EXPECT_EQ(refuse_wgmma(widest, h200), "");
  EXPECT_LE(in_use(widest), 384 * 168);
  for (const char* settings : {"swap0_bm128_bn128_wg2_smem226_prom0", "swap0_bm128_bn64_wg2_smem112_prom1",
                               "swap0_bm64_bn64_wg1_smem226_prom2"}) {
    EXPECT_EQ(launch(settings).producer_registers, 0) << settings;
    EXPECT_EQ(launch(settings).consumer_registers(), 0) << settings;
  }
}

TEST(WgmmaLaunchConfig, ScalesOfBlocksHavePlacesForWhatIsInFlight) {
  const auto of = [&](std::int64_t k, const std::string& settings) {
    return wgmma_launch_config(quantized(Operation::a8w8_blockscale, 4096, 4096, k, DataType::f8_e4m3fn),
                               config_of(settings), h200);
  };
  // A group of four k atoms comes in num_stages k tiles after what was in its place, and two more.
  const auto fits = [](const WgmmaLaunchConfig& launch, std::int64_t between) {
    return between >= launch.num_stages + 1;
  };
  const WgmmaLaunchConfig whole = of(7168, "swap0_bm128_bn128_wg2_smem226_prom2");
  EXPECT_TRUE(fits(whole, 4 * (whole.scale_groups - 1)));
  EXPECT_FALSE(fits(whole, 4 * (whole.scale_groups - 2)));
  EXPECT_EQ(whole.group_scales_bytes(), 2176);  // (128 + 1) rows of 16 bytes, and alignment
  // 256 of k a stage: a group of two stages.
  const WgmmaLaunchConfig wide = of(7168, "swap0_bm128_bn64_wg2_bk256_smem226_prom1");
  EXPECT_TRUE(fits(wide, 2 * (wide.scale_groups - 1)));
  EXPECT_FALSE(fits(wide, 2 * (wide.scale_groups - 2)));
  // 640 of k: groups of four k tiles and of one in turn; 128 of k: of one.
  const WgmmaLaunchConfig uneven = of(640, "swap0_bm128_bn128_wg2_smem226_prom2");
  EXPECT_EQ(uneven.num_stages, 5);
  EXPECT_EQ(uneven.scale_groups, 4);  // at the least 1 + 4 + 1 k tiles between two that have the same place
  EXPECT_EQ(of(128, "swap0_bm128_bn128_wg2_smem226_prom2").scale_groups, 7);
  // A block with one tile needs no more than its share of k has, which may begin and end within a group.
  EXPECT_EQ(of(1024, "swap0_bm128_bn128_wg2_csk4_smem226_prom2").scale_groups, 2);
  EXPECT_EQ(wgmma_launch_config(dense(4096, 4096, 7168), config_of("swap0_bm128_bn128_wg2_smem226"), h200)
                .scale_groups,
            0);
}

TEST(WgmmaLaunchConfig, TheDefaultOfFewRowsWithScalesOfBlocksFillsTheGpu) {
  for (const std::int64_t m : {16, 64, 128}) {
    const Problem problem = quantized(Operation::a8w8_blockscale, m, 2112, 7168, DataType::f8_e4m3fn);
    const WgmmaLaunchConfig launch =
        wgmma_launch_config(problem, default_wgmma_config(problem, h200, wgmma_cost(h200)), h200);
    EXPECT_GE(launch.num_blocks, 66) << m;
    EXPECT_LE(launch.num_blocks, 132) << m;
  }
}

/// The kernels that a tune of these sizes found on an H200: 5.9, 7.8 and 15.3 us, and 6.3 with scales of blocks.
TEST(WgmmaLaunchConfig, TheDefaultOfSixteenRowsSwapsAAndB) {
  const auto text = [](Operation operation, std::int64_t n, std::int64_t k) {
    const Problem problem = quantized(operation, 16, n, k, DataType::f8_e4m3fn);
    return default_wgmma_config(problem, h200, wgmma_cost(h200)).text();
  };
  const std::string one = "swap1_bm64_bn16_wg1_pp0_bk128_cm1_cn1_csk1_smem112_pdl0_prom2";
  const std::string two = "swap1_bm64_bn16_wg1_pp0_bk128_cm1_cn1_csk2_smem112_pdl0_prom2";
  EXPECT_EQ(text(Operation::a8w8, 4096, 4096), two);
  EXPECT_EQ(text(Operation::a8w8, 6144, 4096), one);
  EXPECT_EQ(text(Operation::a8w8, 4096, 14336), two);
  EXPECT_EQ(text(Operation::a8w8_blockscale, 4096, 4096), two);
}

TEST(WgmmaLaunchConfig, TheDefaultOfManyTilesDividesNoK) {
  for (const Operation operation : {Operation::a8w8_blockscale, Operation::a8w8}) {
    const Problem problem = quantized(operation, 4096, 24576, 1536, DataType::f8_e4m3fn);
    EXPECT_EQ(default_wgmma_config(problem, h200, wgmma_cost(h200)).number("csk"), 1);
  }
}

TEST(WgmmaLaunchConfig, PartsOfAPackedTileAreSlowIfBlocksShareX) {
  const Problem plain = dense(64, 5120, 8192);
  Problem packed = plain;
  packed.weight_layout = WeightLayout::any;
  const auto ratio = [&](const char* settings) {
    const WgmmaLaunchConfig launch = wgmma_launch_config(plain, config_of(settings), h200);
    return predicted_wgmma(packed, launch, h200, wgmma_cost(h200)) /
           predicted_wgmma(plain, launch, h200, wgmma_cost(h200));
  };
  EXPECT_GT(ratio("swap0_bm64_bn48_wg1_cn8_smem226"), 1.1);
  EXPECT_GT(ratio("swap1_bm64_bn32_wg1_cm2_cn2_smem226"), 1.1);
  EXPECT_EQ(ratio("swap0_bm64_bn48_wg1_smem226"), 1);
  EXPECT_EQ(ratio("swap0_bm64_bn64_wg1_cn8_smem226"), 1);
  EXPECT_EQ(ratio("swap1_bm64_bn64_wg1_cm4_smem226"), 1);
}

TEST(WgmmaLaunchConfig, ASwappedProblemReadsTheWeightOnce) {
  const WgmmaLaunchConfig launch =
      wgmma_launch_config(dense(60, 1280, 8192), config_of("swap1_bm64_bn64_wg1_csk6_smem112"), h200);
  EXPECT_EQ(launch.tiles_m, 20);
  EXPECT_EQ(launch.tiles_n, 1);
  EXPECT_EQ(launch.num_blocks, 120);
  EXPECT_TRUE(launch.weight_read_once);
  EXPECT_EQ(launch.k_tiles, 128);
  EXPECT_EQ(launch.blocks_per_sm, 2);
}

TEST(WgmmaLaunchConfig, ClustersRoundTheTilesUp) {
  const WgmmaLaunchConfig launch =
      wgmma_launch_config(dense(129, 128, 512), config_of("swap0_bm64_bn128_wg1_cm2_smem112"), h200);
  EXPECT_EQ(launch.tiles_m, 2);  // of 128 rows
  EXPECT_EQ(launch.num_blocks, 4);
  EXPECT_EQ(launch.cluster_size(), 2);
}

/// 64 x 128 of 4096 x 256 are 128 tiles, one a multiprocessor; of 4096 x 2112 they would be nine waves.
TEST(WgmmaLaunchConfig, SmallTilesOfManyRowsAreForOneWave) {
  const Config small = config_of("swap0_bm64_bn128_wg1_smem226");
  const auto refusal = [&](std::int64_t n) {
    const Problem problem = dense(4096, n, 7168);
    const WgmmaLaunchConfig launch = wgmma_launch_config(problem, small, h200);
    return refuse_wgmma_tile_waste(problem, launch) + refuse_wgmma_waste(problem, launch, h200);
  };
  EXPECT_EQ(refusal(256), "");
  EXPECT_THAT(refusal(2112), HasSubstr("tile is small for so many rows"));
}

TEST(WgmmaLaunchConfig, ClustersOfMoreThanTwoLeaveMultiprocessorsIdle) {
  const Problem problem = dense(4096, 7168, 2048);
  EXPECT_EQ(wgmma_launch_config(problem, config_of("swap0_bm128_bn256_wg2_cm2_smem226"), h200).num_blocks,
            132);
  EXPECT_EQ(wgmma_launch_config(problem, config_of("swap0_bm128_bn256_wg2_cm2_cn2_smem226"), h200).num_blocks,
            120);
  EXPECT_EQ(wgmma_launch_config(problem, config_of("swap0_bm128_bn256_wg2_cm4_cn2_smem226"), h200).num_blocks,
            120);
}

TEST(WgmmaLaunchConfig, PartialSumsOfOtherBlocksHaveMemoryOfTheirOwn) {
  const WgmmaLaunchConfig launch =
      wgmma_launch_config(dense(256, 1280, 8192), config_of("swap0_bm128_bn96_wg2_cm2_csk4_smem226"), h200);
  EXPECT_EQ(launch.cluster_size(), 8);
  EXPECT_EQ(launch.num_blocks, 14 * 8);
  // A thread's twelve units of four sums are divided by four blocks; three others send theirs. Eight stages would fit without.
  EXPECT_EQ(launch.num_stages, 6);
  EXPECT_EQ(launch.storage_bytes, 6 * (128 + 96) * 128 + 3 * 3 * 256 * 16);
  const WgmmaLaunchConfig little =
      wgmma_launch_config(dense(128, 1280, 256), config_of("swap0_bm128_bn128_wg2_csk2_smem226"), h200);
  EXPECT_EQ(little.num_stages, 2);
  EXPECT_EQ(little.storage_bytes, 2 * (128 + 128) * 128 + 8 * 256 * 16);
  // A third of sixteen units is six at most.
  const WgmmaLaunchConfig thirds =
      wgmma_launch_config(dense(128, 1280, 768), config_of("swap1_bm64_bn128_wg1_csk3_smem226"), h200);
  EXPECT_EQ(thirds.storage_bytes, thirds.num_stages * thirds.stage_bytes + 2 * 6 * 128 * 16);
}

TEST(WgmmaLaunchConfig, ABlockWithOneTileStagesItsResultsInThePipeline) {
  const WgmmaLaunchConfig single =
      wgmma_launch_config(dense(256, 7168, 2048), config_of("swap0_bm128_bn112_wg2_smem226"), h200);
  EXPECT_EQ(single.tiles(), 128);
  EXPECT_TRUE(single.single_tile);
  EXPECT_EQ(single.num_blocks, 128);
  EXPECT_EQ(single.storage_bytes, single.num_stages * single.stage_bytes);
  // Two boxes of 64 columns; of float32 four of 32.
  EXPECT_EQ(single.staging_buffers(2), 2);
  EXPECT_EQ(single.staging_buffers(4), 4);
  // More tiles than multiprocessors: blocks are persistent, the epilogue has staging buffers.
  const WgmmaLaunchConfig stays =
      wgmma_launch_config(dense(512, 7168, 2048), config_of("swap0_bm128_bn112_wg2_smem226"), h200);
  EXPECT_FALSE(stays.single_tile);
  EXPECT_EQ(stays.num_blocks, 132);
  EXPECT_GT(stays.storage_bytes, stays.num_stages * stays.stage_bytes);
  // Eight boxes need eight stages.
  Problem floats = dense(128, 25600, 5120);
  floats.y_type = DataType::f32;
  const WgmmaLaunchConfig wide =
      wgmma_launch_config(floats, config_of("swap0_bm128_bn256_wg2_smem226"), h200);
  EXPECT_EQ(wide.tiles(), 100);
  EXPECT_EQ(wide.staging_buffers(4), 8);
  EXPECT_FALSE(wide.single_tile);
  // Ping-pong: the other warp group still reads the pipeline.
  EXPECT_FALSE(wgmma_launch_config(dense(128, 4096, 7168), config_of("swap0_bm64_bn64_wg2_pp1_smem226"), h200)
                   .single_tile);
}

TEST(WgmmaLaunchConfig, ClustersAtOnceAreTheDriversNumber) {
  HopperLimits limits = h200;
  EXPECT_EQ(limits.clusters_at_once(2), 66);
  EXPECT_EQ(limits.clusters_at_once(3), 40);
  limits.clusters = {0, 132, 66, 39, 30, 22, 17, 15, 15};
  EXPECT_EQ(limits.clusters_at_once(3), 39);
  EXPECT_EQ(limits.clusters_at_once(7), 15);
  // Forty clusters of three would fit by the count of multiprocessors; one too many means a second wave.
  const Problem problem = dense(256, 4096, 7168);
  const Config thirds = config_of("swap0_bm128_bn208_wg2_csk3_smem226");
  EXPECT_EQ(wgmma_launch_config(problem, thirds, h200).tiles(), 40);
  EXPECT_EQ(refuse_wgmma_waste(problem, wgmma_launch_config(problem, thirds, h200), h200), "");
  EXPECT_THAT(refuse_wgmma_waste(problem, wgmma_launch_config(problem, thirds, limits), limits),
              HasSubstr("more clusters than run at once"));
  EXPECT_GT(
      predicted_wgmma(problem, wgmma_launch_config(problem, thirds, limits), limits, wgmma_cost(limits)),
      1.5 * predicted_wgmma(problem, wgmma_launch_config(problem, thirds, h200), h200, wgmma_cost(h200)));
}

TEST(WgmmaLaunchConfig, ArrivalsOnAnEmptyBarrier) {
  const auto arrivals = [](const char* settings) {
    return wgmma_launch_config(dense(4096, 4096, 4096), config_of(settings), h200).empty_arrivals();
  };
  EXPECT_EQ(arrivals("swap0_bm128_bn128_wg2_smem226"), 8);  // warps
  EXPECT_EQ(arrivals("swap0_bm128_bn128_wg1_smem226"), 4);
  EXPECT_EQ(arrivals("swap0_bm64_bn128_wg2_pp1_smem226"), 4);  // one warp group's warps
  EXPECT_EQ(arrivals("swap0_bm128_bn128_wg2_cm2_smem226"),
            2 * 2);  // a thread of each warp group of two blocks
  EXPECT_EQ(arrivals("swap0_bm128_bn128_wg2_cm2_cn4_smem226"), 2 * 5);
}

TEST(WgmmaLaunchConfig, APromotedTileIsStagedAsAWhole) {
  const auto of = [](const Problem& problem, const std::string& settings) {
    return wgmma_launch_config(problem, config_of(settings), h200);
  };
  const Problem blocks = quantized(Operation::a8w8_blockscale, 4096, 4096, 7168, DataType::f8_e4m3fn);
  const WgmmaLaunchConfig widest = of(blocks, "swap0_bm256_bn128_wg2_smem226_prom1");
  EXPECT_TRUE(widest.whole_staging);
  EXPECT_EQ(widest.staging_buffers_at_once, 4);
  EXPECT_EQ(widest.num_stages, 3);
  EXPECT_EQ(widest.storage_bytes, 3 * widest.stage_bytes + 256 * 128 * 2);
  EXPECT_EQ(of(blocks, "swap0_bm128_bn64_wg2_smem226_prom1").staging_buffers_at_once, 1);
  // Not if too few stages remain, nor without partial sums.
  Problem floats = dense(4096, 4096, 7168, DataType::f8_e4m3fn, DataType::f32);
  EXPECT_FALSE(of(floats, "swap0_bm256_bn128_wg2_smem226_prom1").whole_staging);
  EXPECT_EQ(of(floats, "swap0_bm256_bn128_wg2_smem226_prom1").staging_buffers_at_once, 2);
  EXPECT_FALSE(of(dense(4096, 4096, 7168), "swap0_bm128_bn256_wg2_smem226").whole_staging);
}

TEST(WgmmaLaunchConfig, TheEpilogueHasTwoStagingBuffers) {
  const WgmmaLaunchConfig launch =
      wgmma_launch_config(dense(4096, 7168, 2048), config_of("swap0_bm128_bn256_wg2_smem226"), h200);
  EXPECT_EQ(launch.storage_bytes, 4 * launch.stage_bytes + 8 * 2 * 16 * 128);
  const WgmmaLaunchConfig narrow =
      wgmma_launch_config(dense(256, 7168, 2048), config_of("swap0_bm128_bn112_wg2_smem226"), h200);
  EXPECT_EQ(narrow.tail_columns(2), 48);
  EXPECT_EQ(narrow.tail_columns(4), 16);
  EXPECT_EQ(narrow.staged_rows(), 16);
  const WgmmaLaunchConfig swapped =
      wgmma_launch_config(dense(48, 1280, 2048), config_of("swap1_bm64_bn48_wg1_smem112"), h200);
  EXPECT_EQ(swapped.tail_columns(2), 0);
  EXPECT_EQ(swapped.staged_rows(), 16);
}

TEST(WgmmaLaunchConfig, TheCostModelKnowsWavesAndStages) {
  const auto predicted = [](const Problem& problem, const char* settings) {
    return predicted_wgmma(problem, wgmma_launch_config(problem, config_of(settings), h200), h200,
                           wgmma_cost(h200));
  };
  // 1.94 waves of tiles of 224 columns, 1.70 of 256: two either way.
  const Problem many = dense(1024, 7168, 2048);
  EXPECT_LT(predicted(many, "swap0_bm128_bn224_wg2_cm2_smem226"),
            predicted(many, "swap0_bm128_bn256_wg2_cm2_smem226"));
  EXPECT_EQ(default_wgmma_config(many, h200, wgmma_cost(h200)).number("bn"), 224);
  const Problem few = dense(256, 7168, 2048);
  EXPECT_LT(1.5 * predicted(few, "swap0_bm128_bn112_wg2_cm2_smem226"),
            predicted(few, "swap0_bm128_bn112_wg2_cm2_smem112"));
}

TEST(WgmmaLaunchConfig, ASearchLeavesOutConfigsThatTheCostModelPredictsMuchSlower) {
  NoCompiler runtime;
  const CudaDriver no_driver{api::Driver{}};
  const auto family = make_wgmma_family(runtime, no_driver);
  for (const std::int64_t m : {64, 256, 4096}) {
    const Problem problem = dense(m, 4096, 7168);
    const double least = family->predicted_microseconds(problem, family->default_config(problem));
    for (const Config& config : family->space(problem).enumerate())
      EXPECT_LE(family->predicted_microseconds(problem, config), 1.4 * least) << config.text();
  }
}

TEST(WgmmaLaunchConfig, EveryRasterizationGroupIsWithinTheTiles) {
  for (const std::int64_t m : {1, 64, 300, 4096}) {
    const Problem problem = dense(m, 1280, 8192);
    NoCompiler runtime;
    const CudaDriver no_driver{api::Driver{}};
    const auto family = make_wgmma_family(runtime, no_driver);
    const std::vector<Config> configs = family->space(problem).enumerate();
    EXPECT_GE(configs.size(), 8U);
    for (const Config& config : configs) {
      const WgmmaLaunchConfig launch = wgmma_launch_config(problem, config, h200);
      EXPECT_GE(launch.group_m, 1);
      EXPECT_LE(launch.group_m, launch.tiles_m);
      EXPECT_EQ(launch.num_blocks % launch.cluster_size(), 0);
      EXPECT_LE(launch.num_blocks, launch.tiles() * launch.cluster_size());
      EXPECT_LE(launch.shared_bytes, 232448);
      EXPECT_GT(family->predicted_microseconds(problem, config), 0);
    }
  }
}

std::string refusal(const Problem& problem, const std::string& settings) {
  NoCompiler runtime;
  const CudaDriver no_driver{api::Driver{}};
  const auto family = make_wgmma_family(runtime, no_driver);
  return family->space(problem).build_refusal(config_of(settings));
}

TEST(WgmmaLaunchConfig, RefusesBeforeItCompiles) {
  const Problem problem = dense(512, 4096, 4096);
  EXPECT_EQ(refusal(problem, "swap0_bm128_bn128_wg2_smem226"), "");
  EXPECT_THAT(refusal(problem, "swap0_bm64_bn128_wg2_smem226"), HasSubstr("less than 64 rows"));
  EXPECT_THAT(refusal(problem, "swap0_bm256_bn256_wg2_smem226"), HasSubstr("registers"));
  EXPECT_THAT(refusal(problem, "swap0_bm128_bn128_wg1_pp1_smem226"), HasSubstr("two warp groups"));
  EXPECT_EQ(refusal(problem, "swap0_bm128_bn128_wg2_cm2_cn2_csk2_smem226"), "");
  EXPECT_THAT(refusal(problem, "swap0_bm128_bn128_wg2_cm4_cn4_smem226"), HasSubstr("more than eight blocks"));
  EXPECT_THAT(refusal(problem, "swap0_bm128_bn128_wg2_cm4_csk3_smem226"),
              HasSubstr("more than eight blocks"));
  EXPECT_THAT(refusal(problem, "swap0_bm128_bn112_wg2_cm4_smem226"), HasSubstr("a part of eight rows"));
  EXPECT_THAT(refusal(problem, "swap0_bm64_bn128_wg2_pp1_csk2_smem226"),
              HasSubstr("pp does not go with csk"));
  EXPECT_THAT(refusal(problem, "swap0_bm256_bn128_wg2_pp0_smem226"), HasSubstr("more registers"));
  EXPECT_THAT(refusal(problem, "swap1_bm64_bn16_wg1_csk4_smem112"), HasSubstr("eight rows"));
  EXPECT_THAT(refusal(dense(512, 4096, 128), "swap0_bm128_bn128_wg2_csk8_smem226"), HasSubstr("k tiles"));
  EXPECT_THAT(refusal(problem, "swap0_bm128_bn256_wg2_bk128_smem112"), HasSubstr("two stages"));
}

TEST(WgmmaLaunchConfig, AnyProblemHasADefaultThatCanBeBuilt) {
  NoCompiler runtime;
  const CudaDriver no_driver{api::Driver{}};
  const auto family = make_wgmma_family(runtime, no_driver);
  for (const std::int64_t m : {1, 17, 64, 100, 512, 513, 8192}) {
    for (const std::int64_t n : {8, 1280, 24576}) {
      for (const std::int64_t k : {8, 144, 7168}) {
        const Problem problem = dense(m, n, k);
        ASSERT_TRUE(family->accepts(problem).ok());
        EXPECT_EQ(family->space(problem).build_refusal(family->default_config(problem)), "")
            << m << " " << n << " " << k << " " << family->default_config(problem).text();
      }
    }
  }
}

TEST(WgmmaLaunchConfig, RefusesWhatTensorCoresOrTmaCannot) {
  NoCompiler runtime;
  const CudaDriver no_driver{api::Driver{}};
  const auto family = make_wgmma_family(runtime, no_driver);
  EXPECT_THAT(family->accepts(dense(64, 64, 20)).message(), HasSubstr("no multiple of 16 bytes"));
  Problem single = dense(64, 64, 64, DataType::f32);
  single.y_type = DataType::f32;
  EXPECT_THAT(family->accepts(single).message(), HasSubstr("data types"));
  Problem unaligned = dense(64, 64, 64);
  unaligned.alignment = 8;
  EXPECT_THAT(family->accepts(unaligned).message(), HasSubstr("alignment"));
}

TEST(WgmmaLaunchConfig, TheSourceDependsOnTheTileAndOnTheClustersWork) {
  NoCompiler runtime;
  const CudaDriver no_driver{api::Driver{}};
  const auto family = make_wgmma_family(runtime, no_driver);
  const auto source_of = [&](const char* settings) {
    EXPECT_FALSE(family->build(dense(512, 4096, 4096), config_of(settings)).ok());
    return runtime.last();
  };
  const gpu::Source plain = source_of("swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk1_smem226_pdl0");
  const gpu::Source dependent = source_of("swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk1_smem112_pdl1");
  const gpu::Source shared = source_of("swap0_bm128_bn128_wg2_pp0_bk64_cm2_cn1_csk1_smem226_pdl0");
  const gpu::Source other = source_of("swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn2_csk1_smem226_pdl0");
  const gpu::Source split = source_of("swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk3_smem226_pdl0");
  EXPECT_EQ(plain.defines, dependent.defines);
  EXPECT_EQ(plain.text, dependent.text);
  EXPECT_EQ(shared.defines, other.defines);
  EXPECT_NE(plain.defines, shared.defines);
  EXPECT_NE(plain.defines, split.defines);
}

TEST(WgmmaLaunchConfig, ColumnMajorOperandsAreMnMajor) {
  Problem problem = dense(256, 1280, 8192);
  problem.w_order = Order::column_major;
  const auto config = [&](const char* text) { return wgmma_launch_config(problem, config_of(text), h200); };
  const WgmmaLaunchConfig as_b = config("swap0_bm128_bn96_wg2_cm2_smem226");
  EXPECT_FALSE(as_b.a_mn_major);
  EXPECT_TRUE(as_b.b_mn_major);
  EXPECT_EQ(refuse_wgmma_order(as_b), "bn is no multiple of 64, which a column-major B needs");
  EXPECT_EQ(refuse_wgmma_order(config("swap0_bm128_bn192_wg2_smem226")), "");
  const WgmmaLaunchConfig as_a = config("swap1_bm128_bn96_wg2_cm2_cn4_smem226");
  EXPECT_TRUE(as_a.a_mn_major);
  EXPECT_FALSE(as_a.b_mn_major);
  EXPECT_EQ(refuse_wgmma_order(as_a), "");
  EXPECT_EQ(as_a.weight_sharers(), 4);
  EXPECT_EQ(as_a.x_sharers(), 2);
  // With few rows A is the weight, and B a column-major x.
  problem = dense(8, 1280, 8192);
  problem.x_order = Order::column_major;
  EXPECT_EQ(default_wgmma_config(problem, h200, wgmma_cost(h200)).number("bn"), 64);
  EXPECT_THAT(wgmma_macros(DataType::f16, 64, {.a = true, .b = false}),
              HasSubstr("accumulate, 1, 1, 1, 0;}"));
  EXPECT_THAT(wgmma_macros(DataType::bf16, 64, {.a = false, .b = true}),
              HasSubstr("accumulate, 1, 1, 0, 1;}"));
}

TEST(WgmmaLaunchConfig, OneInstructionNamesAllItsRegisters) {
  const std::string text = wgmma_macros(DataType::bf16, 16);
  EXPECT_THAT(
      text,
      HasSubstr(
          "m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, accumulate, 1, 1, 0, 0;}"));
  EXPECT_THAT(text, HasSubstr("\"+f\"(d[7])"));
  EXPECT_THAT(text, ::testing::Not(HasSubstr("d[8]")));
  const std::string small = wgmma_macros(DataType::f8_e4m3fn, 256);
  EXPECT_THAT(small, HasSubstr("m64n256k32.f32.e4m3.e4m3"));
  EXPECT_THAT(small, HasSubstr("}, %128, %129, accumulate, 1, 1;}"));
  EXPECT_EQ(std::count(small.begin(), small.end(), '\n'), 3);  // WGMMA, WGMMA_FIRST, FENCE_ACCUMULATORS
}

// ---- maps

/// A driver whose maps hold the address in their first word, the rest of the box in the others.
int encodings = 0;
bool address_twice = false;
int last_swizzle = -1;
api::Result fake_encode(api::TensorMap* map, int type, std::uint32_t dimensions, void* data,
                        const std::uint64_t* sizes, const std::uint64_t* strides, const std::uint32_t* extent,
                        const std::uint32_t*, int, int swizzle, int, int) {
  ++encodings;
  last_swizzle = swizzle;
  *map = {};
  map->opaque[0] = reinterpret_cast<std::uintptr_t>(data);
  map->opaque[1] = sizes[0] ^ sizes[1] << 32;
  map->opaque[2] = strides[0];
  map->opaque[3] =
      extent[0] ^ static_cast<std::uint64_t>(extent[1]) << 32 ^ static_cast<std::uint64_t>(type) << 60;
  if (dimensions == 3) {
    map->opaque[5] = sizes[2];
    map->opaque[6] = strides[1];
  }
  if (address_twice) map->opaque[4] = map->opaque[0] >> 8;
  return api::success;
}

class MovableMapTest : public ::testing::Test {
 protected:
  void SetUp() override {
    encodings = 0;
    address_twice = false;
    driver_.tensor_map = fake_encode;
  }
  static const void* at(std::uintptr_t address) { return reinterpret_cast<const void*>(address); }
  api::Driver driver_{};
  MatrixBox box_{nullptr, 2, 100, 64, 128, 64};
};

TEST_F(MovableMapTest, IsEncodedOnce) {
  const MovableMap map(driver_, box_);
  ASSERT_TRUE(map.is_movable());
  const int before = encodings;
  api::TensorMap moved{};
  ASSERT_TRUE(map.at(at(0x7f0000001230), 128, moved).ok());
  EXPECT_EQ(encodings, before);
  api::TensorMap expected{};
  MatrixBox there = box_;
  there.data = at(0x7f0000001230);
  ASSERT_TRUE(encode(driver_, there, expected).ok());
  EXPECT_TRUE(std::equal(std::begin(moved.opaque), std::end(moved.opaque), std::begin(expected.opaque)));
}

TEST_F(MovableMapTest, OtherRowsAreEncodedEachTime) {
  const MovableMap map(driver_, box_);
  const int before = encodings;
  api::TensorMap moved{};
  ASSERT_TRUE(map.at(at(0x7f0000001230), 256, moved).ok());
  EXPECT_EQ(encodings, before + 1);
  EXPECT_EQ(moved.opaque[2], 256U);
}

/// The third dimension, whose stride may be less than that of the rows.
TEST_F(MovableMapTest, BatchesHaveADimensionAndAStride) {
  box_.batches = 6;
  box_.batch_bytes = 12800;
  const MovableMap map(driver_, box_);
  const int before = encodings;
  api::TensorMap moved{};
  ASSERT_TRUE(map.at(at(0x7f0000001230), 128, 12800, moved).ok());
  EXPECT_EQ(encodings, before);
  EXPECT_EQ(moved.opaque[5], 6U);
  EXPECT_EQ(moved.opaque[6], 12800U);
  ASSERT_TRUE(map.at(at(0x7f0000001230), 768, 128, moved).ok());
  EXPECT_EQ(encodings, before + 1);
  EXPECT_EQ(moved.opaque[2], 768U);
  EXPECT_EQ(moved.opaque[6], 128U);
  EXPECT_EQ(map.at(at(0x7f0000001230), 128, 12808, moved).code(), StatusCode::unsupported);
  // Of one batch the stride does not matter.
  box_.batches = 1;
  const MovableMap one(driver_, box_);
  EXPECT_TRUE(one.at(at(0x7f0000001230), 128, 8, moved).ok());
  EXPECT_EQ(moved.opaque[5], 1U);
}

TEST_F(MovableMapTest, ADriverThatHidesTheAddressIsAskedEachTime) {
  address_twice = true;
  const MovableMap map(driver_, box_);
  EXPECT_FALSE(map.is_movable());
  const int before = encodings;
  api::TensorMap moved{};
  ASSERT_TRUE(map.at(at(0x7f0000001230), 128, moved).ok());
  EXPECT_EQ(encodings, before + 1);
  EXPECT_EQ(moved.opaque[4], std::uintptr_t{0x7f0000001230} >> 8);
}

/// compute-sanitizer reports each call that the driver refuses.
TEST_F(MovableMapTest, TheDriverIsNotAskedAboutAnEmptyBox) {
  const MovableMap none(driver_, MatrixBox{});
  box_.box_rows = 0;
  const MovableMap unstaged(driver_, box_);
  EXPECT_FALSE(none.is_movable() || unstaged.is_movable());
  EXPECT_EQ(encodings, 0);
}

TEST_F(MovableMapTest, LinesAreSwizzledAndNarrowerBoxesAreNot) {
  api::TensorMap map{};
  box_.data = at(0x7f0000001230);
  ASSERT_TRUE(encode(driver_, box_, map).ok());
  EXPECT_EQ(last_swizzle, api::tensor_swizzle_128);
  box_.box_columns = 48;
  ASSERT_TRUE(encode(driver_, box_, map).ok());
  EXPECT_EQ(last_swizzle, api::tensor_swizzle_none);
  EXPECT_EQ(static_cast<std::uint32_t>(map.opaque[3]), 48U);
  box_.element_bytes = 4;
  box_.box_columns = 32;
  ASSERT_TRUE(encode(driver_, box_, map).ok());
  EXPECT_EQ(last_swizzle, api::tensor_swizzle_128);
}

TEST_F(MovableMapTest, RefusesWhatIsNotAligned) {
  const MovableMap map(driver_, box_);
  api::TensorMap moved{};
  EXPECT_THAT(map.at(at(0x7f0000001238), 128, moved).message(), HasSubstr("multiples of 16 bytes"));
}

}  // namespace
}  // namespace gemmtune::cuda
