// The wgmma family without a GPU: grids, memory and refusals by arithmetic, the instruction's text, and maps
// that move.
#include "backends/cuda/families/wgmma/wgmma_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "backends/cuda/families/wgmma/wgmma.h"
#include "backends/cuda/tensor_map.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"

namespace gemmtune::cuda {
namespace {

using testing::HasSubstr;

Config config_of(const std::string& settings) {
  const auto candidate = parse_kernel_name(
      "wgmma_r1_" + settings, {"sw", "ta", "tb", "wg", "turn", "ks", "ca", "cb", "c", "ring", "pdl"});
  EXPECT_TRUE(candidate.ok()) << candidate.message();
  return candidate->config;
}

const gpu::Limits h200 = limits_of("sm_90a");

TEST(WgmmaPlan, TilesAndStagesOfALargeProblem) {
  const WgmmaPlan plan = wgmma_plan(dense(4096, 7168, 2048), config_of("sw0_ta128_tb256_wg2_ring226"), h200);
  EXPECT_EQ(plan.tiles_a, 32);
  EXPECT_EQ(plan.tiles_b, 28);
  EXPECT_EQ(plan.stage_bytes, (128 + 256) * 128);
  EXPECT_EQ(plan.stages, 4);
  EXPECT_EQ(plan.accumulators(), 128);
  EXPECT_EQ(plan.threads(), 288);
  EXPECT_EQ(plan.blocks, 132);
  EXPECT_FALSE(plan.once);
  EXPECT_LE(plan.shared_bytes, 232448);
}

TEST(WgmmaPlan, PartsOfAPackedTileAreSlowWhereBlocksShareX) {
  const Problem plain = dense(64, 5120, 8192);
  Problem packed = plain;
  packed.bpreshuffle = true;
  const auto ratio = [&](const char* settings) {
    const WgmmaPlan plan = wgmma_plan(plain, config_of(settings), h200);
    return predicted_wgmma(packed, plan, h200) / predicted_wgmma(plain, plan, h200);
  };
  EXPECT_GT(ratio("sw0_ta64_tb48_wg1_cb8_ring226"), 1.1);
  EXPECT_GT(ratio("sw1_ta64_tb32_wg1_ca2_cb2_ring226"), 1.1);
  EXPECT_EQ(ratio("sw0_ta64_tb48_wg1_ring226"), 1);
  EXPECT_EQ(ratio("sw0_ta64_tb64_wg1_cb8_ring226"), 1);
  EXPECT_EQ(ratio("sw1_ta64_tb64_wg1_ca4_ring226"), 1);
}

TEST(WgmmaPlan, ASwappedProblemReadsTheWeightOnce) {
  const WgmmaPlan plan = wgmma_plan(dense(60, 1280, 8192), config_of("sw1_ta64_tb64_wg1_c6_ring112"), h200);
  EXPECT_EQ(plan.tiles_a, 20);
  EXPECT_EQ(plan.tiles_b, 1);
  EXPECT_EQ(plan.blocks, 120);
  EXPECT_TRUE(plan.once);
  EXPECT_EQ(plan.steps, 128);
  EXPECT_EQ(plan.resident, 2);
}

TEST(WgmmaPlan, ClustersRoundTheTilesUp) {
  const WgmmaPlan plan = wgmma_plan(dense(129, 128, 512), config_of("sw0_ta64_tb128_wg1_ca2_ring112"), h200);
  EXPECT_EQ(plan.tiles_a, 2);  // of 128 rows
  EXPECT_EQ(plan.blocks, 4);
  EXPECT_EQ(plan.cluster(), 2);
}

TEST(WgmmaPlan, ClustersOfMoreThanTwoLeaveMultiprocessorsOver) {
  const Problem problem = dense(4096, 7168, 2048);
  EXPECT_EQ(wgmma_plan(problem, config_of("sw0_ta128_tb256_wg2_ca2_ring226"), h200).blocks, 132);
  EXPECT_EQ(wgmma_plan(problem, config_of("sw0_ta128_tb256_wg2_ca2_cb2_ring226"), h200).blocks, 120);
  EXPECT_EQ(wgmma_plan(problem, config_of("sw0_ta128_tb256_wg2_ca4_cb2_ring226"), h200).blocks, 120);
}

TEST(WgmmaPlan, PartsOfKTakeTheRingsPlace) {
  const WgmmaPlan plan =
      wgmma_plan(dense(256, 1280, 8192), config_of("sw0_ta128_tb96_wg2_ca2_c4_ring226"), h200);
  EXPECT_EQ(plan.cluster(), 8);
  EXPECT_EQ(plan.blocks, 14 * 8);
  EXPECT_EQ(plan.stages, 8);
  EXPECT_EQ(plan.memory_bytes, 8 * (128 + 96) * 128);
  // Few steps: own sums and what the other block sends need more than the ring.
  const WgmmaPlan little =
      wgmma_plan(dense(128, 1280, 256), config_of("sw0_ta128_tb128_wg2_c2_ring226"), h200);
  EXPECT_EQ(little.stages, 2);
  EXPECT_EQ(little.memory_bytes, (128 + 64) * 128 * 4);
  // Of a swapped tile it is rows of B that are shared out, a third of 128 in eights: 48.
  const WgmmaPlan thirds =
      wgmma_plan(dense(128, 1280, 768), config_of("sw1_ta64_tb128_wg1_c3_ring226"), h200);
  EXPECT_EQ(thirds.memory_bytes,
            std::max<std::int64_t>((128 + 2 * 48) * 64 * 4, thirds.stages * thirds.stage_bytes));
  // All of the largest tile's does not fit.
  EXPECT_THAT(
      refuse_wgmma(wgmma_plan(dense(128, 1280, 8192), config_of("sw0_ta128_tb256_wg2_c8_ring226"), h200),
                   h200),
      HasSubstr("more shared memory"));
}

TEST(WgmmaPlan, ABlockWithOneTileAloneStoresFromTheRing) {
  const WgmmaPlan lone = wgmma_plan(dense(256, 7168, 2048), config_of("sw0_ta128_tb112_wg2_ring226"), h200);
  EXPECT_EQ(lone.tiles(), 128);
  EXPECT_TRUE(lone.lone);
  EXPECT_EQ(lone.blocks, 128);
  EXPECT_EQ(lone.memory_bytes, lone.stages * lone.stage_bytes);
  // Two boxes of 64 columns; of single floats four of 32.
  EXPECT_EQ(lone.buffers(2), 2);
  EXPECT_EQ(lone.buffers(4), 4);
  // More tiles than multiprocessors: blocks stay, and results have memory of their own.
  const WgmmaPlan stays = wgmma_plan(dense(512, 7168, 2048), config_of("sw0_ta128_tb112_wg2_ring226"), h200);
  EXPECT_FALSE(stays.lone);
  EXPECT_EQ(stays.blocks, 132);
  EXPECT_GT(stays.memory_bytes, stays.stages * stays.stage_bytes);
  // Eight boxes do not find eight stages.
  Problem floats = dense(128, 25600, 5120);
  floats.y_type = DataType::f32;
  const WgmmaPlan wide = wgmma_plan(floats, config_of("sw0_ta128_tb256_wg2_ring226"), h200);
  EXPECT_EQ(wide.tiles(), 100);
  EXPECT_EQ(wide.buffers(4), 8);
  EXPECT_FALSE(wide.lone);
  // In turns a tile is one warpgroup's, while the other still reads.
  EXPECT_FALSE(wgmma_plan(dense(128, 4096, 7168), config_of("sw0_ta64_tb64_wg2_turn1_ring226"), h200).lone);
}

TEST(WgmmaPlan, ClustersAtOnceAreWhatTheDriverSays) {
  HopperLimits limits = h200;
  EXPECT_EQ(limits.clusters_at_once(2), 66);
  EXPECT_EQ(limits.clusters_at_once(3), 40);
  limits.clusters = {0, 132, 66, 39, 30, 22, 17, 15, 15};
  EXPECT_EQ(limits.clusters_at_once(3), 39);
  EXPECT_EQ(limits.clusters_at_once(7), 15);
  // Forty clusters of three would fit by the count of multiprocessors; one too many means a second wave.
  const Problem problem = dense(256, 4096, 7168);
  const Config thirds = config_of("sw0_ta128_tb208_wg2_c3_ring226");
  EXPECT_EQ(wgmma_plan(problem, thirds, h200).tiles(), 40);
  EXPECT_EQ(refuse_wgmma_waste(problem, wgmma_plan(problem, thirds, h200), h200), "");
  EXPECT_THAT(refuse_wgmma_waste(problem, wgmma_plan(problem, thirds, limits), limits),
              HasSubstr("more clusters than run at once"));
  EXPECT_GT(predicted_wgmma(problem, wgmma_plan(problem, thirds, limits), limits),
            1.5 * predicted_wgmma(problem, wgmma_plan(problem, thirds, h200), h200));
}

TEST(WgmmaPlan, WhoSaysThatAStageWasRead) {
  const auto arrivals = [](const char* settings) {
    return wgmma_plan(dense(4096, 4096, 4096), config_of(settings), h200).arrivals();
  };
  EXPECT_EQ(arrivals("sw0_ta128_tb128_wg2_ring226"), 8);  // warps
  EXPECT_EQ(arrivals("sw0_ta128_tb128_wg1_ring226"), 4);
  EXPECT_EQ(arrivals("sw0_ta64_tb128_wg2_turn1_ring226"), 4);     // of the warpgroup whose tile it is
  EXPECT_EQ(arrivals("sw0_ta128_tb128_wg2_ca2_ring226"), 2 * 2);  // a thread of each warpgroup of two blocks
  EXPECT_EQ(arrivals("sw0_ta128_tb128_wg2_ca2_cb4_ring226"), 2 * 5);
}

TEST(WgmmaPlan, ResultsHaveTwoBuffersBehindTheRing) {
  const WgmmaPlan plan = wgmma_plan(dense(4096, 7168, 2048), config_of("sw0_ta128_tb256_wg2_ring226"), h200);
  EXPECT_EQ(plan.memory_bytes, 4 * plan.stage_bytes + 8 * 2 * 16 * 128);
  const WgmmaPlan narrow = wgmma_plan(dense(256, 7168, 2048), config_of("sw0_ta128_tb112_wg2_ring226"), h200);
  EXPECT_EQ(narrow.rest_columns(2), 48);
  EXPECT_EQ(narrow.rest_columns(4), 16);
  EXPECT_EQ(narrow.stored_rows(), 16);
  const WgmmaPlan swapped = wgmma_plan(dense(48, 1280, 2048), config_of("sw1_ta64_tb48_wg1_ring112"), h200);
  EXPECT_EQ(swapped.rest_columns(2), 0);
  EXPECT_EQ(swapped.stored_rows(), 16);
}

TEST(WgmmaPlan, TheCostModelKnowsWavesAndStages) {
  const auto predicted = [](const Problem& problem, const char* settings) {
    return predicted_wgmma(problem, wgmma_plan(problem, config_of(settings), h200), h200);
  };
  // 1.94 waves of tiles of 224 columns, 1.70 of 256: two either way.
  const Problem many = dense(1024, 7168, 2048);
  EXPECT_LT(predicted(many, "sw0_ta128_tb224_wg2_ca2_ring226"),
            predicted(many, "sw0_ta128_tb256_wg2_ca2_ring226"));
  EXPECT_EQ(default_wgmma_config(many, h200).number("tb"), 224);
  const Problem few = dense(256, 7168, 2048);
  EXPECT_LT(1.5 * predicted(few, "sw0_ta128_tb112_wg2_ca2_ring226"),
            predicted(few, "sw0_ta128_tb112_wg2_ca2_ring112"));
}

TEST(WgmmaPlan, ASearchLeavesOutWhatTheCostModelTakesForMuchSlower) {
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

TEST(WgmmaPlan, EveryBandIsWithinTheTiles) {
  for (const std::int64_t m : {1, 64, 300, 4096}) {
    const Problem problem = dense(m, 1280, 8192);
    NoCompiler runtime;
    const CudaDriver no_driver{api::Driver{}};
    const auto family = make_wgmma_family(runtime, no_driver);
    const std::vector<Config> configs = family->space(problem).enumerate();
    EXPECT_GE(configs.size(), 8U);
    for (const Config& config : configs) {
      const WgmmaPlan plan = wgmma_plan(problem, config, h200);
      EXPECT_GE(plan.band, 1);
      EXPECT_LE(plan.band, plan.tiles_a);
      EXPECT_EQ(plan.blocks % plan.cluster(), 0);
      EXPECT_LE(plan.blocks, plan.tiles() * plan.cluster());
      EXPECT_LE(plan.shared_bytes, 232448);
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

TEST(WgmmaPlan, RefusesBeforeItCompiles) {
  const Problem problem = dense(512, 4096, 4096);
  EXPECT_EQ(refusal(problem, "sw0_ta128_tb128_wg2_ring226"), "");
  EXPECT_THAT(refusal(problem, "sw0_ta64_tb128_wg2_ring226"), HasSubstr("less than 64 rows"));
  EXPECT_THAT(refusal(problem, "sw0_ta256_tb256_wg2_ring226"), HasSubstr("registers"));
  EXPECT_THAT(refusal(problem, "sw0_ta128_tb128_wg1_turn1_ring226"), HasSubstr("two warpgroups"));
  EXPECT_EQ(refusal(problem, "sw0_ta128_tb128_wg2_ca2_cb2_c2_ring226"), "");
  EXPECT_THAT(refusal(problem, "sw0_ta128_tb128_wg2_ca4_cb4_ring226"), HasSubstr("more than eight blocks"));
  EXPECT_THAT(refusal(problem, "sw0_ta128_tb128_wg2_ca4_c3_ring226"), HasSubstr("more than eight blocks"));
  EXPECT_THAT(refusal(problem, "sw0_ta128_tb112_wg2_ca4_ring226"), HasSubstr("a part of eight rows"));
  EXPECT_THAT(refusal(problem, "sw0_ta64_tb128_wg2_turn1_c2_ring226"), HasSubstr("turn does not go with c"));
  EXPECT_THAT(refusal(problem, "sw0_ta256_tb128_wg2_turn0_ring226"), HasSubstr("more registers"));
  EXPECT_THAT(refusal(problem, "sw1_ta64_tb16_wg1_c4_ring112"), HasSubstr("eight rows"));
  EXPECT_THAT(refusal(dense(512, 4096, 128), "sw0_ta128_tb128_wg2_c8_ring226"), HasSubstr("steps of k"));
  EXPECT_THAT(refusal(problem, "sw0_ta128_tb256_wg2_ks2_ring112"), HasSubstr("two stages"));
}

TEST(WgmmaPlan, AnyProblemHasADefaultThatCanBeBuilt) {
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

TEST(WgmmaPlan, RefusesWhatTheMatrixUnitOrTheCopyEngineCannot) {
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

TEST(WgmmaPlan, WhatIsCompiledDependsOnTheTileAndOnWhatBlocksOfAClusterDo) {
  NoCompiler runtime;
  const CudaDriver no_driver{api::Driver{}};
  const auto family = make_wgmma_family(runtime, no_driver);
  const auto source_of = [&](const char* settings) {
    EXPECT_FALSE(family->build(dense(512, 4096, 4096), config_of(settings)).ok());
    return runtime.last();
  };
  const gpu::Source plain = source_of("sw0_ta128_tb128_wg2_turn0_ks1_ca1_cb1_c1_ring226_pdl0");
  const gpu::Source dependent = source_of("sw0_ta128_tb128_wg2_turn0_ks1_ca1_cb1_c1_ring112_pdl1");
  const gpu::Source shared = source_of("sw0_ta128_tb128_wg2_turn0_ks1_ca2_cb1_c1_ring226_pdl0");
  const gpu::Source other = source_of("sw0_ta128_tb128_wg2_turn0_ks1_ca1_cb2_c1_ring226_pdl0");
  const gpu::Source split = source_of("sw0_ta128_tb128_wg2_turn0_ks1_ca1_cb1_c3_ring226_pdl0");
  EXPECT_EQ(plain.defines, dependent.defines);
  EXPECT_EQ(plain.text, dependent.text);
  EXPECT_EQ(shared.defines, other.defines);
  EXPECT_NE(plain.defines, shared.defines);
  EXPECT_NE(plain.defines, split.defines);
}

TEST(WgmmaPlan, OneInstructionNamesAllItsRegisters) {
  const std::string text = multiply_source(DataType::bf16, 16);
  EXPECT_THAT(
      text,
      HasSubstr("m64n16k16.f32.bf16.bf16 {%0, %1, %2, %3, %4, %5, %6, %7}, %8, %9, kept, 1, 1, 0, 0;}"));
  EXPECT_THAT(text, HasSubstr("\"+f\"(d[7])"));
  EXPECT_THAT(text, testing::Not(HasSubstr("d[8]")));
  const std::string small = multiply_source(DataType::f8_e4m3fn, 256);
  EXPECT_THAT(small, HasSubstr("m64n256k32.f32.e4m3.e4m3"));
  EXPECT_THAT(small, HasSubstr("}, %128, %129, kept, 1, 1;}"));
  EXPECT_EQ(std::count(small.begin(), small.end(), '\n'), 2);
}

// ---- maps

/// A driver whose maps hold the address in their first word, the rest of the box in the others.
int encodings = 0;
bool address_twice = false;
int last_swizzle = -1;
api::Result fake_encode(api::TensorMap* map, int type, std::uint32_t, void* data, const std::uint64_t* sizes,
                        const std::uint64_t* strides, const std::uint32_t* extent, const std::uint32_t*, int,
                        int swizzle, int, int) {
  ++encodings;
  last_swizzle = swizzle;
  *map = {};
  map->opaque[0] = reinterpret_cast<std::uintptr_t>(data);
  map->opaque[1] = sizes[0] ^ sizes[1] << 32;
  map->opaque[2] = strides[0];
  map->opaque[3] =
      extent[0] ^ static_cast<std::uint64_t>(extent[1]) << 32 ^ static_cast<std::uint64_t>(type) << 60;
  if (address_twice) map->opaque[4] = map->opaque[0] >> 8;
  return api::success;
}

class MovableMapTest : public testing::Test {
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
