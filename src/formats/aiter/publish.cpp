// Splices rows into a tuned file that other tools and other processes write too.

#include <algorithm>
#include <filesystem>
#include <set>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/log.h"
#include "formats/aiter/environment_json.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/aiter/tuned_row.h"
#include "formats/csv/csv.h"
#include "tuned/choice.h"
#include "tuned/range_rows.h"

namespace gemmtune {
namespace {

constexpr std::size_t no_line = static_cast<std::size_t>(-1);

/// One line of the file to be written.
struct OutputLine {
  std::string text;
  std::string end;
  bool removed = false;
  bool is_row = false;  // has a key
};

/// An entry that needs a line: a new one (no_line), or an existing one that says something else.
struct Change {
  const TunedEntry* entry = nullptr;
  std::size_t line = no_line;
};

Status check_writable(const TunedEntry& entry) {
  if (!entry.other_key.empty())
    return Status::unsupported("{}: of a table that is only read", print(entry.problem));
  return check_expressible(entry.problem);
}

/// The file's lines with ours spliced in.
class Splice {
 public:
  Splice(const CsvDocument& document, const PublishOptions& options)
      : document_(document), options_(options) {}
  Result<std::string> run(const std::vector<TunedEntry>& entries);

 private:
  Status read(const std::vector<TunedEntry>& entries);
  void keep_latest_ranges(const std::vector<TunedEntry>& entries);
  void read_keys();
  void start_new(OperationForm operation);
  Status check_device(const TunedEntry& entry) const;
  void find_changes(const std::vector<TunedEntry>& entries);
  void update_ranges();
  void update_range_line(std::size_t line, const TunedEntry& row, const RangeUpdate& update);
  /// The key without M.
  std::string group_key(TunedEntry entry) const {
    entry.problem.m = 0;
    return row_key(entry, columns_.schema(), has_gfx_);
  }
  bool line_says(std::size_t line, const TunedEntry& entry, bool& old_may_be_chosen) const;
  void extend_header();
  bool wants(Column column) const;
  void write_changes();
  std::string row_text(const TunedEntry& entry, std::string_view old_text) const;
  void sort_rows();

