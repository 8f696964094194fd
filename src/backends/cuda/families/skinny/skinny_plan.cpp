#include "backends/cuda/families/skinny/skinny_plan.h"

#include <algorithm>

#include "base/rounding.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t shared_reserve = 2048;  // alignment of the ring, and barriers' slack
constexpr std::int64_t most_ahead = 32 << 10;  // bytes of the weight a block

/// The classes of M.
std::int64_t columns_of(std::int64_t m) { return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : 64; }

/// How much of the weight is called into the second-level cache before it may be read, or, in a dependent
/// launch, before the ring has room for it. More would be in the way of what is needed sooner.
std::int64_t steps_ahead(const SkinnyPlan& plan) {
  const std::int64_t step_bytes = plan.pieces * plan.rows * SkinnyPlan::piece_bytes;
  const std::int64_t share = ceil_div(plan.steps, plan.blocks);
  const std::int64_t bytes = plan.dependent ? (share - plan.stages) * step_bytes / 4 : share * step_bytes / 8;
  return std::min(bytes, most_ahead) / step_bytes;
}

}  // namespace

std::int64_t SkinnyPlan::most_groups() const { return ceil_div(rows / 8, blocks); }

unsigned long long SkinnyPlan::first_groups() const {
  unsigned long long groups = 0;
  for (std::int64_t block = 0; block <= blocks; ++block)
    groups |= static_cast<unsigned long long>(ceil_div(block * (rows / 8), blocks)) << (5 * block);
  return groups;
}

std::int64_t SkinnyPlan::exchange_bytes() const {
  if (blocks == 1) return columns * (rows * 2 + 16);
  return blocks * most_groups() * 8 * (columns + 4) * 4;
}

SkinnyPlan skinny_plan(const Problem& problem, const Config& config, const gpu::Limits& limits) {
  SkinnyPlan plan;
  plan.rows = config.number("r", 64);
  plan.pieces = config.number("ks", 1);
  plan.blocks = config.number("c", 1);
  plan.columns = columns_of(problem.m);
  plan.dependent = is_dependent(config);
  const std::int64_t k_bytes = bytes_of(problem.x_type, problem.k);
  plan.steps = ceil_div(k_bytes, SkinnyPlan::piece_bytes * plan.pieces);
  plan.tiles = ceil_div(problem.n, plan.rows);
  plan.stage_bytes = plan.pieces * (plan.rows + plan.columns) * SkinnyPlan::piece_bytes;
  const std::int64_t behind = plan.exchange_bytes() + shared_reserve;
  const std::int64_t most = static_cast<std::int64_t>(limits.shared_bytes_a_block) - behind;
  const std::int64_t wanted = std::min(config.number("ring", 110) * 1024, most);
  plan.stages = std::min(wanted / plan.stage_bytes, ceil_div(plan.steps, plan.blocks));
  plan.shared_bytes = plan.stages * plan.stage_bytes + behind;
  plan.resident = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(limits.shared_bytes_a_multiprocessor) / (plan.shared_bytes + 1024), 1, 12);
  plan.ahead = steps_ahead(plan);
  plan.ahead_blocks = limits.multiprocessors * plan.resident;
  return plan;
}

}  // namespace gemmtune::cuda
