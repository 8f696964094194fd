// The skinny family of Hopper without a GPU: who adds up which rows, and what is called ahead.
#include "backends/cuda/families/skinny/skinny_plan.h"

#include <gtest/gtest.h>

#include "candidates/config.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"

namespace gemmtune::cuda {
namespace {

SkinnyPlan plan_of(std::int64_t m, std::int64_t n, std::int64_t k, const std::string& settings,
                   DataType type = DataType::bf16) {
  const auto candidate = parse_kernel_name("skinny_r1_" + settings, {"r", "ks", "c", "ring", "pdl"});
  EXPECT_TRUE(candidate.ok()) << candidate.message();
  return skinny_plan(dense(m, n, k, type), candidate->config, limits_of("sm_90a"));
}

TEST(SkinnyPlan, EachGroupOfRowsHasOneOwner) {
  for (const char* rows : {"64", "128"}) {
    for (int blocks = 1; blocks <= 8; ++blocks) {
      const SkinnyPlan plan = plan_of(16, 1280, 8192, fmt::format("r{}_ks1_c{}_ring110", rows, blocks));
      const std::int64_t groups = plan.rows / 8;
      const auto first = [&](std::int64_t block) {
        return static_cast<std::int64_t>((plan.first_groups() >> (5 * block)) & 31U);
      };
      EXPECT_EQ(first(0), 0);
      EXPECT_EQ(first(blocks), groups);
      for (std::int64_t block = 0; block < blocks; ++block) {
        EXPECT_LE(first(block + 1) - first(block), plan.most_groups());
        // As the device finds the owner of a group that it sends.
        for (std::int64_t group = first(block); group < first(block + 1); ++group)
          EXPECT_EQ(group * blocks / groups, block) << rows << " rows, " << blocks << " blocks";
      }
    }
  }
}

TEST(SkinnyPlan, WhatIsCalledAheadIsASmallPartOfAShare) {
  EXPECT_EQ(plan_of(16, 1280, 8192, "r64_ks2_c5_ring110").ahead, 1);   // of 13 steps of 16 KiB
  EXPECT_EQ(plan_of(16, 8192, 1024, "r64_ks4_c1_ring220").ahead, 0);   // of 4 steps of 32 KiB
  EXPECT_EQ(plan_of(16, 7168, 8192, "r64_ks2_c1_ring110").ahead, 2);   // 32 KiB at most
  EXPECT_EQ(plan_of(16, 7168, 8192, "r128_ks4_c1_ring220").ahead, 0);  // a step is 64 KiB
  // A dependent launch: of what the ring does not hold.
  EXPECT_EQ(plan_of(16, 7168, 2048, "r64_ks2_c1_ring110_pdl1").ahead, 2);
  EXPECT_EQ(plan_of(16, 8192, 1024, "r64_ks2_c1_ring220_pdl1").ahead, 0);
  EXPECT_EQ(plan_of(16, 7168, 2048, "r64_ks2_c1_ring110_pdl1", DataType::f8_e4m3fn).ahead, 0);
}

TEST(SkinnyPlan, BlocksThatRunAtOnceFollowFromSharedMemory) {
  EXPECT_EQ(plan_of(16, 7168, 8192, "r64_ks2_c1_ring220").ahead_blocks, 132);
  EXPECT_EQ(plan_of(16, 7168, 8192, "r64_ks2_c1_ring110").ahead_blocks, 264);
  for (const char* settings : {"r64_ks1_c1_ring220", "r128_ks4_c8_ring220", "r128_ks1_c5_ring220"})
    EXPECT_LE(plan_of(64, 7168, 8192, settings).shared_bytes, 227 << 10) << settings;
}

}  // namespace
}  // namespace gemmtune::cuda
