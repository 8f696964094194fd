// Which problems and tiles of mxfp4 may have stream-K, without a GPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "backends/cuda/families/own_families.h"
#include "candidates/config.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"

namespace gemmtune::stream_k_test {
namespace {

using ::testing::HasSubstr;

Problem int4(std::int64_t m, std::int64_t n, std::int64_t k) {
  Problem problem = of_int4(Operation::a16w4_int4, m, n, k, 128);
  problem.weight_layout = WeightLayout::fragment64;
  return problem;
}

/// A process that shares the device: blocks may not wait for each other.
class PartOfADevice final : public gpu::Runtime {
 public:
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source&) override {
    return Status::unsupported("no compiler");
  }

 private:
  static gpu::Limits part() {
    gpu::Limits limits = limits_of("sm_90a");
    limits.cooperative_launches = false;
    return limits;
  }

  gpu::Limits limits_ = part();
  std::string architecture_ = "sm_90a";
};

class StreamK : public ::testing::Test {
 protected:
  std::string refusal(const std::string& tile, const Problem& problem) {
    const Space space = family_->space(problem);
    const auto candidate = parse_kernel_name("mxfp4_r1_" + tile + "_pdl0", space.keys());
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    return candidate.ok() ? space.build_refusal(candidate->config) : "";
  }
  bool has_choice(const Problem& problem) {
    return family_->default_config(problem).find("stream") != nullptr;
  }

  NoCompiler runtime_;
  cuda::CudaDriver driver_{cuda::api::Driver{}};
  std::unique_ptr<KernelFamily> family_ = cuda::make_mxfp4_family(runtime_, driver_);
};

TEST_F(StreamK, DividesTilesBehindWholeWavesAlone) {
  const std::string tile = "wg2_bm128_bn256_mma0_bk128_csk1_smem226_scaled1_stream1";
  EXPECT_EQ(refusal(tile, int4(256, 28672, 4096)), "");  // 224 tiles, 132 multiprocessors
  EXPECT_THAT(refusal(tile, int4(256, 16896, 4096)), HasSubstr("there are none"));  // 132
  EXPECT_THAT(refusal(tile, int4(512, 8192, 4096)), HasSubstr("there are none"));   // 128
  Problem rows = int4(256, 28672, 4096);
  rows.w_group = 4096;
  EXPECT_THAT(refusal("wg2_bm256_bn128_mma0_bk128_csk1_smem226_stream1", rows), HasSubstr("scales of rows"));
  EXPECT_THAT(refusal("wg1_bm64_bn64_mma0_bk128_csk1_smem226_stream1", int4(256, 28672, 4096)),
              HasSubstr("stream is for wg 2"));
  EXPECT_THAT(refusal("wg2_bm128_bn256_mma0_bk128_csk2_smem226_scaled1_stream1", int4(256, 28672, 4096)),
              HasSubstr("stream is for wg 2, csk 1"));
}

/// Names of problems that it cannot serve lack the key, as those of earlier versions do.
TEST_F(StreamK, IsAChoiceWhereTilesFillAWave) {
  EXPECT_TRUE(has_choice(int4(256, 28672, 4096)));
  EXPECT_FALSE(has_choice(int4(1, 28672, 4096)));
  EXPECT_FALSE(has_choice(int4(256, 4096, 4096)));
  const auto old = parse_kernel_name("mxfp4_r1_wg2_bm128_bn256_mma0_bk128_csk1_smem226_scaled1_pdl0",
                                     family_->space(int4(256, 28672, 4096)).keys());
  ASSERT_TRUE(old.ok()) << old.message();
  EXPECT_EQ(old->config.number("stream", 0), 0);
}

TEST_F(StreamK, NeedsCooperativeLaunches) {
  PartOfADevice runtime;
  const auto family = cuda::make_mxfp4_family(runtime, driver_);
  const Problem problem = int4(256, 28672, 4096);
  EXPECT_EQ(family->default_config(problem).find("stream"), nullptr);
  Config config = family_->default_config(problem);
  config.set("stream", std::int64_t{1});
  EXPECT_THAT(family->space(problem).build_refusal(config), HasSubstr("cooperative"));
}

/// The same bits are not promised for a row of another M: which tiles are divided depends on it.
TEST_F(StreamK, PromisesNoOrderOfSums) {
  const Problem problem = int4(256, 28672, 4096);
  Config config = family_->default_config(problem);
  config.set("stream", std::int64_t{0});
  EXPECT_NE(family_->sum_order(problem, config), "");
  config.set("stream", std::int64_t{1});
  EXPECT_EQ(family_->sum_order(problem, config), "");
}

/// 1.7 waves of 128 x 256 are predicted to take less with it, seven not.
TEST_F(StreamK, IsTheDefaultWhereTheLastWaveIsHalfEmpty) {
  EXPECT_EQ(family_->default_config(int4(256, 28672, 4096)).number("stream"), 1);
  EXPECT_EQ(family_->default_config(int4(1024, 28672, 4096)).number("stream"), 0);
}

}  // namespace
}  // namespace gemmtune::stream_k_test
