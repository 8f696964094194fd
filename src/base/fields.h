// The members of a struct under their names, listed once for all who write or read them.
#pragma once

#include <algorithm>
#include <concepts>
#include <functional>
#include <string_view>
#include <type_traits>

namespace gemmtune {

/// True for Struct and const Struct.
template <typename Type, typename Struct>
concept SameStruct = std::same_as<std::remove_const_t<Type>, Struct>;

template <typename Member>
inline constexpr bool is_function = false;
template <typename Signature>
inline constexpr bool is_function<std::function<Signature>> = true;

/// Calls visit(name, member) for each member; `names` is their comma-separated list. Left out: functions, and
/// members whose name begins with "unwritten_".
template <typename Visit, typename... Members>
void visit_each(std::string_view names, Visit& visit, Members&... members) {
  const auto one = [&](auto& member) {
    const std::string_view name = names.substr(0, names.find(','));
    names.remove_prefix(std::min(names.size(), name.size() + 2));  // ", "
    if constexpr (!is_function<std::remove_const_t<std::remove_reference_t<decltype(member)>>>) {
      if (!name.starts_with("unwritten_")) visit(name, member);
    }
  };
  (one(members), ...);
}

}  // namespace gemmtune

// Defines visit_fields(object, visit) for objects of a struct, constant or not: names for all its members, in their order. A structured
// binding holds them, so a list that lacks a member does not compile, and each listed member is visited.
#define GEMMTUNE_FIELDS(Struct, ...)                                                               \
  void visit_fields(::gemmtune::SameStruct<Struct> auto& gemmtune_object, auto&& gemmtune_visit) { \
    auto& [__VA_ARGS__] = gemmtune_object;                                                         \
    ::gemmtune::visit_each(#__VA_ARGS__, gemmtune_visit, __VA_ARGS__);                             \
  }
