#include "formats/aiter/merge_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "formats/aiter/tuned_row.h"
#include "formats/csv/csv.h"
#include "tuned/checks.h"
#include "tuned/choice.h"
#include "tuned/layouts.h"
#include "tuned/range_rows.h"

namespace gemmtune {
namespace {

/// A column of the merged table.
struct MergedColumn {
  std::string name;
  std::optional<Column> known;

  bool is(const Columns& columns, std::size_t position) const {
    const Column* column = columns.known_at(position);
    if (known || column != nullptr) return known && column != nullptr && *column == *known;
    return to_lower(columns.name_at(position)) == to_lower(name);
  }
};

bool is_own(Column column) {
  const auto own = own_columns();
  return std::ranges::any_of(own, [&](const SchemaColumn& one) { return one.column == column; });
}

/// The union of the files' columns.
class MergedHeader {
 public:
  explicit MergedHeader(std::span<TunedFile> files) {
    for (const TunedFile& file : files) {
      if (columns_.empty()) line_end_ = end_of(file);
      const bool first = columns_.empty();
      for (std::size_t position = 0; position < file.columns.width(); ++position) add(file, position, first);
    }
  }
  const std::vector<MergedColumn>& columns() const { return columns_; }
  const std::string& line_end() const { return line_end_; }
  bool has(Column column) const { return place_of(column) != columns_.end(); }
  /// Requires has(column).
  std::size_t position(Column column) const {
    return static_cast<std::size_t>(place_of(column) - columns_.begin());
  }
  void add_gfx() { columns_.insert(columns_.begin(), MergedColumn{"gfx", Column::gfx}); }
  void remove_gfx() {
    std::erase_if(columns_, [](const MergedColumn& column) { return column.known == Column::gfx; });
  }
  /// The same columns in the same order: a row's bytes fit as they are.
  bool equals(const Columns& columns) const {
    if (columns.width() != columns_.size()) return false;
    for (std::size_t position = 0; position < columns_.size(); ++position) {
      if (!columns_[position].is(columns, position)) return false;
    }
    return true;
  }
  std::string text() const {
    return joined(columns_, ",", [](const MergedColumn& column) { return csv_cell(column.name); }) +
           line_end_;
  }

 private:
  static std::string end_of(const TunedFile& file) {
    if (file.header == file.document.lines.size()) return "\n";
    return file.document.lines[file.header].end == "\r\n" ? "\r\n" : "\n";
  }
  std::vector<MergedColumn>::const_iterator place_of(Column column) const {
    return std::ranges::find_if(columns_, [&](const MergedColumn& one) { return one.known == column; });
  }
  void add(const TunedFile& file, std::size_t position, bool first) {
    const bool present = std::ranges::any_of(
        columns_, [&](const MergedColumn& one) { return one.is(file.columns, position); });
    if (present && !first) return;
    const Column* known = file.columns.known_at(position);
    MergedColumn column{file.columns.name_at(position),
                        known != nullptr ? std::optional(*known) : std::nullopt};
    auto place = columns_.cend();
    if (!first && column.known == Column::gfx) {
      place = columns_.cbegin();
    } else if (!first && !(column.known && is_own(*column.known))) {
      place = place_of(Column::tflops);
    }
    columns_.insert(place, std::move(column));
  }

  std::vector<MergedColumn> columns_;
  std::string line_end_ = "\n";
};

/// Where each column of the merged table stands in one file; npos: nowhere.
class RowWriter {
 public:
  static constexpr std::size_t npos = static_cast<std::size_t>(-1);

  RowWriter(const MergedHeader& header, const TunedFile& file)
      : header_(header), file_(file), same_header_(header.equals(file.columns)) {
    for (const MergedColumn& column : header.columns()) {
      std::size_t position = 0;
      while (position < file.columns.width() && !column.is(file.columns, position)) ++position;
      positions_.push_back(position < file.columns.width() ? position : npos);
    }
  }
  /// `row`: one of the file's, its gfx filled in.
  std::string text(const TunedEntry& row, bool gfx_filled) const {
    const std::string_view line = file_.document.lines[row.line - 1].text;
    if (same_header_ && !gfx_filled) return std::string(line);
    const RawRow cells(line);
    std::string text;
    for (std::size_t index = 0; index < positions_.size(); ++index) {
      if (index != 0) text += ',';
      const auto& known = header_.columns()[index].known;
      if (known == Column::gfx && gfx_filled) {
        text += row.gfx;
      } else if (positions_[index] != npos) {
        text += cells[positions_[index]];
      } else if (known) {
        text += csv_cell(cell_text(row, *known).value_or(std::string()));
      }
    }
    return text;
  }