  const CsvDocument& document_;
  const PublishOptions& options_;
  std::vector<TunedEntry> entries_;
  std::vector<OutputLine> lines_;
  std::size_t header_ = 0;
  Columns columns_;
  bool has_gfx_ = true;
  std::string line_end_ = "\n";
  // Of the published keys only, in file order.
  std::unordered_map<std::string, std::vector<std::size_t>> lines_of_key_;
  std::vector<Change> changes_;
};

Status Splice::read(const std::vector<TunedEntry>& entries) {
  const OperationForm operation = form_of(entries.front().problem);
  for (const TunedEntry& entry : entries) {
    if (form_of(entry.problem) == operation) continue;
    return Status::invalid("{}: rows of {} and of {}, expected those of one operation", document_.source,
                           to_string(operation), to_string(form_of(entry.problem)));
  }
  GEMMTUNE_TRY(const auto header, read_tuned_header(document_, operation));
  header_ = header.index;
  columns_ = header.columns;
  if (!columns_.schema().dispatched) {
    return Status::unsupported("{}: is a table of {}, which is only read", document_.source,
                               columns_.schema().name);
  }
  for (const CsvLine& line : document_.lines) {
    lines_.push_back({std::string(line.text), std::string(line.end)});
  }
  if (header_ == lines_.size()) {
    start_new(operation);
    return {};
  }
  has_gfx_ = columns_.has(Column::gfx);
  if (!columns_.has(Column::cu_num)) {
    return Status::invalid("{}: no column cu_num, so rows of this device could not be told from others",
                           document_.source);
  }
  if (lines_[header_].end == "\r\n") line_end_ = "\r\n";
  for (const TunedEntry& entry : entries) lines_of_key_[row_key(entry, columns_.schema(), has_gfx_)];
  read_keys();
  return {};
}

void Splice::read_keys() {
  EntryReader reader(columns_);
  CsvCells cells;
  TunedEntry row;
  for (std::size_t index = header_ + 1; index < lines_.size(); ++index) {
    OutputLine& line = lines_[index];
    if (is_blank_or_comment(line.text) || !cells.split(line.text) || cells.size() > columns_.width())
      continue;
    line.is_row = reader.read_key(cells, index + 1, row, nullptr);
    if (!line.is_row) continue;
    const auto published = lines_of_key_.find(row_key(row, columns_.schema(), has_gfx_));
    if (published != lines_of_key_.end()) published->second.push_back(index);
  }
}

/// A header of our own behind whatever comments there are.
void Splice::start_new(OperationForm operation) {
  if (!lines_.empty() && lines_.back().end.empty()) lines_.back().end = line_end_;
  std::string text = write_tuned_csv(operation, {}, options_.schema);
  text.pop_back();
  CsvCells cells;
  cells.split(text);
  columns_ = Columns(cells, schema_of(operation));
  has_gfx_ = columns_.has(Column::gfx);
  lines_.push_back({std::move(text), line_end_});
}

Status Splice::check_device(const TunedEntry& entry) const {
  if (has_gfx_ || entry.gfx.empty() || amd_architecture(entry.gfx)) return {};
  return no_gfx_column(document_.source, entry.gfx);
}

bool Splice::line_says(std::size_t line, const TunedEntry& entry, bool& old_may_be_chosen) const {
  CsvCells cells;
  cells.split(lines_[line].text);
  TunedEntry old_row;
  EntryReader reader(columns_);
  old_may_be_chosen = false;
  if (!reader.read_key(cells, line + 1, old_row, nullptr)) return false;
  if (!reader.read_values(cells, line + 1, old_row, nullptr)) return false;
  old_may_be_chosen = may_be_chosen(old_row);
  return same_row(old_row, entry);
}

void Splice::find_changes(const std::vector<TunedEntry>& entries) {
  std::unordered_map<std::string, std::size_t> last;
  for (std::size_t index = 0; index < entries.size(); ++index)
    last[row_key(entries[index], columns_.schema(), has_gfx_)] = index;
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& entry = entries[index];
    const std::string key = row_key(entry, columns_.schema(), has_gfx_);
    if (last[key] != index) continue;
    const auto known = lines_of_key_.find(key);
    if (known == lines_of_key_.end() || known->second.empty()) {
      changes_.push_back({&entry, no_line});
      continue;
    }
    const std::size_t line = known->second.front();
    bool old_may_be_chosen = false;
    const bool same = line_says(line, entry, old_may_be_chosen);
    if (!same && old_may_be_chosen && !may_be_chosen(entry)) {
      log(LogLevel::warning, "{}:{}: keeps its row; the new one, {} us, is never chosen: {}",
          document_.source, line + 1, entry.us, why_never_chosen(entry));
      continue;
    }
    if (!same) changes_.push_back({&entry, line});
    for (std::size_t further = 1; further < known->second.size(); ++further) {
      lines_[known->second[further]].removed = true;
    }
  }
}

/// Of ranges that are published together the later ones count, as they would one after another.
void Splice::keep_latest_ranges(const std::vector<TunedEntry>& entries) {
  std::unordered_map<std::string, std::vector<RowSpan>> later;
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    std::vector<RowSpan>& spans = later[group_key(*entry)];
    const std::int64_t first = entry->m_from.value_or(0);
    const RangeUpdate update = update_range({first, entry->problem.m}, spans);
    if (first != 0 && update.removed) continue;
    entries_.push_back(*entry);
    if (first == 0) continue;
    entries_.back().m_from = update.m_from;
    spans.push_back({update.m_from, entry->problem.m});
  }
  std::ranges::reverse(entries_);
}

