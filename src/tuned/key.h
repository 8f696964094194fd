// The key by which tables are asked: what AITER's key columns say of a problem, and nothing else.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "problem/problem.h"

namespace gemmtune {

/// The problem with all that its operation's key does not hold at the default: M and the alignment always, and of a packed
/// weight's layout all but that it is packed (`any`); of a8w8 every type but the weight's, of the block-scaled operations all types. Two
/// problems with one answer are one row of a tuned file (with their M).
///
/// Keys: a16w16 (N, K, bias, dtype, outdtype, scaleAB, bpreshuffle, orders), a8w8 and a8w8_bpreshuffle (N, K,
/// q_dtype_w), block-scaled ones (N, K), batched ones (B, N, K), 4-bit weights of our own tables (as a16w16, with the group and
/// whether there are zero points), fused_moe (all of it but shared experts and biases).
Problem group_of(const Problem& problem);
/// One key, M included.
bool same_key(const Problem& a, const Problem& b);
/// For maps by key: same_key() as equality, with its hash.
struct SameKey {
  bool operator()(const Problem& a, const Problem& b) const { return same_key(a, b); }
};
struct SameKeyHash {
  std::size_t operator()(const Problem& problem) const;
};
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
  std::string_view unknown_types = {};  // TunedEntry::unknown_types; a view, too

  friend bool operator==(const GroupKey&, const GroupKey&) = default;
};
/// The key of the rows of every activation of a fused MoE.
GroupKey of_any_activation(GroupKey key);

/// A GroupKey without its texts, as words: equal where these members are equal.
using KeyWords = std::array<std::uint64_t, 6>;
KeyWords key_words(const GroupKey& key);
/// Those of {cu_num, group_of(problem)}.
KeyWords key_words(int cu_num, const Problem& problem);
/// Odd constants, one a word, so that the products do not wait for each other.
inline std::uint64_t hash_of(const KeyWords& words) {
  const std::uint64_t hash = words[0] * 0x9e3779b97f4a7c15ULL + words[1] * 0xbf58476d1ce4e5b9ULL +
                             words[2] * 0x94d049bb133111ebULL + words[3] * 0xd6e8feb86659fd93ULL +
                             words[4] * 0xa0761d6478bd642fULL + words[5] * 0xe7037ed1a0b428dbULL;
  return hash ^ hash >> 32;
}
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
