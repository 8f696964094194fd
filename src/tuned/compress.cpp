#include "tuned/compress.h"

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "tuned/checks.h"
#include "tuned/choice.h"
#include "tuned/range_rows.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

/// Groups whose requests other groups answer, too: rows without gfx beside rows with it, and the activations
/// of one fused MoE (a request without rows of its own takes the first in the file). Ranges of one would hide
/// rows of the other.
class SharedGroups {
 public:
  explicit SharedGroups(std::span<const Rows> groups) {
    for (const Rows& group : groups) {
      const TunedEntry& row = *group.front();
      ++activations_[without_activation(row)];
      const GroupKey any_gfx = without_gfx(row);
      ++architectures_[any_gfx];
      if (table_gfx(row).empty()) lacks_gfx_.insert(any_gfx);
    }
  }
  bool hold(const TunedEntry& row) const {
    if (activations_.at(without_activation(row)) > 1) return true;
    const GroupKey any_gfx = without_gfx(row);
    return architectures_.at(any_gfx) > 1 && lacks_gfx_.count(any_gfx) != 0;
  }

 private:
  static GroupKey without_activation(const TunedEntry& row) { return of_any_activation(group_key_of(row)); }
  static GroupKey without_gfx(const TunedEntry& row) {
    GroupKey key = without_activation(row);
    if (amd_architecture(key.gfx)) key.gfx = {};
    return key;
  }

  std::unordered_map<GroupKey, int, GroupKeyHash> activations_;
  std::unordered_map<GroupKey, int, GroupKeyHash> architectures_;
  std::unordered_set<GroupKey, GroupKeyHash> lacks_gfx_;
};

bool can_merge(const TunedEntry& row) {
  return row.other_key.empty() && may_be_chosen(row) && why_unreachable(row).empty();
}

LookupKey lookup_key_of(const TunedEntry& row) {
  return {std::string(table_gfx(row)), row.cu_num, row.problem, row.unknown_types};
}

/// The look-ups of one group, segment by segment: the M from one change of its answers to before the next.
class GroupAnswers {
 public:
  /// `table`: of copies of the entries from `first` on.
  GroupAnswers(const TunedTable& table, const Rows& group, const TunedEntry* first)
      : starts_(answer_changes(group)) {
    const TunedEntry& row = *group.front();
    LookupKey key = lookup_key_of(row);
    for (const std::int64_t start : starts_) {
      key.problem.m = start;
      const auto hits = table.lookup(key);
      answers_.push_back(hits.empty() ? LookupHit() : hits.front());
      if (!hits.empty()) answers_.back().entry = first + (hits.front().entry - table.entries().data());
    }
  }
  std::size_t size() const { return starts_.size(); }
  /// The segment that holds `m`, else (below all) the first.
  std::size_t segment_of(std::int64_t m) const {
    const auto behind = std::upper_bound(starts_.begin(), starts_.end(), m);
    return behind == starts_.begin() ? 0 : static_cast<std::size_t>(behind - starts_.begin()) - 1;
  }
  std::int64_t start(std::size_t segment) const { return starts_[segment]; }
  /// The best hit; without an entry where no row answers.
  const LookupHit& operator[](std::size_t segment) const { return answers_[segment]; }

 private:
  std::vector<std::int64_t> starts_;
  std::vector<LookupHit> answers_;
};

/// A range in the making: rows of one winner, of which that of the largest M stays.
class Run {
 public:
  Run(const GroupAnswers& answers, const TunedEntry& top)
      : answers_(answers), top_(top), m_from_(lowest_m(top)) {}
  std::size_t rows() const { return rows_; }
  std::int64_t m_from() const { return m_from_; }
  /// Takes the row with the next lower M, if every M but those between it and the range keeps its answer.
  bool take(const TunedEntry& row) {
    if (!same_winner(row, top_)) return false;
    const auto start = start_with(row);
    if (!start || !answers_alike(*start, row.problem.m)) return false;
    m_from_ = *start;
    ++rows_;
    return true;
  }

 private:
  static std::int64_t lowest_m(const TunedEntry& row) { return row.m_from.value_or(row.problem.m); }

