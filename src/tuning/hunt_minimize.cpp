#include "tuning/hunt_minimize.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

namespace gemmtune {
namespace {

using Dimension = std::int64_t Problem::*;

constexpr std::array<std::pair<std::string_view, Dimension>, 3> dimensions{
    {{"m", &Problem::m}, {"n", &Problem::n}, {"k", &Problem::k}}};
constexpr std::int64_t max_modulus = 64;

Problem with(Problem problem, Dimension dimension, std::int64_t value) {
  problem.*dimension = value;
  return problem;
}

/// Smaller values, the smallest first.
std::vector<std::int64_t> smaller_than(std::int64_t value) {
  std::vector<std::int64_t> list{1,          value / 8, value / 4, value / 2, value / 2 + 1, 3 * value / 4,
                                 value - 64, value - 8, value - 2, value - 1};
  std::erase_if(list, [&](std::int64_t one) { return one < 1 || one >= value; });
  std::ranges::sort(list);
  list.erase(std::unique(list.begin(), list.end()), list.end());
  return list;
}

/// The condition of one dimension; empty: it fails at every size.
std::string failing_values(const Problem& minimal, std::string_view name, Dimension dimension,
                           const FailsAt& fails) {
  const std::int64_t value = minimal.*dimension;
  const auto fails_at = [&](std::int64_t other) {
    return other >= 1 && other <= max_dimension && fails(with(minimal, dimension, other));
  };
  for (std::int64_t modulus = 1; modulus <= max_modulus; modulus *= 2) {
    if (!fails_at(value + modulus) || !fails_at(value + 3 * modulus) || !fails_at(value + 2 * modulus))
      continue;
    std::string text =
        modulus == 1 ? std::string() : fmt::format("{} % {} == {}", name, modulus, value % modulus);
    if (value - modulus < 1) return text;
    return fmt::format("{}{}{} >= {}", text, text.empty() ? "" : " and ", name, value);
  }
  return fmt::format("{} == {}", name, value);
}

}  // namespace

Problem minimize(const Problem& problem, const FailsAt& fails, int max_tries) {
  Problem smallest = problem;
  int tries = 0;
  const auto take = [&](const Problem& other) {
    if (other == smallest || tries >= max_tries) return false;
    ++tries;
    if (!fails(other)) return false;
    smallest = other;
    return true;
  };
  Problem plain = smallest;
  plain.bias = false;
  plain.alignment = Problem().alignment;
  take(plain);
  for (Order Problem::*const order : {&Problem::x_order, &Problem::w_order}) {
    Problem rows = smallest;
    rows.*order = Order::row_major;
    take(rows);
  }
  for (bool smaller = true; smaller && tries < max_tries;) {
    smaller = false;
    for (const auto& [name, dimension] : dimensions) {
      for (const std::int64_t value : smaller_than(smallest.*dimension)) {
        if (!take(with(smallest, dimension, value))) continue;
        smaller = true;
        break;
      }
    }
  }
  return smallest;
}

std::string failing_sizes(const Problem& minimal, const FailsAt& fails) {
  std::string text;
  for (const auto& [name, dimension] : dimensions) {
    const std::string one = failing_values(minimal, name, dimension, fails);
    if (!one.empty()) text += (text.empty() ? "" : " and ") + one;
  }
  return text;
}

}  // namespace gemmtune
