// Bit classes: kernels of one class give a row of x the same bits of y, whatever M, the row's position and the other rows
// are (docs/invariant.md).
#pragma once

#include <string>

namespace gemmtune {

/// Of a kernel for one weight (operation, N, K, types).
struct BitClass {
  std::string id;  // "f32-…" if sums were seen in float32, else the type of y; empty: none, or not asked
  std::string reason;  // why there is none; empty: it was not asked

  friend bool operator==(const BitClass&, const BitClass&) = default;
};

/// The fixed phrases with which BitClass::reason begins. The first four are checked in this order, `routes` before them.
namespace bit_phrase {
inline constexpr const char* runs = "bits of a row change from run to run";
inline constexpr const char* neighbours = "bits of a row change with its neighbours";
inline constexpr const char* position = "bits of a row change with its position";
inline constexpr const char* rows = "bits of a row change with M";
inline constexpr const char* routes = "bits of a token may change with the experts of its neighbours";
}  // namespace bit_phrase

}  // namespace gemmtune
