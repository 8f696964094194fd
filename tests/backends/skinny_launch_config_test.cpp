// The skinny family without a GPU: which block reduces which rows, and what is prefetched.
#include "backends/cuda/families/skinny/skinny_launch_config.h"

#include <gtest/gtest.h>

#include "candidates/config.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"
#include "support/operation_problems.h"

namespace gemmtune::cuda {
namespace {

SkinnyLaunchConfig launch_config_of(std::int64_t m, std::int64_t n, std::int64_t k,
                                    const std::string& settings, DataType type = DataType::bf16) {
  const auto candidate = parse_kernel_name("skinny_r1_" + settings, {"bm", "bk", "csk", "smem", "pdl"});
  EXPECT_TRUE(candidate.ok()) << candidate.message();
  return skinny_launch_config(dense(m, n, k, type), candidate->config, limits_of("sm_90a"));
}

TEST(SkinnyLaunchConfig, EachGroupOfRowsHasOneOwner) {
  for (const char* rows : {"64", "128"}) {
    for (int blocks = 1; blocks <= 8; ++blocks) {
      const SkinnyLaunchConfig launch =
          launch_config_of(16, 1280, 8192, fmt::format("bm{}_bk64_csk{}_smem110", rows, blocks));
      const std::int64_t groups = launch.block_m / 8;
      const auto first = [&](std::int64_t block) {
        return static_cast<std::int64_t>((launch.first_row_groups() >> (5 * block)) & 31U);
      };
      EXPECT_EQ(first(0), 0);
      EXPECT_EQ(first(blocks), groups);
      for (std::int64_t block = 0; block < blocks; ++block) {
        EXPECT_LE(first(block + 1) - first(block), launch.max_row_groups());
        // As the kernel computes the owner of a group that it sends.
        for (std::int64_t group = first(block); group < first(block + 1); ++group)
          EXPECT_EQ(group * blocks / groups, block) << rows << " rows, " << blocks << " blocks";
      }
    }
  }
}

TEST(SkinnyLaunchConfig, ThePrefetchIsASmallPartOfABlocksShare) {
  EXPECT_EQ(launch_config_of(16, 1280, 8192, "bm64_bk128_csk5_smem110").prefetch_k_tiles,
            1);  // of 13 k tiles of 16 KiB
  EXPECT_EQ(launch_config_of(16, 8192, 1024, "bm64_bk256_csk1_smem220").prefetch_k_tiles,
            0);  // of 4 k tiles of 32 KiB
  EXPECT_EQ(launch_config_of(16, 7168, 8192, "bm64_bk128_csk1_smem110").prefetch_k_tiles,
            2);  // 32 KiB at most
  EXPECT_EQ(launch_config_of(16, 7168, 8192, "bm128_bk256_csk1_smem220").prefetch_k_tiles,
            0);  // a k tile is 64 KiB
  // A dependent launch: of what the stages do not hold.
  EXPECT_EQ(launch_config_of(16, 7168, 2048, "bm64_bk128_csk1_smem110_pdl1").prefetch_k_tiles, 2);
  EXPECT_EQ(launch_config_of(16, 8192, 1024, "bm64_bk128_csk1_smem220_pdl1").prefetch_k_tiles, 0);
  EXPECT_EQ(
      launch_config_of(16, 7168, 2048, "bm64_bk256_csk1_smem110_pdl1", DataType::f8_e4m3fn).prefetch_k_tiles,
      0);
}

TEST(SkinnyLaunchConfig, BlocksThatRunAtOnceFollowFromSharedMemory) {
  EXPECT_EQ(launch_config_of(16, 7168, 8192, "bm64_bk128_csk1_smem220").prefetch_blocks, 132);
  EXPECT_EQ(launch_config_of(16, 7168, 8192, "bm64_bk128_csk1_smem110").prefetch_blocks, 264);
  for (const char* settings :
       {"bm64_bk64_csk1_smem220", "bm128_bk256_csk8_smem220", "bm128_bk64_csk5_smem220"})
    EXPECT_LE(launch_config_of(64, 7168, 8192, settings).shared_bytes, 227 << 10) << settings;
}

TEST(SkinnyLaunchConfig, BlocksThatRunAtOnceFollowFromRegistersToo) {
  const auto blocks = [](std::int64_t m, const std::string& settings) {
    const auto candidate =
        parse_kernel_name("skinny_r1_" + settings, {"bm", "bk", "csk", "smem", "pdl", "prom"});
    const Problem problem = quantized(Operation::a8w8_blockscale, m, 4096, 7168, DataType::f8_e4m3fn);
    return skinny_launch_config(problem, candidate->config, limits_of("sm_90a")).blocks_per_sm;
  };
  EXPECT_EQ(blocks(16, "bm64_bk128_csk4_smem50_prom1"), 3);
  // 141 and 212 registers a thread.
  EXPECT_EQ(blocks(64, "bm64_bk128_csk4_smem50_prom1"), 2);
  EXPECT_EQ(blocks(64, "bm128_bk128_csk4_smem50_prom1"), 1);
}

}  // namespace
}  // namespace gemmtune::cuda
