// TunedTable: all that was learnt, in memory; immutable once made; look-up by problem.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "tuned/entry.h"

namespace gemmtune {

/// How well a table knew a problem.
enum class Match { exact, range, fine, coarse, untuned };
std::string_view to_string(Match match);

/// AITER's padded M (docs/guide.md, "Look-up"): level 0 fine, level 1 coarse.
std::int64_t padded_m(std::int64_t m, std::int64_t n, int level);

/// What is looked up: a problem on a device.
struct LookupKey {
  std::string gfx;
  int cu_num = 0;
  Problem problem;
};

struct LookupHit {
  Match match = Match::untuned;
  std::int64_t hit_m = 0;             // the row's M
  const TunedEntry* entry = nullptr;  // owned by the table
};

class TunedTable {
 public:
  /// Two entries of one key: the smaller valid time wins, ties keep the first; invalid times never win.
  explicit TunedTable(std::vector<TunedEntry> entries);
  ~TunedTable();
  TunedTable(TunedTable&&) noexcept;
  TunedTable& operator=(TunedTable&&) noexcept;

  const std::vector<TunedEntry>& entries() const;
  /// The hits in AITER's order (exact, range, fine, coarse), at most one a level: the caller takes the first
  /// that it can run. Rows without gfx match AMD architectures (gfx…) only. Rows with an invalid time do not
  /// answer.
  std::vector<LookupHit> lookup(const LookupKey& key) const;
  /// Duplicate keys met while making the table (indices into the given entries).
  const std::vector<std::size_t>& duplicates() const;

  /// The hot path (decisions 33): one (device, operation, types, N, K, layout flags) resolved once.
  class Group;
  /// nullptr where no row has this key with any M.
  const Group* find_group(const LookupKey& key_without_m) const;
  /// The level and entry index of M in a group, or {untuned, -1}: allocates nothing, takes no lock.
  struct Answer {
    Match match = Match::untuned;
    std::int32_t entry = -1;
  };
  static Answer lookup(const Group& group, std::int64_t m);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gemmtune
