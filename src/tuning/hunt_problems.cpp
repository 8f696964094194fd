#include "tuning/hunt_problems.h"

#include <algorithm>
#include <array>
#include <span>

#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune {
namespace {

constexpr std::uint64_t problems_per_huge_one = 24;
constexpr std::int64_t huge_elements = std::int64_t{1} << 31;

template <typename Value>
Value any_of(std::span<const Value> values, Random& random) {
  return values[random.below(values.size())];
}

/// Of first … last, both included.
std::int64_t between(std::int64_t first, std::int64_t last, Random& random) {
  return first + static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(last - first + 1)));
}

bool one_in(std::uint64_t count, Random& random) { return random.below(count) == 0; }

std::int64_t random_k(Random& random) {
  constexpr std::int64_t rests[] = {1, 2, 3, 7, 8, 9, 15, 16, 24, 31, 33, 56, 63};
  switch (random.below(5)) {
    case 0:
      return between(1, 130, random);
    case 1:  // beside a multiple of a block
      return 64 * between(1, 64, random) + any_of<std::int64_t>(rests, random);
    case 2: {  // splits of whole blocks, and a rest
      const std::int64_t splits = between(2, 24, random);
      return splits * 64 * between(1, 24, random) + 8 * between(0, splits - 1, random);
    }
    case 3:  // deep
      return 64 * between(128, 1024, random) + 8 * between(0, 7, random);
    default:  // beside a power of two
      return std::max<std::int64_t>(1, (std::int64_t{1} << between(1, 15, random)) + between(-1, 1, random));
  }
}

std::int64_t random_rows(Random& random) {
  switch (random.below(4)) {
    case 0:
      return between(1, 8, random);
    case 1:
      return (std::int64_t{1} << between(3, 8, random)) + between(-1, 1, random);
    case 2:
      return between(1, 300, random);
    default:
      return between(1, 3000, random);
  }
}

std::int64_t random_columns(Random& random) {
  switch (random.below(3)) {
    case 0:
      return 8 * between(1, 64, random);
    case 1:
      return between(1, 600, random);
    default:
      return (std::int64_t{1} << between(4, 13, random)) + between(-1, 1, random);
  }
}

bool fits(const Problem& problem, const HuntLimits& limits) {
  return flops(problem) <= limits.max_flops && bytes(problem) <= limits.max_bytes;
}

/// x, w or y has more than 2^31 elements; a small problem stays if that does not fit.
void make_huge(const HuntLimits& limits, Random& random, Problem& problem) {
  Problem huge = problem;
  const std::int64_t small = between(1, 16, random);
  const std::int64_t large = std::int64_t{1} << between(14, 17, random);
  const std::int64_t other = huge_elements / large + between(1, 64, random);
  const std::array<std::int64_t, 3> orders[] = {
      {small, large, other}, {large, small, other}, {large, other, small}};
  const auto& sizes = orders[random.below(3)];
  huge.m = sizes[0];
  huge.n = sizes[1];
  huge.k = sizes[2];
  if (fits(huge, limits)) problem = huge;
}

void set_mixture(Random& random, Problem& problem) {
  problem.moe.experts = static_cast<std::int32_t>(between(1, 16, random));
  problem.moe.topk = static_cast<std::int32_t>(between(1, problem.moe.experts, random));
  problem.moe.gated = !one_in(4, random);
}

}  // namespace

Problem random_problem(OperationForm operation, const HuntLimits& limits, Random& random) {
  Problem problem = default_problem(operation);
  const OperationTraits& row = traits(problem.operation);
  problem.x_type = any_of(row.x_types, random);
  problem.w_type = row.w_types.empty() ? problem.x_type : any_of(row.w_types, random);
  problem.y_type =
      one_in(4, random) ? any_of(row.y_types, random) : default_y_type(problem.operation, problem.x_type);
  problem.bias = row.bias && one_in(3, random);
  problem.batch = row.batched ? between(1, 5, random) : 1;
  if (row.mixture) set_mixture(random, problem);
  constexpr std::int32_t alignments[] = {16, 16, 8, 4, 2};
  problem.alignment = std::max(any_of<std::int32_t>(alignments, random), bits(problem.x_type) / 8);
  problem.m = random_rows(random);
  problem.n = random_columns(random);
  problem.k = random_k(random);
  if (!row.mixture && one_in(problems_per_huge_one, random)) make_huge(limits, random, problem);
  if (row.key_switches && bits(problem.w_type) != 4) {
    if (one_in(4, random)) problem.x_order = Order::column_major;
    if (one_in(4, random)) problem.w_order = Order::column_major;
  }
  if (has_weight_groups(problem)) {
    problem.w_group = any_of<std::int32_t>(weight_groups, random);
    problem.zero_points = one_in(2, random);
  }
  // Of 4 bits the dimensions that are reduced are whole blocks.
  const std::int64_t multiple = k_multiple(problem);
  const auto step_of = [&](const std::int64_t* dimension) {
    const bool reduced = dimension == &problem.k || (row.mixture && dimension == &problem.n);
    return reduced ? multiple : std::int64_t{1};
  };
  for (std::int64_t* const dimension : {&problem.n, &problem.k})
    *dimension = round_up(*dimension, step_of(dimension));
  while (!fits(problem, limits)) {
    std::int64_t* const largest =
        std::max({&problem.m, &problem.n, &problem.k}, [](const auto* a, const auto* b) { return *a < *b; });
    const std::int64_t step = step_of(largest);
    if (*largest <= step) break;
    *largest = std::max(step, *largest / 2 / step * step);
  }
  if (has_weight_groups(problem) && one_in(4, random)) problem.w_group = static_cast<std::int32_t>(problem.k);
  return problem;
}

}  // namespace gemmtune
