// The values of an enumeration that begins at 0 and has no gaps.
#pragma once

#include <array>
#include <cstddef>

namespace gemmtune {

/// The first `count` of them, in order.
template <typename Enumeration, std::size_t count>
inline constexpr std::array<Enumeration, count> enumerators = [] {
  std::array<Enumeration, count> all{};
  for (std::size_t index = 0; index < count; ++index) all[index] = static_cast<Enumeration>(index);
  return all;
}();

}  // namespace gemmtune
