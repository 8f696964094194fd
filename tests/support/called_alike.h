// Our declaration of a library's function against the one of its header.
#pragma once

#include <type_traits>

namespace gemmtune::test {

/// Parameters that are passed alike: pointers as pointers, numbers of one size as numbers.
template <typename Ours, typename Theirs>
constexpr bool passed_alike() {
  using A = std::remove_reference_t<Ours>;
  using B = std::remove_reference_t<Theirs>;
  // A reference is passed as a pointer; we declare a pointer.
  if constexpr (std::is_reference_v<Theirs>)
    return std::is_pointer_v<A> && sizeof(std::remove_pointer_t<A>) == sizeof(B);
  if constexpr (std::is_pointer_v<A> || std::is_pointer_v<B>)
    return std::is_pointer_v<A> && std::is_pointer_v<B>;
  return sizeof(A) == sizeof(B) && std::is_class_v<A> == std::is_class_v<B>;
}

template <typename R, typename... A, typename S, typename... B>
constexpr bool called_alike(R (*)(A...), S (*)(B...)) {
  if constexpr (sizeof...(A) != sizeof...(B)) {
    return false;
  } else {
    return passed_alike<R, S>() && (passed_alike<A, B>() && ...);
  }
}

}  // namespace gemmtune::test
