#include "tuned/group_index.h"

namespace gemmtune {
namespace {

static_assert(sizeof(GroupSlice) == 64);

constexpr std::size_t compared_texts = 8;

/// N and K first. Word by word, because a wide load of a key that was just written waits for its stores.
bool same(const FlatKey& a, const FlatKey& b) {
  return a.words[1] == b.words[1] && a.words[2] == b.words[2] && a.words[0] == b.words[0] &&
         a.words[3] == b.words[3] && a.words[4] == b.words[4] && a.words[5] == b.words[5] && a.gfx == b.gfx &&
         a.unknown_types == b.unknown_types;
}

std::uint64_t hash_of_key(const FlatKey& key) {
  const std::uint64_t texts = std::uint64_t{key.gfx} << 32 | key.unknown_types;
  return hash_of(key.words) ^ texts * 0x8ebc6af09c88c6e3ULL;
}

}  // namespace

std::uint32_t GroupIndex::text(std::string_view asked) const {
  if (asked.empty()) return 0;
  for (std::size_t i = 0; i < first_texts_.size(); ++i) {
    if (first_texts_[i] == asked) return static_cast<std::uint32_t>(i + 1);
  }
  if (further_texts_.empty()) return none;
  const auto at = further_texts_.find(std::string(asked));
  return at == further_texts_.end() ? none : at->second;
}

std::uint32_t GroupIndex::add_text(std::string_view added) {
  const std::uint32_t known = text(added);
  if (known != none) return known;
  if (first_texts_.size() < compared_texts) {
    first_texts_.emplace_back(added);
    return static_cast<std::uint32_t>(first_texts_.size());
  }
  const auto number = static_cast<std::uint32_t>(compared_texts + further_texts_.size() + 1);
  further_texts_.emplace(added, number);
  return number;
}

std::uint32_t GroupIndex::find(const FlatKey& key) const {
  if (slots_.empty()) return none;
  const std::uint64_t hash = hash_of_key(key);
  const auto tag = static_cast<std::uint32_t>(hash >> 32);
  const std::size_t mask = slots_.size() - 1;
  for (std::size_t at = hash & mask; slots_[at].group != none; at = (at + 1) & mask) {
    if (slots_[at].tag == tag && same(groups_[slots_[at].group].key, key)) return slots_[at].group;
  }
  return none;
}

std::uint32_t GroupIndex::insert(const GroupKey& key) {
  const FlatKey added{key_words(key), add_text(key.gfx), add_text(key.unknown_types)};
  const std::uint32_t known = find(added);
  if (known != none) return known;
  groups_.emplace_back().key = added;
  if (groups_.size() * 2 > slots_.size()) {
    grow();
  } else {
    place(size() - 1);
  }
  return size() - 1;
}

void GroupIndex::place(std::uint32_t group) {
  const std::uint64_t hash = hash_of_key(groups_[group].key);
  const std::size_t mask = slots_.size() - 1;
  std::size_t at = hash & mask;
  while (slots_[at].group != none) at = (at + 1) & mask;
  slots_[at] = {static_cast<std::uint32_t>(hash >> 32), group};
}

void GroupIndex::grow() {
  slots_.assign(slots_.empty() ? 16 : slots_.size() * 2, Slot{});
  for (std::uint32_t group = 0; group < size(); ++group) place(group);
}

}  // namespace gemmtune
