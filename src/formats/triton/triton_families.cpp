#include "formats/triton/triton_families.h"

#include <algorithm>
#include <iterator>

#include "formats/triton/triton_lookup.h"
#include "tuned/bucket_index.h"

namespace gemmtune {
namespace {

struct Family {
  std::string_view name;
  Operation operation;
  DataType x_type = DataType::bf16;  // of mixtures
  DataType w_type = DataType::bf16;
};

/// Of several names of one operation the first is written.
constexpr Family families[] = {
    {"GEMM-A16W16", Operation::a16w16},
    {"GEMM-A8W8", Operation::a8w8},
    {"GEMM-A8W8_BLOCKSCALE", Operation::a8w8_blockscale},
    {nearest_dense_family, Operation::a8w8_blockscale},
    {"GEMM-A8W8_BLOCKSCALE_PRESHUFFLED", Operation::a8w8_blockscale_bpreshuffle},
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
  if (traits(family.operation).batched) problem.batch = 0;
  if (!is_mixture(problem)) return problem;
  problem.moe = {};
  problem.x_type = family.x_type;
  problem.w_type = family.w_type;
  return problem;
}

/// What AITER's batched FP4 kernel looks for.
constexpr std::int64_t batched_fp4_bounds[] = {1,   4,   8,   16,   32,   64,   128,
                                               256, 320, 512, 1024, 2048, 4096, 8192};

}  // namespace

bool has_triton_family(Operation operation) {
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

std::span<const std::int64_t> triton_bounds(std::string_view family) {
  if (family == "BATCHED_GEMM-AFP4WFP4") return batched_fp4_bounds;
  return default_triton_bounds;
}

}  // namespace gemmtune
