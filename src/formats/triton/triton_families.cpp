#include "formats/triton/triton_families.h"

#include <algorithm>
#include <iterator>

#include "tuned/bucket_index.h"

namespace gemmtune {
namespace {

struct Family {
  std::string_view name;
  OperationForm operation;
  DataType x_type = DataType::bf16;  // of mixtures
  DataType w_type = DataType::bf16;
};

/// Of several names of one operation the first is written.
constexpr Family families[] = {
    {"GEMM-A16W16", Operation::a16w16},
    {"GEMM-A8W8", Operation::a8w8},
    {"GEMM-A8W8_BLOCKSCALE", Operation::a8w8_blockscale},
    {nearest_dense_family, Operation::a8w8_blockscale},
    {"GEMM-A8W8_BLOCKSCALE_PRESHUFFLED", {Operation::a8w8_blockscale, true}},
    {"GEMM-AFP4WFP4", Operation::a4w4_blockscale},
    {"GEMM-A16WFP4", Operation::a16w4},
    {"GEMM-A8WFP4", Operation::a8w4},
    {"BATCHED_GEMM-BF16", Operation::batched_bf16},
    {"BATCHED_GEMM-A16W16", Operation::batched_bf16},
    {"BATCHED_GEMM-A8W8", Operation::batched_a8w8},
    {"MOE-FP8_W8A8", Operation::fused_moe, DataType::f8_e4m3fn, DataType::f8_e4m3fn},
    {"MOE-INT8_W8A8", Operation::fused_moe, DataType::i8, DataType::i8},
    {"MOE-INT8_W8A16", Operation::fused_moe, DataType::bf16, DataType::i8},
    {"MOE-INT4_W4A16", Operation::fused_moe, DataType::bf16, DataType::i4},
    {"MOE-MX_FP4", Operation::fused_moe, DataType::f4_e2m1, DataType::f4_e2m1},
    {"MOE-DEFAULT", Operation::fused_moe, DataType::bf16, DataType::bf16},
};

/// Without sizes.
Problem problem_of(const Family& family) {
  Problem problem = default_problem(family.operation);
  problem.m = problem.n = problem.k = 0;
  if (traits(problem.operation).batched) problem.batch = 0;
  if (!is_mixture(problem)) return problem;
  problem.moe = {};
  problem.x_type = family.x_type;
  problem.w_type = family.w_type;
  return problem;
}

/// What AITER's callers of get_gemm_config() pass for bounds, and how they launch what it returns.
struct KernelRule {
  std::string_view family;
  std::span<const std::int64_t> bounds;
  LaunchRule launch;
};

constexpr std::int64_t batched_fp4_bounds[] = {4, 8, 16, 32, 64, 128, 256, 320, 512, 1024, 2048, 4096, 8192};
constexpr std::int64_t preshuffled_fp4_bounds[] = {4,   8,   16,   31,   32,   64,  128,
                                                   256, 512, 1024, 2048, 4096, 8192};
constexpr std::int64_t gated_bounds[] = {64, 128, 256, 512, 2048};
constexpr std::int64_t feed_forward_bounds[] = {4, 8, 64, 4096};

constexpr KernelRule kernel_rules[] = {
    {"GEMM-A16W16", default_triton_bounds, {SplitRule::common}},
    {"GEMM-A16W16-ATOMIC", default_triton_bounds, {}},
    {"GEMM-A16W16-gated", gated_bounds, {}},
    {"FF-A16W16-fused", feed_forward_bounds, {}},
    {"GEMM-A8W8", default_triton_bounds, {SplitRule::common}},
    {"GEMM-A8W8_PER_TOKEN_SCALE", default_triton_bounds, {}},
    {"GEMM-A8W8_BLOCKSCALE", default_triton_bounds, {SplitRule::common}},
    {"GEMM-A8W8_BLOCKSCALE_PRESHUFFLED", default_triton_bounds, {SplitRule::preshuffled}},
    {"GEMM-A16W8_BLOCKSCALE", default_triton_bounds, {SplitRule::common}},
    {"GEMM-A16W8_BLOCKSCALE_PRESHUFFLED", default_triton_bounds, {SplitRule::common}},
    {"GEMM-AFP4WFP4", default_triton_bounds, {SplitRule::even_recounted, 2, true, 128}},
    {"GEMM-AFP4WFP4_PRESHUFFLED", preshuffled_fp4_bounds, {SplitRule::even_recounted}},
    {"GEMM-A16WFP4", default_triton_bounds, {SplitRule::even, 2, true, 64}},
    {"GEMM-A16WFP4_PRESHUFFLED", default_triton_bounds, {SplitRule::even, 2, true}},
    {"GEMM-A8WFP4", default_triton_bounds, {SplitRule::even_by_four}},
    {"BATCHED_GEMM-BF16", default_triton_bounds, {SplitRule::common}},
    {"BATCHED_GEMM-A16W16", default_triton_bounds, {SplitRule::common}},
    {"BATCHED_GEMM-A8W8", default_triton_bounds, {}},
    {"BATCHED_GEMM-A16WFP4", default_triton_bounds, {SplitRule::even, 2}},
    {"BATCHED_GEMM-AFP4WFP4", batched_fp4_bounds, {SplitRule::even, 2, true}},
};

const KernelRule* kernel_rule(std::string_view family) {
  for (const KernelRule& rule : kernel_rules)
    if (rule.family == family) return &rule;
  return nullptr;
}

}  // namespace

bool has_triton_family(OperationForm operation) {
  return std::any_of(std::begin(families), std::end(families),
                     [&](const Family& family) { return family.operation == operation; });
}

std::optional<std::string_view> triton_family(const Problem& problem) {
  Problem asked = bucket_group(problem);
  asked.n = asked.k = 0;
  if (traits(problem.operation).batched) asked.batch = 0;
  asked.moe = {};
  for (const Family& family : families)
    if (bucket_group(problem_of(family)) == asked) return family.name;
  return std::nullopt;
}

std::optional<Problem> problem_of_triton_family(std::string_view name) {
  for (const Family& family : families)
    if (family.name == name) return problem_of(family);
  return std::nullopt;
}

std::optional<Problem> problem_of_nearest_name(const TritonFileName& name) {
  const auto has = [&](std::string_view text) { return name.specialisation.find(text) != std::string::npos; };
  if (name.family == nearest_dense_family) {
    if (has("dtype=int8_w8a8")) return std::nullopt;
    if (has("block_shape=[128,128]")) return problem_of_triton_family(nearest_dense_family);
    auto problem = problem_of_triton_family("GEMM-A8W8");
    if (problem && !has("block_shape=")) return problem;
    return std::nullopt;
  }
  if (name.family != nearest_moe_family) return std::nullopt;
  if (has("dtype=fp8_w8a8")) return problem_of_triton_family("MOE-FP8_W8A8");
  if (has("dtype=int8_w8a8")) return problem_of_triton_family("MOE-INT8_W8A8");
  if (has("dtype=int8_w8a16")) return problem_of_triton_family("MOE-INT8_W8A16");
  if (has("dtype=int4_w4a16")) return problem_of_triton_family("MOE-INT4_W4A16");
  return has("dtype=") ? std::nullopt : problem_of_triton_family("MOE-DEFAULT");
}

std::span<const std::int64_t> triton_bounds(std::string_view family) {
  const KernelRule* const rule = kernel_rule(family);
  return rule == nullptr ? std::span<const std::int64_t>(default_triton_bounds) : rule->bounds;
}

LaunchRule triton_launch_rule(std::string_view family) {
  const KernelRule* const rule = kernel_rule(family);
  return rule == nullptr ? LaunchRule() : rule->launch;
}

std::string_view triton_backend(std::string_view arch, std::string_view family) {
  const bool gluon = arch == "gfx1250";
  if (family == "GEMM-A8W8_BLOCKSCALE" || family == "GEMM-A8W8_BLOCKSCALE_PRESHUFFLED")
    return gluon ? "gluon" : "triton";
  return gluon && family == "BATCHED_GEMM-A16W16" ? "gluon" : "";
}

bool is_known_family(std::string_view family) { return kernel_rule(family) != nullptr; }

}  // namespace gemmtune