 private:
  const MergedHeader& header_;
  const TunedFile& file_;
  bool same_header_;
  std::vector<std::size_t> positions_;
};

class Merge {
 public:
  explicit Merge(std::span<TunedFile> files) : files_(files), header_(files) {
    std::size_t first = 0;
    for (std::uint32_t source = 0; source < files.size(); ++source) {
      firsts_.push_back(first);
      first += files[source].entries.size();
      for (TunedEntry& entry : files[source].entries) {
        entry.source = source;
        kept_.push_back(&entry);
      }
    }
  }
  Result<MergedTable> run(const MergeOptions& options);

 private:
  Status check_tables() const;
  Status settle_gfx(const MergeOptions& options);
  void fill_gfx();
  void drop_layouts();
  void drop_duplicates();
  void put_losers_behind(const std::vector<Duplicate>& losers);
  void part_ranges();
  void write();
  std::string row_text(const RowWriter& writer, const TunedEntry& row) const;
  std::string place(const TunedEntry& row) const {
    return fmt::format("{}:{}", files_[row.source].path, row.line);
  }

  /// The place of a row among those of all files.
  std::size_t ordinal(const TunedEntry* row) const {
    return firsts_[row->source] + static_cast<std::size_t>(row - files_[row->source].entries.data());
  }

