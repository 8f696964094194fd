// TunedTable: all that was learnt, in memory; immutable once made; look-up by problem.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tuned/entry.h"

namespace gemmtune {

/// How well a table knew a problem.
enum class Match { exact, range, fine, coarse, untuned, bucket, fewer_threads };
inline constexpr std::size_t match_count = static_cast<std::size_t>(Match::fewer_threads) + 1;
/// All of them, in the order in which a look-up tries them; untuned is the last.
inline constexpr std::array matches_in_order{Match::exact,  Match::range,         Match::bucket, Match::fine,
                                             Match::coarse, Match::fewer_threads, Match::untuned};
std::string_view to_string(Match match);
/// No row of the device's own answers: the problem is to be tuned.
inline bool is_miss(Match match) { return match == Match::untuned || match == Match::fewer_threads; }

/// A row of another M: what its kernel takes at this one was not measured. The row of a mixture's token tier is of all M of the tier.
inline bool is_of_another_m(Match match, const Problem& problem) {
  const bool is_padded = match == Match::fine || match == Match::coarse;
  return is_padded && traits(problem.operation).padding != Padding::token_tiers;
}

/// AITER's padded M (docs/lookup.md): level 0 fine, level 1 coarse.
std::int64_t padded_m(std::int64_t m, std::int64_t n, int level);

/// Of what level 0 rounds M up to a multiple.
std::int64_t fine_step(std::int64_t m);

/// What is looked up: a problem on a device.
struct LookupKey {
  std::string gfx;
  int cu_num = 0;
  Problem problem;
  std::string unknown_types = {};  // TunedEntry::unknown_types of the rows asked for
};

struct LookupHit {
  Match match = Match::untuned;
  std::int64_t hit_m = 0;             // the row's M
  const TunedEntry* entry = nullptr;  // owned by the table
};

/// The hits of one look-up, best first: at most one a level, in place.
class LookupHits {
 public:
  using value_type = LookupHit;
  using const_iterator = const LookupHit*;
  const LookupHit* begin() const { return hits_.data(); }
  const LookupHit* end() const { return hits_.data() + count_; }
  const LookupHit* data() const { return hits_.data(); }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  const LookupHit& front() const { return hits_.front(); }
  const LookupHit& operator[](std::size_t index) const { return hits_[index]; }
  void push_back(const LookupHit& hit) { hits_[count_++] = hit; }

 private:
  std::array<LookupHit, match_count - 1> hits_;  // none is `untuned`
  std::size_t count_ = 0;
};

class TunedTable {
 public:
  /// Two entries of one key: the higher accuracy class, then the smaller time wins, ties keep the first; rows that may not be chosen
  /// (choice.h) never win.
  explicit TunedTable(std::vector<TunedEntry> entries);
  ~TunedTable();
  TunedTable(TunedTable&&) noexcept;
  TunedTable& operator=(TunedTable&&) noexcept;

  /// All entries as given, those that never answer included.
  const std::vector<TunedEntry>& entries() const;
  /// The hits in the order of look-up (exact, range, bucket, fine, coarse), at most one per level and none twice: the
  /// caller takes the first that it can run. Buckets that apply to any N and K come last. Batched operations are
  /// not padded. A fused MoE is looked up by its token tier (`exact` where that is M, else `coarse`), and where no row has
  /// its activation, by the first row in file order that has all the rest. Rows without gfx match AMD architectures (gfx…) only, and only
  /// where no row with gfx has that M. Of overlapping ranges the one with the smallest M answers. Rows that
  /// may not be chosen do not answer.
  /// A group with rows of a bit class is invariant: its rows of that class answer every M, the nearest first, as `exact` or
  /// `range`, and nothing else answers. Of several classes the one with the most rows counts.
  LookupHits lookup(const LookupKey& key) const;
  /// All hits of an invariant group, the nearest first: lookup() has room for the first of them alone. Empty if the group
  /// is not invariant.
  std::vector<LookupHit> lookup_invariant(const LookupKey& key) const;

  /// Of CPUs: what lookup() answers first, buckets left out, for the nearest smaller number of threads that has an answer; as
  /// Match::fewer_threads. For callers that lookup() gave no row that they can run.
  std::optional<LookupHit> lookup_fewer_threads(const LookupKey& key) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace gemmtune
