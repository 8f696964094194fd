// The key by which tables are asked: what AITER's key columns say of a problem, and nothing else.
#pragma once

#include <cstddef>
#include <string_view>

#include "problem/problem.h"

namespace gemmtune {

/// The problem with all that its operation's key does not hold at the default: M, the weight's layout and the
/// alignment always; of a8w8 every type but the weight's, of the block-scaled operations all types. Two
/// problems with one answer are one row of a tuned file (with their M).
///
/// Keys: a16w16 (N, K, bias, dtype, outdtype, scaleAB, bpreshuffle, orders), a8w8 and a8w8_bpreshuffle (N, K,
/// q_dtype_w), block-scaled ones (N, K), batched ones (B, N, K), fused_moe (all of it).
Problem group_of(const Problem& problem);
/// One key, M included.
bool same_key(const Problem& a, const Problem& b);
/// group_of() without bias and scaleAB, which the bytes of a weight do not depend on.
Problem weight_of(const Problem& problem);
/// True if both read one packed weight, so that they need one layout.
bool share_packed_weight(const Problem& a, const Problem& b);

/// A group on a device. `gfx` is a view: into an entry of the table, or into the key looked up.
struct GroupKey {
  std::string_view gfx;
  int cu_num = 0;
  Problem group;                // as group_of() makes it
  bool any_activation = false;  // fused MoE: the rows of every activation, which `group` then does not hold

  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};
/// The key of the rows of every activation of a fused MoE.
GroupKey of_any_activation(GroupKey key);
struct GroupKeyHash {
  std::size_t operator()(const GroupKey& key) const;
};

/// The M that a fused MoE of `tokens` is looked up with: the next power of two below 32768, else the larger
/// of 32768 and 131072 that is not above it. Where 131072 has no row, 32768 is asked next. Source: AITER's
/// get_padded_M in fused_moe.py.
std::int64_t token_tier(std::int64_t tokens);
inline constexpr std::int64_t lower_token_tier = 32768;
inline constexpr std::int64_t upper_token_tier = 131072;

}  // namespace gemmtune
