// The groups of a table by key, for look-ups: a flat hash table with open addressing, whose keys are words.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tuned/key.h"

namespace gemmtune {

/// A GroupKey with numbers in place of its texts, which GroupIndex gives them.
struct FlatKey {
  KeyWords words{};
  std::uint32_t gfx = 0;
  std::uint32_t unknown_types = 0;
};

/// A row that may answer, of one group.
struct GroupRow {
  std::uint32_t m = 0;
  std::uint32_t m_from = 0;  // 0: the row is no range
  std::int32_t entry = -1;
};

/// A key and where its rows lie: a cache line.
struct alignas(64) GroupSlice {
  FlatKey key;
  std::uint32_t first_row = 0;
  std::uint32_t row_count : 30 = 0;
  bool has_ranges : 1 = false;
  bool is_invariant : 1 = false;  // all rows are of one bit class, and answer every M
};

class GroupIndex {
 public:
  static constexpr std::uint32_t none = ~std::uint32_t{0};

  /// The key's number: 0, 1, 2 … as keys come.
  std::uint32_t insert(const GroupKey& key);
  /// `none` if it was not inserted.
  std::uint32_t find(const FlatKey& key) const;
  FlatKey flat(const GroupKey& key) const { return {key_words(key), text(key.gfx), text(key.unknown_types)}; }

  std::uint32_t size() const { return static_cast<std::uint32_t>(groups_.size()); }
  GroupSlice& operator[](std::uint32_t number) { return groups_[number]; }
  const GroupSlice& operator[](std::uint32_t number) const { return groups_[number]; }

  /// The number of a text: 0 if it is empty, `none` if no key has it.
  std::uint32_t text(std::string_view asked) const;

 private:
  struct Slot {
    std::uint32_t tag = 0;  // of the hash
    std::uint32_t group = none;
  };

  std::uint32_t add_text(std::string_view text);
  void place(std::uint32_t group);
  void grow();

  std::vector<GroupSlice> groups_;
  std::vector<Slot> slots_;               // a power of two, at most half of them taken
  std::vector<std::string> first_texts_;  // those that are compared one by one
  std::unordered_map<std::string, std::uint32_t> further_texts_;
};

}  // namespace gemmtune
