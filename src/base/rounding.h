// Whole numbers rounded up. For values that are not negative, divisors above 0 and sums that fit.
#pragma once

#include <concepts>
#include <type_traits>

namespace gemmtune {

/// ⌈value / by⌉.
template <std::integral Value, std::integral By>
constexpr std::common_type_t<Value, By> ceil_div(Value value, By by) {
  return (value + by - 1) / by;
}

/// The smallest multiple that is not below `value`.
template <std::integral Value, std::integral Multiple>
constexpr std::common_type_t<Value, Multiple> round_up(Value value, Multiple multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace gemmtune
