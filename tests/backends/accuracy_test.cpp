// The accuracy class of GPU families, without a GPU.
#include "problem/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cuda/families/mma/mma.h"
#include "backends/cuda/families/skinny/skinny.h"
#include "backends/cuda/families/wgmma/wgmma.h"
#include "backends/gpu/families/simt/simt.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"

namespace gemmtune {
namespace {

const Problem fp8 = dense(32, 1280, 8192, DataType::f8_e4m3fn, DataType::bf16);
const Problem bf16 = dense(32, 1280, 8192, DataType::bf16, DataType::bf16);

class AccuracyOfFamilies : public ::testing::Test {
 protected:
  std::unique_ptr<KernelFamily> family(const std::string& name) {
    if (name == "wgmma") return cuda::make_wgmma_family(runtime_, driver_);
    if (name == "skinny") return cuda::make_skinny_family(runtime_, driver_);
    if (name == "mma") return cuda::make_mma_family(runtime_);
    return gpu::make_simt_family(runtime_);
  }

  NoCompiler runtime_;
  cuda::CudaDriver driver_{cuda::api::Driver{}};
};

TEST_F(AccuracyOfFamilies, HopperFamiliesHaveBothForFp8AndTheNameSaysWhich) {
  for (const char* name : {"wgmma", "skinny"}) {
    const auto one = family(name);
    Config config = one->default_config(fp8);
    EXPECT_EQ(one->accuracy(fp8, config), Accuracy::fp32) << name;
    EXPECT_THAT(config.text(), testing::HasSubstr("_prom")) << name;
    config.set("prom", std::int64_t{0});
    EXPECT_EQ(one->accuracy(fp8, config), Accuracy::tensor_core) << name;
    int classes[2] = {0, 0};
    for (const Config& each : one->space(fp8).enumerate())
      ++classes[static_cast<std::size_t>(one->accuracy(fp8, each))];
    EXPECT_GT(classes[0], 0) << name;
    EXPECT_GT(classes[1], 0) << name;
  }
}

TEST_F(AccuracyOfFamilies, NamesOfEarlierVersionsMeanWhatTheyMeant) {
  const auto wgmma = family("wgmma");
  const auto old = parse_kernel_name("wgmma_r1_swap0_bm128_bn128_wg2_pp0_bk128_cm1_cn1_csk1_smem226_pdl0",
                                     wgmma->space(fp8).keys());
  ASSERT_TRUE(old.ok()) << old.message();
  EXPECT_EQ(wgmma->accuracy(fp8, old->config), Accuracy::tensor_core);
}

TEST_F(AccuracyOfFamilies, OtherTypesHaveOneClassAndNamesWithoutTheKey) {
  for (const char* name : {"wgmma", "skinny", "mma", "simt"}) {
    const auto one = family(name);
    for (const Config& config : one->space(bf16).enumerate()) {
      ASSERT_EQ(one->accuracy(bf16, config), Accuracy::fp32) << name;
      ASSERT_EQ(config.find("prom"), nullptr) << config.text();
    }
    EXPECT_EQ(one->default_config(bf16).find("prom"), nullptr) << name;
    EXPECT_GT(one->space(bf16).points(), 0) << name;
  }
}

TEST_F(AccuracyOfFamilies, OthersAreOfOneClass) {
  const auto mma = family("mma");
  EXPECT_EQ(mma->accuracy(fp8, mma->default_config(fp8)), Accuracy::tensor_core);
  const auto simt = family("simt");
  EXPECT_EQ(simt->accuracy(fp8, simt->default_config(fp8)), Accuracy::fp32);
}

TEST(Accuracy, WordsAndOrder) {
  for (const Accuracy accuracy : {Accuracy::tensor_core, Accuracy::fp32})
    EXPECT_EQ(parse_accuracy(to_string(accuracy)), accuracy);
  EXPECT_EQ(parse_accuracy("bf16"), std::nullopt);
  EXPECT_LT(Accuracy::tensor_core, Accuracy::fp32);
  EXPECT_EQ(parse_accuracy_policy("default"), AccuracyPolicy::keep);
  EXPECT_EQ(parse_accuracy_policy("fast"), AccuracyPolicy::fast);
  EXPECT_EQ(parse_accuracy_policy("keep"), std::nullopt);
}

}  // namespace
}  // namespace gemmtune