/// Rows with m_from of the groups into which new ones come: M that the new ones answer are theirs.
void Splice::update_ranges() {
  std::unordered_map<std::string, std::vector<RowSpan>> fresh;
  std::unordered_set<std::string> keys;
  for (const TunedEntry& entry : entries_) {
    keys.insert(row_key(entry, columns_.schema(), has_gfx_));
    if (entry.m_from) fresh[group_key(entry)].push_back({*entry.m_from, entry.problem.m});
  }
  if (fresh.empty() || !columns_.has(Column::m_from)) return;
  EntryReader reader(columns_);
  CsvCells cells;
  TunedEntry row;
  for (std::size_t index = header_ + 1; index < lines_.size(); ++index) {
    if (!lines_[index].is_row || lines_[index].removed) continue;
    cells.split(lines_[index].text);
    if (!reader.read_key(cells, index + 1, row, nullptr)) continue;
    if (!reader.read_values(cells, index + 1, row, nullptr) || !row.m_from) continue;
    const auto group = fresh.find(group_key(row));
    if (group == fresh.end()) continue;
    const RangeUpdate update = update_range({*row.m_from, row.problem.m}, group->second);
    for (const RowSpan& lost : update.lost) {
      log(LogLevel::warning,
          "{}:{}: M = {} to {} have no range any more: new rows replace the one they were in",
          document_.source, index + 1, lost.m_from, lost.m);
    }
    // Where the key is the same, the new row stands in its place.
    if (!keys.contains(row_key(row, columns_.schema(), has_gfx_))) update_range_line(index, row, update);
  }
}

void Splice::update_range_line(std::size_t line, const TunedEntry& row, const RangeUpdate& update) {
  if (update.removed) {
    lines_[line].removed = true;
  } else if (update.m_from != *row.m_from) {
    RawRow cells(lines_[line].text);
    std::size_t position = 0;
    while (columns_.known_at(position) == nullptr || *columns_.known_at(position) != Column::m_from)
      ++position;
    cells.set(position, std::to_string(update.m_from));
    lines_[line].text = cells.text();
  }
}

/// Something stands for the column in a row to be written, other than what a missing cell would mean.
bool Splice::wants(Column column) const {
  return std::ranges::any_of(changes_, [&](const Change& change) {
    const TunedEntry& entry = *change.entry;
    switch (column) {
      case Column::gfx:
      case Column::tflops:
      case Column::bw:
        return false;
      case Column::outdtype:
        return entry.problem.y_type != entry.problem.x_type;
      default:
        break;
    }
    const std::string text = cell_text(entry, column).value_or(std::string());
    return !text.empty() && text != "False" && text != "0" && text != "0.0%";
  });
}

void Splice::extend_header() {
  std::vector<Column> added;
  const auto lacks_wanted = [&](const SchemaColumn& column) {
    return !columns_.has(column.column) && wants(column.column);
  };
  for (const SchemaColumn& column : columns_.schema().columns) {
    if (lacks_wanted(column)) added.push_back(column.column);
  }
  const auto own = own_columns();
  const bool own_wanted = std::ranges::any_of(own, lacks_wanted);
  for (const SchemaColumn& column : own) {
    const bool is_wanted = is_rare(column.column) ? wants(column.column) : own_wanted;
    if (is_wanted && !columns_.has(column.column)) added.push_back(column.column);
  }
  for (const Column column : added) {
    columns_.append(column);
    lines_[header_].text += "," + std::string(columns_.name(column));
  }
}

std::string Splice::row_text(const TunedEntry& entry, std::string_view old_text) const {
  CsvCells old_cells;
  old_cells.split(old_text);
  std::string text;
  for (std::size_t position = 0; position < columns_.width(); ++position) {
    if (position != 0) text += ',';
    const Column* column = columns_.known_at(position);
    const auto ours = column != nullptr ? cell_text(entry, *column) : std::nullopt;
    text += csv_cell(ours ? std::string_view(*ours) : old_cells[position]);
  }
  return text;
}

void Splice::write_changes() {
  for (const Change& change : changes_) {
    if (change.line != no_line) {
      lines_[change.line].text = row_text(*change.entry, lines_[change.line].text);
      continue;
    }
    if (lines_.back().end.empty()) lines_.back().end = line_end_;
    lines_.push_back({row_text(*change.entry, {}), line_end_, false, true});
  }
}

