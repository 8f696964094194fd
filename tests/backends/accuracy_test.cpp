// The accuracy class of GPU families, without a GPU.
#include "problem/accuracy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "backends/cuda/families/own_families.h"
#include "backends/gpu/families/own_families.h"
#include "support/dense_problem.h"
#include "support/nvrtc.h"
#include "support/operation_problems.h"

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
    if (name == "wgmma_moe") return cuda::make_wgmma_moe_family(runtime_, driver_);
    if (name == "mxfp4") return cuda::make_mxfp4_family(runtime_, driver_);
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

/// Packed int4 in groups, bf16: products with scales are rounded to bf16 by default for more than 64 rows, and never for fewer or where bf16 is not the type.
TEST_F(AccuracyOfFamilies, Int4ElementsAreRoundedForManyRowsOfBf16Alone) {
  const auto mxfp4 = family("mxfp4");
  const auto int4 = [](int m, int group, Operation operation = Operation::a16w4_int4) {
    Problem problem = of_int4(operation, m, 4096, 4096, group, m % 2 == 1);
    problem.weight_layout = WeightLayout::fragment64;
    return problem;
  };
  const auto classes = [&](const Problem& problem) {
    std::map<Accuracy, int> counts;
    for (const Config& config : mxfp4->space(problem).enumerate()) ++counts[mxfp4->accuracy(problem, config)];
    return counts;
  };
  for (const int group : {32, 64, 128}) {
    for (const int m : {65, 128, 1024}) {
      const Problem many = int4(m, group);
      EXPECT_EQ(mxfp4->accuracy(many, mxfp4->default_config(many)), Accuracy::tensor_core) << print(many);
      EXPECT_EQ(classes(many).size(), 2U) << print(many);
    }
    const Problem few = int4(64, group);
    EXPECT_EQ(mxfp4->accuracy(few, mxfp4->default_config(few)), Accuracy::fp32);
    EXPECT_EQ(classes(few).count(Accuracy::tensor_core), 0U);
  }
  Problem halves = int4(512, 128);
  halves.x_type = halves.y_type = DataType::f16;
  Problem plain = int4(512, 128);
  plain.weight_layout = WeightLayout::plain;
  for (const Problem& exact : {halves, plain, int4(512, 4096), int4(512, 128, Operation::a8w4_int4)}) {
    EXPECT_EQ(mxfp4->default_config(exact).find("scaled"), nullptr) << print(exact);
    EXPECT_EQ(classes(exact).count(Accuracy::tensor_core), 0U) << print(exact);
  }
  Config scaled = mxfp4->default_config(int4(512, 128));
  EXPECT_NE(mxfp4->sum_order(int4(512, 128), scaled), "");
  Config exact = scaled;
  exact.set("scaled", std::int64_t{0});
  EXPECT_NE(mxfp4->sum_order(int4(512, 128), scaled), mxfp4->sum_order(int4(512, 128), exact));
}

/// The same of experts, whose weights are plain.
TEST_F(AccuracyOfFamilies, Int4ExpertsAreRoundedForManyTokensOfBf16Alone) {
  const auto moe = family("wgmma_moe");
  const auto layer = [](std::int64_t m, DataType type, std::int32_t group) {
    Problem problem =
        testing_problems::moe_of_weights_alone(type, QuantType::per_group, {m, 512, 1024}, group);
    problem.moe.experts = 32;
    return problem;
  };
  for (const std::int32_t group : {32, 64, 128}) {
    const Problem many = layer(512, DataType::bf16, group);
    Config config = moe->default_config(many);
    EXPECT_EQ(moe->accuracy(many, config), Accuracy::tensor_core);
    const std::string scaled = moe->sum_order(many, config);
    config.set("scaled", std::int64_t{0});
    EXPECT_EQ(moe->accuracy(many, config), Accuracy::fp32);
    EXPECT_NE(moe->sum_order(many, config), scaled);
    // Four tokens an expert.
    const Problem thin = layer(65, DataType::bf16, group);
    EXPECT_EQ(moe->accuracy(thin, moe->default_config(thin)),
              group < 128 ? Accuracy::tensor_core : Accuracy::fp32);
    const Problem few = layer(64, DataType::bf16, group);
    EXPECT_EQ(moe->accuracy(few, moe->default_config(few)), Accuracy::fp32);
    EXPECT_EQ(moe->default_config(layer(512, DataType::f16, group)).find("scaled"), nullptr);
  }
}

TEST(Accuracy, WordsAndOrder) {
  for (const Accuracy accuracy : {Accuracy::tensor_core, Accuracy::fp32})
    EXPECT_EQ(parse_accuracy(to_string(accuracy)), accuracy);
  EXPECT_EQ(parse_accuracy("bf16"), std::nullopt);
  EXPECT_LT(Accuracy::tensor_core, Accuracy::fp32);
  EXPECT_EQ(parse_accuracy_policy("default"), AccuracyPolicy::keep);
  EXPECT_EQ(parse_accuracy_policy("fast"), AccuracyPolicy::fast);
  EXPECT_EQ(parse_accuracy_policy("fp32"), AccuracyPolicy::fp32);
  for (const AccuracyPolicy policy : {AccuracyPolicy::keep, AccuracyPolicy::fast, AccuracyPolicy::fp32})
    EXPECT_EQ(parse_accuracy_policy(to_string(policy)), policy);
  EXPECT_EQ(parse_accuracy_policy("keep"), std::nullopt);
}

}  // namespace
}  // namespace gemmtune