  /// The first M of a range that answers all that the row answered, what is padded to it included; nullopt
  /// where that includes M above the range.
  std::optional<std::int64_t> start_with(const TunedEntry& row) const {
    std::int64_t start = std::min(m_from_, lowest_m(row));
    for (const RowSpan& span : answered_spans(row)) {
      for (std::size_t segment = answers_.segment_of(span.m_from);
           segment < answers_.size() && answers_.start(segment) <= span.m; ++segment) {
        if (answers_[segment].entry != &row) continue;
        if (answers_.start(segment) > top_.problem.m) return std::nullopt;
        start = std::min(start, answers_.start(segment));
      }
    }
    return start;
  }
  /// True if the segments from `start` to the range have their answer from a range beginning there, too.
  bool answers_alike(std::int64_t start, std::int64_t row_m) const {
    for (std::size_t segment = answers_.segment_of(start);
         segment < answers_.size() && answers_.start(segment) < m_from_; ++segment) {
      if (!keeps_answer(answers_[segment], answers_.start(segment) > row_m)) return false;
    }
    return true;
  }
  /// Between the row and the range, padding and misses give way.
  bool keeps_answer(const LookupHit& hit, bool between) const {
    if (hit.entry == nullptr) return between;
    if (hit.match == Match::exact || same_winner(*hit.entry, top_)) return true;
    if (hit.match == Match::range) return hit.entry->problem.m < top_.problem.m;
    return between;
  }

  const GroupAnswers& answers_;
  const TunedEntry& top_;
  std::int64_t m_from_;
  std::size_t rows_ = 1;
};

/// Merges runs of one group into `kept` (indexed as the entries; merged = 0: the row goes).
void compress_group(const Rows& group, const GroupAnswers& answers, const TunedEntry* first,
                    std::vector<RangeRow>& kept) {
  const auto index_of = [&](const TunedEntry* row) { return static_cast<std::size_t>(row - first); };
  Rows answering;
  for (const TunedEntry* row : group) {
    if (can_merge(*row)) answering.push_back(row);
  }
  for (std::size_t at = answering.size(); at-- > 0;) {
    const std::size_t top = index_of(answering[at]);
    Run run(answers, *answering[at]);
    for (; at > 0 && run.take(*answering[at - 1]); --at) kept[index_of(answering[at - 1])].merged = 0;
    if (run.rows() > 1) kept[top] = {top, run.m_from(), run.rows()};
  }
}

}  // namespace

std::vector<RangeRow> compress(const std::vector<TunedEntry>& entries) {
  std::vector<RangeRow> kept(entries.size());
  for (std::size_t index = 0; index < kept.size(); ++index) kept[index].entry = index;
  const Rows rows = rows_of(entries);
  const std::vector<Rows> groups = rows_by_group(rows);
  const SharedGroups shared(groups);
  const TunedTable table(entries);
  for (const Rows& group : groups) {
    if (group.size() < 2 || shared.hold(*group.front())) continue;
    compress_group(group, GroupAnswers(table, group, entries.data()), entries.data(), kept);
  }
  std::erase_if(kept, [](const RangeRow& row) { return row.merged == 0; });
  return kept;
}

namespace {

/// True if another row of the group may answer in the row's place: the cheap part of the proof.
bool may_be_redundant(const Rows& group, const TunedEntry& row) {
  if (!can_merge(row) || row.m_from) return false;
  const std::int64_t m = row.problem.m;
  const bool pads = traits(row.problem.operation).padding == Padding::two_levels;
  const std::int64_t fine = pads ? padded_m(m, row.problem.n, 0) : m;
  const std::int64_t coarse = pads ? padded_m(m, row.problem.n, 1) : m;
  // Without the row, another of its key would be chosen.
  const bool has_rival = std::ranges::any_of(group, [&](const TunedEntry* other) {
    return other != &row && other->problem.m == m && may_be_chosen(*other);
  });
  if (has_rival) return false;
  return std::ranges::any_of(group, [&](const TunedEntry* other) {
    const std::int64_t of = other->problem.m;
    const bool in_range = other->m_from && *other->m_from <= m && of > m;
    return of != m && (in_range || of == fine || of == coarse) && same_winner(*other, row);
  });
}

/// Look-ups in a table of all rows, as if some were gone.
class Removal {
 public:
  explicit Removal(std::span<const Rows> groups) : table_(copies(groups)) {}
  /// True if no look-up changes without `row` (which then counts as gone); `answers` is the row in its place.
  /// `changes`: answer_changes() of its group.
  bool remove(const std::vector<std::int64_t>& changes, const TunedEntry& row, const TunedEntry*& answers) {
    const TunedEntry* copy = &table_.entries()[numbers_.at(&row)];
    LookupKey key = lookup_key_of(row);
    answers = nullptr;
    // Its own M first: there most rows are needed.
    if (!is_answered_alike(key, row.problem.m, copy, &answers) || answers == nullptr) return false;
    for (const RowSpan& span : answered_spans(row)) {
      for (auto m = std::lower_bound(changes.begin(), changes.end(), span.m_from);
           m != changes.end() && *m <= span.m; ++m) {
        if (!is_answered_alike(key, *m, copy, nullptr)) return false;
      }
    }
    gone_.insert(copy);
    return true;
  }