/// Rows with a key change places among themselves; comments, blank lines and unreadable rows stay where they
/// are.
void Splice::sort_rows() {
  struct Row {
    TunedEntry key;
    std::string text;
  };
  std::vector<std::size_t> places;
  std::vector<Row> rows;
  EntryReader reader(columns_);
  CsvCells cells;
  for (std::size_t index = 0; index < lines_.size(); ++index) {
    OutputLine& line = lines_[index];
    if (!line.is_row || line.removed) continue;
    places.push_back(index);
    Row& row = rows.emplace_back();
    cells.split(line.text);
    reader.read_key(cells, index + 1, row.key, nullptr);
    row.text = std::move(line.text);
  }
  std::ranges::stable_sort(rows, [](const Row& a, const Row& b) { return sorts_before(a.key, b.key); });
  for (std::size_t index = 0; index < places.size(); ++index) {
    lines_[places[index]].text = std::move(rows[index].text);
  }
}

Result<std::string> Splice::run(const std::vector<TunedEntry>& entries) {
  GEMMTUNE_RETURN_IF_ERROR(read(entries));
  for (const TunedEntry& entry : entries) GEMMTUNE_RETURN_IF_ERROR(check_device(entry));
  keep_latest_ranges(entries);
  update_ranges();
  find_changes(entries_);
  extend_header();
  write_changes();
  if (options_.sort) sort_rows();
  std::string content;
  for (const OutputLine& line : lines_) {
    if (!line.removed) content += line.text + line.end;
  }
  return content;
}

Status merge_environment(const std::string& target, const std::vector<TunedEntry>& entries,
                         const std::string& environment_json) {
  if (environment_json.empty()) return {};
  std::set<std::string> hashes;
  for (const TunedEntry& entry : entries) {
    if (!entry.env.empty()) hashes.insert(entry.env);
  }
  GEMMTUNE_TRY(auto objects, environments_of(environment_json, hashes));
  for (auto& [hash, object] : objects) {
    GEMMTUNE_TRY(object, with_operation(object, form_of(entries.front().problem)));
  }
  return objects.empty() ? Status() : merge_environment_json(target, objects);
}

}  // namespace

Status check_expressible(const Problem& problem) {
  if (!all_row_major(problem)) {
    return Status::unsupported(
        "{}: AITER's columns hold row-major operands only; tune_gemm's results (.yaml) hold the orders",
        print(problem));
  }
  if (problem.alignment <= 16) return check(problem);
  return Status::unsupported("{}: AITER's columns hold operands aligned to 16 bytes only", print(problem));
}

Status publish(const std::string& path, const std::vector<TunedEntry>& entries,
               const PublishOptions& options) {
  if (entries.empty()) return {};
  for (const TunedEntry& entry : entries) GEMMTUNE_RETURN_IF_ERROR(check_writable(entry));
  const std::string target = resolve_links(path);
  std::error_code ignored;
  if (std::filesystem::is_directory(target, ignored)) {
    return Status::invalid("{}: is a folder, expected a file", path);
  }
  GEMMTUNE_TRY(const auto lock, FileLock::acquire(target + ".lock"));
  auto content = read_file(target);
  const bool is_new = content.code() == StatusCode::not_found;
  if (!content.ok() && !is_new) return content.status();
  const std::string old_content = is_new ? std::string() : std::move(*content);
  GEMMTUNE_TRY(const auto document, parse_csv(target, old_content));
  GEMMTUNE_TRY(const auto new_content, Splice(document, options).run(entries));
  // First, so that no row ever names an environment that cannot be looked up.
  GEMMTUNE_RETURN_IF_ERROR(merge_environment(target, entries, options.environment_json));
  if (!is_new && new_content == old_content) return {};
  return write_file_atomically(target, new_content);
}

}  // namespace gemmtune
