// Bit classes of kernels on a GPU: those of one order of sums are of one class at every M. Skips where there is no GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/forwarding_device.h"
#include "backends/forwarding_family.h"
#include "evaluate/in_process/bit_class_finder.h"
#include "support/dense_problem.h"
#include "support/first_gpu.h"
#include "support/gpu_kernels.h"
#include "support/operation_problems.h"

namespace gemmtune::cuda_invariant_test {
namespace {

using testing_problems::moe_problem;

class CudaInvariant : public OnGpu {};

// Both operands first, both schedules, clusters, stages of one and two k atoms; k whole and in parts.
constexpr const char* wgmma_ways[] = {"wgmma_r1_swap0_bm64_bn64_wg1_pp0_bk64_cm1_cn1_csk1_smem112",
                                      "wgmma_r1_swap0_bm128_bn128_wg2_pp1_bk64_cm1_cn1_csk1_smem226",
                                      "wgmma_r1_swap0_bm128_bn256_wg2_pp0_bk64_cm2_cn1_csk1_smem226",
                                      "wgmma_r1_swap1_bm64_bn32_wg1_pp0_bk128_cm2_cn1_csk1_smem112",
                                      "wgmma_r1_swap0_bm128_bn128_wg2_pp0_bk64_cm1_cn1_csk4_smem226",
                                      "wgmma_r1_swap1_bm64_bn16_wg1_pp0_bk64_cm1_cn1_csk4_smem112",
                                      "wgmma_r1_swap1_bm64_bn64_wg1_pp0_bk64_cm2_cn1_csk3_smem226"};
constexpr const char* skinny_ways[] = {
    "skinny_r1_bm64_bk64_csk1_smem50", "skinny_r1_bm128_bk128_csk1_smem110",
    "skinny_r1_bm64_bk64_csk4_smem110", "skinny_r1_bm128_bk64_csk3_smem75"};
constexpr const char* mma_ways[] = {"mma_r1_bm16_bn64_nw4_st3_sk1", "mma_r1_bm64_bn128_nw4_st3_sk1",
                                    "mma_r1_bm32_bn64_nw4_st4_sk3", "mma_r1_bm64_bn64_nw4_st6_sk3"};
constexpr const char* simt_ways[] = {"simt_r1_bm16", "simt_r1_bm64"};

/// Those of `ways`, or `drawn` of the family's if there are none.
void add(std::vector<Candidate>& candidates, const Problem& problem, std::string_view name,
         std::span<const char* const> ways, std::size_t drawn = 0) {
  const KernelFamily* const family = gpu()->find_family(name);
  if (family == nullptr || !family->accepts(problem).ok()) return;
  for (const Config& config :
       ways.empty() ? some_configs(*family, problem, drawn) : named_configs(*family, problem, ways)) {
    const Candidate candidate{std::string(name), family->revision(), config};
    if (std::ranges::find(candidates, candidate) == candidates.end()) candidates.push_back(candidate);
  }
}

std::vector<Candidate> candidates_of(const Problem& problem) {
  std::vector<Candidate> candidates;
  add(candidates, problem, "wgmma", wgmma_ways);
  add(candidates, problem, "skinny", skinny_ways);
  add(candidates, problem, "mma", mma_ways);
  add(candidates, problem, "simt", simt_ways);
  for (const char* const name : {"mxfp4", "mxfp4_skinny", "wgmma_moe", "simt_moe"})
    add(candidates, problem, name, {}, 5);
  return candidates;
}

std::vector<BitClass> classes_of(Device& device, const Problem& problem,
                                 const std::vector<Candidate>& candidates) {
  auto finder = BitClassFinder::make(device, problem, 1, 16);
  EXPECT_TRUE(finder.ok()) << finder.message();
  return finder.ok() ? finder->classes_of(candidates, [](std::size_t) {})
                     : std::vector<BitClass>(candidates.size());
}

/// One class for each order of sums, at all these M.
void expect_promises_hold(Problem problem, std::initializer_list<std::int64_t> all_m) {
  struct Seen {
    std::string id, kernel;
    std::int64_t m = 0;
  };
  std::map<std::string, Seen> class_of_order;
  for (const std::int64_t m : all_m) {
    problem.m = m;
    const std::vector<Candidate> candidates = candidates_of(problem);
    const std::vector<BitClass> classes = classes_of(*gpu(), problem, candidates);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      const std::string kernel = candidates[i].kernel_name();
      const std::string order =
          gpu()->find_family(candidates[i].family)->sum_order(problem, candidates[i].config);
      ASSERT_FALSE(order.empty()) << kernel;
      ASSERT_FALSE(classes[i].id.empty()) << print(problem) << " " << kernel << ": " << classes[i].reason;
      const auto [first, is_new] = class_of_order.try_emplace(order, Seen{classes[i].id, kernel, m});
      EXPECT_EQ(classes[i].id, first->second.id)
          << print(problem) << " " << kernel << " promises " << order << ", as " << first->second.kernel
          << " at M = " << first->second.m;
    }
    ASSERT_TRUE(gpu()->health().ok()) << gpu()->health().message();
  }
}

constexpr DataType fp8 = DataType::f8_e4m3fn;

TEST_F(CudaInvariant, PromisesOfPlainKernelsHold) {
  expect_promises_hold(dense(1, 520, 2576, DataType::bf16, DataType::bf16, true),
                       {1, 2, 7, 16, 33, 64, 100, 128, 1000});
  expect_promises_hold(dense(1, 264, 4096, DataType::f16, DataType::f16), {1, 64, 65});
}

TEST_F(CudaInvariant, PromisesOfKernelsWithRowScalesHold) {
  expect_promises_hold(quantized(Operation::a8w8, 1, 520, 2576, fp8), {1, 16, 64, 100, 1000});
  expect_promises_hold(quantized(Operation::a8w8, 1, 520, 2576, DataType::i8), {7, 128});
}

TEST_F(CudaInvariant, PromisesOfKernelsWithBlockScalesHold) {
  expect_promises_hold(quantized(Operation::a8w8_blockscale, 1, 520, 2560, fp8), {1, 16, 64, 100, 1000});
}

TEST_F(CudaInvariant, PromisesOfKernelsOnMxfp4WeightsHold) {
  expect_promises_hold(of_fp4(Operation::a16w4, 1, 528, 2560), {1, 16, 33, 100, 1000});
  expect_promises_hold(of_fp4(Operation::a8w4, 1, 528, 2560, true), {2, 64, 128});
}

TEST_F(CudaInvariant, PromisesOfMixturesHold) {
  for (const DataType type : {DataType::bf16, fp8})
    expect_promises_hold(
        moe_problem(type, type, type == fp8 ? QuantType::per_1x128 : QuantType::none, {1, 256, 512}),
        {1, 7, 128});
}

TEST_F(CudaInvariant, OtherPartsOfKAreAnotherClass) {
  const KernelFamily* const family = gpu()->find_family("wgmma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma").message();
  const Problem problem = dense(33, 520, 2576);
  const std::vector<Candidate> candidates = candidates_of(problem);
  const std::vector<BitClass> classes = classes_of(*gpu(), problem, candidates);
  std::map<std::string, std::string> order_of_class;
  for (std::size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].family != "wgmma") continue;
    const std::string order = family->sum_order(problem, candidates[i].config);
    EXPECT_EQ(order_of_class.try_emplace(classes[i].id, order).first->second, order)
        << candidates[i].kernel_name();
  }
}

