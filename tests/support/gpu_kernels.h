// Kernels of families on a GPU, verified as a tuning run verifies finalists.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "support/first_gpu.h"

namespace gemmtune {

/// At most `count` configs of a space, the default first, drawn the same way each time.
inline std::vector<Config> some_configs(const KernelFamily& family, const Problem& problem,
                                        std::size_t count) {
  std::vector<Config> all = family.space(problem).enumerate();
  Random random(7);
  shuffle(all, random);
  all.insert(all.begin(), family.default_config(problem));
  if (all.size() > count) all.resize(count);
  return all;
}

inline void expect_right(const KernelFamily& family, const Problem& problem,
                         const std::vector<Config>& configs) {
  KernelVerifierOptions options;
  options.reference_threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  auto verifier = KernelVerifier::make(*gpu(), problem, options);
  ASSERT_TRUE(verifier.ok()) << verifier.message();
  std::vector<Candidate> candidates;
  for (const Config& config : configs)
    candidates.push_back({std::string(family.name()), family.revision(), config});
  gpu()->compile_ahead(problem, candidates);
  std::vector<std::unique_ptr<Kernel>> kernels;
  std::vector<std::string> names;
  std::vector<KernelOfClass> classed;
  for (const Config& config : configs) {
    auto kernel = family.build(problem, config);
    ASSERT_TRUE(kernel.ok()) << print(problem) << " " << config.text() << ": " << kernel.message();
    const Outcome quick = verifier->verify_quickly({kernel->get(), family.accuracy(problem, config)});
    // The library also proposes splits of k whose partial sums are rounded to y's type: the verifier is right
    // to refuse them.
    const std::int64_t reduction = config.number("red");
    const bool rounds_sums = family.name() == "cublaslt" && (reduction == 1 || reduction == 4);
    if (rounds_sums && quick.kind == OutcomeKind::wrong) continue;
    EXPECT_EQ(quick.kind, OutcomeKind::ok)
        << family.name() << " " << print(problem) << " " << config.text() << ": " << quick.reason;
    if (quick.kind != OutcomeKind::ok) continue;
    kernels.push_back(std::move(*kernel));
    names.push_back(config.text());
    classed.push_back({kernels.back().get(), family.accuracy(problem, config)});
  }
  const auto outcomes = verifier->verify_fully(classed, {});
  ASSERT_TRUE(outcomes.ok()) << outcomes.message();
  for (std::size_t i = 0; i < outcomes->size(); ++i) {
    const Outcome& outcome = (*outcomes)[i];
    // A vendor's algorithm may refuse the padded rows that full verification also tries.
    if (family.name() == "cublaslt" && outcome.kind == OutcomeKind::launch_failed) continue;
    EXPECT_EQ(outcome.kind, OutcomeKind::ok)
        << family.name() << " " << print(problem) << " " << names[i] << ": " << outcome.reason;
    EXPECT_TRUE(outcome.deterministic || family.name() == "cublaslt") << names[i];
  }
}

struct Size {
  std::int64_t m, n, k;
};

/// The default and the kernels of `names` that can be built, each with every kind of promotion. The names are of
/// 2-byte elements; of 1-byte elements a stage holds twice as many.
inline std::vector<Config> named_configs(const KernelFamily& family, const Problem& problem,
                                         std::span<const char* const> names) {
  const Space space = family.space(problem);
  std::vector<Config> configs{family.default_config(problem)};
  for (const char* name : names) {
    auto candidate = parse_kernel_name(name, space.keys());
    EXPECT_TRUE(candidate.ok()) << candidate.message();
    if (candidate.ok() && bits(problem.x_type) == 8 && candidate->config.find("bk") != nullptr)
      candidate->config.set("bk", 2 * candidate->config.number("bk"));
    if (!candidate.ok()) continue;
    std::vector<std::string> promotions;
    for (const Parameter& parameter : space.parameters())
      if (parameter.key == "prom") promotions = parameter.values;
    if (promotions.empty()) promotions.emplace_back();
    for (const std::string& promotion : promotions) {
      if (!promotion.empty()) candidate->config.set("prom", promotion);
      if (space.build_refusal(candidate->config).empty()) configs.push_back(candidate->config);
    }
  }
  return configs;
}

/// Each path through the kernel at least twice: tiles, warp groups, both schedules, swapped operands,
/// clusters with multicast along one side or both, with split-K, with both.
inline std::vector<Config> wgmma_configs(const KernelFamily& family, const Problem& problem) {
  const char* names[] = {
      "wgmma_r1_swap0_bm64_bn64_wg1_pp0_bk64_cm1_cn1_csk1_smem112",
      "wgmma_r1_swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk1_smem226",
      "wgmma_r1_swap0_bm128_bn256_wg2_pp0_bk64_cm2_cn1_csk1_smem226",
      "wgmma_r1_swap0_bm256_bn80_wg2_pp0_bk64_cm1_cn2_csk1_smem226",
      "wgmma_r1_swap0_bm256_bn128_wg2_pp0_bk64_cm2_cn1_csk1_smem226",
      "wgmma_r1_swap0_bm256_bn128_wg2_pp0_bk64_cm1_cn1_csk2_smem226",
      "wgmma_r1_swap0_bm128_bn128_wg2_pp1_bk64_cm1_cn1_csk1_smem226",
      "wgmma_r1_swap0_bm128_bn80_wg2_pp1_bk64_cm2_cn1_csk1_smem226",
      "wgmma_r1_swap0_bm64_bn256_wg2_pp1_bk64_cm1_cn2_csk1_smem226",
      "wgmma_r1_swap0_bm64_bn96_wg1_pp0_bk128_cm1_cn1_csk3_smem226",
      "wgmma_r1_swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk8_smem226",
      "wgmma_r1_swap0_bm128_bn64_wg1_pp0_bk64_cm1_cn1_csk2_smem112_pdl1",
      "wgmma_r1_swap0_bm128_bn192_wg2_pp0_bk64_cm1_cn1_csk1_smem226_pdl1",
      "wgmma_r1_swap1_bm64_bn16_wg1_pp0_bk128_cm1_cn1_csk2_smem112",
      "wgmma_r1_swap1_bm64_bn32_wg1_pp0_bk64_cm2_cn1_csk1_smem112_pdl1",
      "wgmma_r1_swap1_bm64_bn64_wg1_pp0_bk128_cm1_cn1_csk7_smem112",
      "wgmma_r1_swap1_bm128_bn64_wg2_pp0_bk64_cm1_cn1_csk4_smem226_pdl1",
      "wgmma_r1_swap1_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk5_smem226",
      "wgmma_r1_swap1_bm64_bn128_wg2_pp1_bk64_cm1_cn2_csk1_smem226",
      "wgmma_r1_swap1_bm128_bn96_wg2_pp0_bk64_cm1_cn2_csk1_smem226",
      "wgmma_r1_swap0_bm128_bn112_wg2_pp0_bk64_cm2_cn4_csk1_smem226",
      "wgmma_r1_swap0_bm64_bn48_wg1_pp0_bk128_cm1_cn8_csk1_smem112",
      "wgmma_r1_swap0_bm64_bn176_wg2_pp1_bk64_cm2_cn2_csk1_smem226",
      "wgmma_r1_swap0_bm128_bn240_wg2_pp0_bk64_cm2_cn2_csk1_smem226_pdl1",
      "wgmma_r1_swap0_bm128_bn128_wg2_pp0_bk64_cm2_cn1_csk4_smem226",
      "wgmma_r1_swap0_bm128_bn80_wg2_pp0_bk64_cm2_cn2_csk2_smem226_pdl1",
      "wgmma_r1_swap1_bm64_bn64_wg1_pp0_bk64_cm4_cn1_csk2_smem226_pdl1",
      "wgmma_r1_swap1_bm128_bn128_wg2_pp0_bk64_cm8_cn1_csk1_smem226",
      "wgmma_r1_swap1_bm64_bn48_wg1_pp0_bk128_cm2_cn2_csk2_smem112",
  };
  return named_configs(family, problem, names);
}

// Few and all blocks of a cluster reduce; y is stored in whole rows, in pairs and one by one.
inline constexpr const char* skinny_ways[] = {
    "skinny_r1_bm64_bk64_csk1_smem50",        "skinny_r1_bm64_bk128_csk3_smem75",
    "skinny_r1_bm64_bk64_csk5_smem110",       "skinny_r1_bm64_bk256_csk8_smem220",
    "skinny_r1_bm128_bk64_csk1_smem110",      "skinny_r1_bm128_bk128_csk2_smem110",
    "skinny_r1_bm128_bk64_csk7_smem75",       "skinny_r1_bm64_bk64_csk2_smem50_pdl1",
    "skinny_r1_bm128_bk128_csk1_smem220_pdl1"};
inline constexpr const char* mma_ways[] = {
    "mma_r1_bm16_bn64_nw4_st3_sk1",   "mma_r1_bm16_bn64_nw4_st6_sk3",  "mma_r1_bm32_bn64_nw4_st4_sk1",
    "mma_r1_bm32_bn128_nw4_st3_sk16", "mma_r1_bm64_bn64_nw4_st6_sk2",  "mma_r1_bm64_bn128_nw8_st3_sk1",
    "mma_r1_bm128_bn64_nw4_st3_sk8",  "mma_r1_bm64_bn128_nw4_st3_sk1", "mma_r1_bm128_bn128_nw8_st4_sk1",
    "mma_r1_bm128_bn128_nw8_st3_sk4"};

}  // namespace gemmtune