 private:
  std::vector<TunedEntry> copies(std::span<const Rows> groups) {
    std::vector<TunedEntry> entries;
    for (const Rows& group : groups) {
      for (const TunedEntry* row : group) {
        numbers_.emplace(row, entries.size());
        originals_.push_back(row);
        entries.push_back(*row);
      }
    }
    return entries;
  }
  /// A look-up lists its answers best first, so without a row that is no range the next one answers.
  bool is_answered_alike(LookupKey& key, std::int64_t m, const TunedEntry* without,
                         const TunedEntry** answers) const {
    key.problem.m = m;
    const TunedEntry* before = nullptr;
    const TunedEntry* after = nullptr;
    for (const LookupHit& hit : table_.lookup(key)) {
      if (gone_.count(hit.entry) != 0) continue;
      if (before == nullptr) before = hit.entry;
      if (after == nullptr && hit.entry != without) after = hit.entry;
    }
    if (before != without) return true;
    if (after == nullptr || !same_winner(*before, *after)) return false;
    if (answers != nullptr) *answers = originals_[static_cast<std::size_t>(after - table_.entries().data())];
    return true;
  }

  std::unordered_map<const TunedEntry*, std::size_t> numbers_;
  Rows originals_;
  TunedTable table_;
  std::unordered_set<const TunedEntry*> gone_;
};

}  // namespace

std::vector<RedundantRow> redundant_rows(std::span<const Rows> groups) {
  std::vector<RedundantRow> redundant;
  const SharedGroups shared(groups);
  std::vector<Rows> candidates;
  for (const Rows& group : groups) {
    const bool any =
        std::ranges::any_of(group, [&](const TunedEntry* row) { return may_be_redundant(group, *row); });
    if (any && !shared.hold(*group.front())) candidates.push_back(group);
  }
  Removal removal(candidates);
  for (const Rows& group : candidates) {
    const std::vector<std::int64_t> changes = answer_changes(group);
    // One row after the other, each against those that are left: so all may go together.
    for (const TunedEntry* row : chosen_rows(group)) {
      const TunedEntry* answers = nullptr;
      if (may_be_redundant(group, *row) && removal.remove(changes, *row, answers)) {
        redundant.push_back({row, answers});
      }
    }
  }
  return redundant;
}

namespace {

/// True if the answer is a range's at an M above one of the rows that it stands for.
bool is_between_merged_rows(const Rows& group, const LookupHit& answer, std::int64_t m) {
  if (answer.match != Match::range) return false;
  return std::ranges::any_of(group, [&](const TunedEntry* row) {
    return row->problem.m < m && row->problem.m >= answer.entry->m_from && same_winner(*row, *answer.entry);
  });
}

}  // namespace

Status check_same_winners(std::vector<TunedEntry> before, std::vector<TunedEntry> after) {
  const TunedTable old_table(std::move(before));
  const TunedTable new_table(std::move(after));
  Rows rows = rows_of(old_table.entries());
  for (const TunedEntry& row : new_table.entries()) rows.push_back(&row);
  for (const Rows& group : rows_by_group(rows)) {
    LookupKey key = lookup_key_of(*group.front());
    for (const std::int64_t m : answer_changes(group)) {
      key.problem.m = m;
      const auto expected = old_table.lookup(key);
      const auto answered = new_table.lookup(key);
      const bool same = expected.empty() == answered.empty() &&
                        (expected.empty() || same_winner(*expected.front().entry, *answered.front().entry));
      const bool tuned = !expected.empty() && expected.front().match <= Match::range;
      if (same || (!tuned && !answered.empty() && is_between_merged_rows(group, answered.front(), m)))
        continue;
      const auto name = [](const LookupHits& hits) {
        return hits.empty() ? std::string("no row") : hits.front().entry->kernel_name;
      };
      return Status::internal("{}, M = {}: answered by {}, expected {}", describe_row(*group.front()), m,
                              name(answered), name(expected));
    }
  }
  return {};
}

}  // namespace gemmtune