/// wgmma, but few rows have k in four parts.
class SplitsByM final : public ForwardingFamily {
 public:
  using ForwardingFamily::ForwardingFamily;
  Result<std::unique_ptr<Kernel>> build(const Problem& problem, const Config& config) const override {
    Config changed = config;
    if (problem.m < 8) changed.set("csk", std::int64_t{4});
    return ForwardingFamily::build(problem, changed);
  }
};

class WithSplitsByM final : public ForwardingDevice {
 public:
  explicit WithSplitsByM(Device& inner, const KernelFamily& wgmma)
      : ForwardingDevice(inner), family_(wgmma) {}
  std::span<const KernelFamily* const> families() const override { return families_; }

 private:
  SplitsByM family_;
  const KernelFamily* families_[1] = {&family_};
};

TEST_F(CudaInvariant, ASplitThatDependsOnMHasNoClass) {
  const KernelFamily* const family = gpu()->find_family("wgmma");
  if (family == nullptr) GTEST_SKIP() << gpu()->missing_family("wgmma").message();
  WithSplitsByM device(*gpu(), *family);
  const Problem problem = dense(33, 520, 2576);
  const auto configs = named_configs(*family, problem, std::span(wgmma_ways).first(1));
  const BitClass bits =
      classes_of(device, problem, {Candidate{"wgmma", family->revision(), configs.back()}}).front();
  EXPECT_TRUE(bits.id.empty());
  EXPECT_TRUE(bits.reason.starts_with(bit_phrase::rows)) << bits.reason;
}

}  // namespace
}  // namespace gemmtune::cuda_invariant_test
