// The values of an enumeration that begins at 0 and has no gaps.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace gemmtune {

/// The first `count` of them, in order.
template <typename Enumeration, std::size_t count>
inline constexpr std::array<Enumeration, count> enumerators = [] {
  std::array<Enumeration, count> all{};
  for (std::size_t index = 0; index < count; ++index) all[index] = static_cast<Enumeration>(index);
  return all;
}();

/// Their names, each beside its value.
template <typename Enumeration, std::size_t count>
class EnumeratorNames {
 public:
  using Row = std::pair<Enumeration, std::string_view>;
  /// In the order of the enumeration: another order does not compile.
  consteval explicit EnumeratorNames(const Row (&rows)[count]) {
    for (std::size_t index = 0; index < count; ++index) {
      if (static_cast<std::size_t>(rows[index].first) != index) throw "not in the enumeration's order";
      names_[index] = rows[index].second;
    }
  }
  constexpr std::string_view of(Enumeration value) const {
    const auto index = static_cast<std::size_t>(value);
    return index < count ? names_[index] : "unknown";
  }
  constexpr std::optional<Enumeration> find(std::string_view name) const {
    for (std::size_t index = 0; index < count; ++index)
      if (names_[index] == name) return static_cast<Enumeration>(index);
    return std::nullopt;
  }

 private:
  std::array<std::string_view, count> names_{};
};

}  // namespace gemmtune
