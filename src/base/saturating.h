// Sums and products of sizes that end at the largest number instead of wrapping.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace gemmtune {

/// Of factors that are not negative.
constexpr std::int64_t saturating_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  bool too_large = false;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    too_large = too_large || __builtin_mul_overflow(product, factor, &product);
  }
  return too_large ? std::numeric_limits<std::int64_t>::max() : product;
}

/// Of terms that are not negative.
constexpr std::int64_t saturating_sum(std::initializer_list<std::int64_t> terms) {
  std::int64_t sum = 0;
  for (const std::int64_t term : terms) {
    if (__builtin_add_overflow(sum, term, &sum)) return std::numeric_limits<std::int64_t>::max();
  }
  return sum;
}

}  // namespace gemmtune