  std::span<TunedFile> files_;
  MergedHeader header_;
  std::vector<std::size_t> firsts_;  // ordinals of the files' first rows
  std::vector<bool> gfx_filled_;     // by ordinal
  Rows kept_;
  std::unordered_map<const TunedEntry*, std::int64_t> starts_;  // m_from of ranges that were cut
  MergedTable merged_;
};

Status Merge::check_tables() const {
  for (const TunedFile& file : files_) {
    if (file.schema().kind == files_.front().schema().kind) continue;
    return Status::invalid("{}: a table of {}, but {} is one of {}; expected one table", file.path,
                           file.schema().name, files_.front().path, files_.front().schema().name);
  }
  return {};
}

Status Merge::settle_gfx(const MergeOptions& options) {
  if (options.schema == CsvSchema::aiter && !header_.has(Column::gfx)) header_.add_gfx();
  if (options.schema != CsvSchema::seed) return {};
  for (const TunedEntry* row : kept_) {
    if (row->gfx.empty() || amd_architecture(row->gfx)) continue;
    return Status::invalid(
        "{}: a row of {}, which needs the column gfx; a table without it speaks of AMD devices", place(*row),
        row->gfx);
  }
  if (const Status status = check_without_gfx(kept_); !status.ok()) {
    return Status::invalid("--csv-schema seed: {}", status.message());
  }
  header_.remove_gfx();
  return {};
}

void Merge::fill_gfx() {
  gfx_filled_.assign(kept_.size(), false);
  if (!header_.has(Column::gfx)) return;
  for (TunedFile& file : files_) {
    // An empty cell of the column stays: look-up takes its row for every architecture of AMD's.
    if (file.has_gfx) continue;
    for (TunedEntry& entry : file.entries) {
      entry.gfx = gfx_of_cu_num(entry.cu_num);
      gfx_filled_[ordinal(&entry)] = !entry.gfx.empty();
      if (entry.gfx.empty()) {
        merged_.notes.push_back(
            fmt::format("{}: no gfx, and cu_num {} tells none", place(entry), entry.cu_num));
      }
    }
  }
}

void Merge::drop_layouts() {
  std::unordered_set<const TunedEntry*> dropped;
  for (const LayoutChoice& choice : choose_layouts(kept_)) {
    for (const TunedEntry* row : choice.dropped) {
      dropped.insert(row);
      const std::string why = fmt::format("its group keeps the weight as {}", to_string(choice.kept));
      merged_.notes.push_back(fmt::format("{}: left out: {}", place(*row), why));
      merged_.left_out.push_back({LeftOutKind::row, {}, row->line, 1, why, files_[row->source].path});
    }
  }
  std::erase_if(kept_, [&](const TunedEntry* row) { return dropped.count(row) != 0; });
}

void Merge::drop_duplicates() {
  const std::vector<Rows> groups = rows_by_group(kept_, TagRule::merge);
  // The winner stands where its key came first; of a mixture where it is, because a request of another activation takes the
  // first row of all.
  std::unordered_map<const TunedEntry*, const TunedEntry*> stands_at;
  std::unordered_set<const TunedEntry*> gone;
  for (const auto& [loser, winner] : duplicate_rows(groups)) {
    ++merged_.duplicates;
    gone.insert(loser);
    auto& place_of_winner = stands_at.try_emplace(winner, winner).first->second;
    if (ordinal(loser) < ordinal(place_of_winner) && !is_mixture(winner->problem)) place_of_winner = loser;
    const std::string_view why = why_never_chosen(*loser);
    merged_.notes.push_back(fmt::format(
        "{}: left out: {}{}, but {} for the same key at {}", place(*loser), row_time_text(loser->us),
        why.empty() ? "" : fmt::format(" ({})", why), row_time_text(winner->us), place(*winner)));
  }
  std::erase_if(kept_, [&](const TunedEntry* row) { return gone.count(row) != 0; });
  const auto position = [&](const TunedEntry* row) {
    const auto at = stands_at.find(row);
    return at == stands_at.end() ? row : at->second;
  };
  std::ranges::sort(kept_, [&](const TunedEntry* a, const TunedEntry* b) {
    return ordinal(position(a)) < ordinal(position(b));
  });
}

/// `losers`: rows that look-up does not choose, each with the one that it does. A row of another tag stays, but may not come first now
/// that the rows before it are gone.
void Merge::put_losers_behind(const std::vector<Duplicate>& losers) {
  std::unordered_map<const TunedEntry*, std::size_t> places;
  for (std::size_t place = 0; place < kept_.size(); ++place) places.emplace(kept_[place], place);
  std::unordered_map<const TunedEntry*, std::size_t> behind;
  for (const auto& [loser, winner] : losers) {
    const auto from = places.find(loser);
    const auto to = places.find(winner);
    if (from == places.end() || to == places.end() || from->second > to->second) continue;
    behind.emplace(loser, to->second);
  }
  if (behind.empty()) return;
  const auto key_of = [&](const TunedEntry* row) {
    const auto moved = behind.find(row);
    return moved == behind.end() ? std::pair(places.at(row), 0) : std::pair(moved->second, 1);
  };
  std::ranges::stable_sort(kept_,
                           [&](const TunedEntry* a, const TunedEntry* b) { return key_of(a) < key_of(b); });
}

/// Ranges of several files may overlap: each keeps the M that it answers. Rows that look-up does not choose answer nothing.
void Merge::part_ranges() {
  if (!header_.has(Column::m_from)) return;
  for (const Rows& group : rows_by_group(kept_)) {
    Rows rows;
    std::vector<RowSpan> spans;
    for (const TunedEntry* row : chosen_rows(group)) {
      if (!row->m_from || !may_be_chosen(*row)) continue;
      rows.push_back(row);
      spans.push_back({*row->m_from, row->problem.m});
    }
    const auto starts = disjoint_starts(spans);
    for (std::size_t index = 0; index < rows.size(); ++index) {
      if (starts[index] == spans[index].m_from) continue;
      starts_[rows[index]] = starts[index];
      merged_.notes.push_back(fmt::format("{}: its range begins at M = {}, not {}: another one answers below",
                                          place(*rows[index]), starts[index], spans[index].m_from));
    }
  }
}

std::string Merge::row_text(const RowWriter& writer, const TunedEntry& row) const {
  const std::string text = writer.text(row, gfx_filled_[ordinal(&row)]);
  const auto start = starts_.find(&row);
  if (start == starts_.end()) return text;
  RawRow cells(text);
  cells.set(header_.position(Column::m_from), std::to_string(start->second));
  return cells.text();
}

void Merge::write() {
  std::vector<RowWriter> writers;
  for (const TunedFile& file : files_) writers.emplace_back(header_, file);
  merged_.text = header_.text();
  for (const TunedEntry* row : kept_) {
    merged_.text += row_text(writers[row->source], *row) + header_.line_end();
    const std::string_view why = why_never_chosen(*row);
    if (why.empty() || !files_[row->source].columns.has(Column::us)) continue;
    merged_.notes.push_back(
        fmt::format("{}: kept, but never chosen ({}): its key has no other row", place(*row), why));
  }
  merged_.rows = kept_.size();
}

Result<MergedTable> Merge::run(const MergeOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_tables());
  GEMMTUNE_RETURN_IF_ERROR(settle_gfx(options));
  fill_gfx();
  if (header_.columns().empty()) {
    merged_.text =
        write_tuned_csv(files_.front().schema().operation, {}, options.schema.value_or(CsvSchema::aiter));
    return std::move(merged_);
  }
  drop_layouts();
  const bool has_tags = traits(files_.front().schema().operation.operation).mixture;
  const auto losers = has_tags ? duplicate_rows(rows_by_group(kept_)) : std::vector<Duplicate>();
  drop_duplicates();
  put_losers_behind(losers);
  part_ranges();
  write();
  return std::move(merged_);
}

}  // namespace

Result<MergedTable> merge_tables(std::span<TunedFile> files, const MergeOptions& options) {
  if (files.empty()) return MergedTable{};
  return Merge(files).run(options);
}

}  // namespace gemmtune
