#include "formats/aiter/table_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <tuple>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "candidates/config.h"
#include "formats/aiter/problem_cells.h"
#include "formats/aiter/rates.h"
#include "formats/aiter/tuned_row.h"
#include "formats/csv/csv.h"
#include "tuned/compress.h"

namespace gemmtune {
namespace {

/// The columns of a row whose stored rates are not what its own time and shape give, a text that is no number included.
/// Requires a valid time. Bytes need the types.
std::vector<Column> wrong_rates(const TunedEntry& row, const CsvCells& cells, const Columns& columns) {
  const std::string_view tflops_cell = columns.cell(cells, Column::tflops);
  const std::string_view bandwidth_cell = columns.cell(cells, Column::bw);
  const auto tflops = parse_number(tflops_cell);
  const auto bandwidth = parse_number(bandwidth_cell);
  // Grouped MoE tables hold zeros for rates that nobody computed; mxscale tables round rates to one decimal and
  // most times to two, after the rates were computed.
  const TableKind kind = columns.schema().kind;
  if (kind == TableKind::grouped_moe && tflops.value_or(0) == 0 && bandwidth.value_or(0) == 0) return {};
  std::vector<Column> wrong;
  const auto one_decimal = [&](double stored, double expected) {
    const double of_time = expected * 0.0051 / row.us;
    return kind == TableKind::batched_mxscale && std::abs(stored - expected) <= 0.056 + of_time;
  };
  const bool is_right_tflops = tflops && (agrees_with_tflops(row.problem, row.us, *tflops) ||
                                          one_decimal(*tflops, tflops_column(row.problem, row.us)));
  const bool is_right_bandwidth =
      bandwidth && (agrees_with_bandwidth(row.problem, row.us, *bandwidth) ||
                    one_decimal(*bandwidth, bandwidth_column(row.problem, row.us)));
  if (!is_missing(tflops_cell) && !is_right_tflops) wrong.push_back(Column::tflops);
  if (row.unknown_types.empty() && !is_missing(bandwidth_cell) && !is_right_bandwidth)
    wrong.push_back(Column::bw);
  return wrong;
}

std::string wrong_rate_text(const TunedEntry& row, const CsvCells& cells, const Columns& columns) {
  return joined(wrong_rates(row, cells, columns), ", ", [&](const Column column) {
    return fmt::format("{} {}, expected {}", columns.name(column), columns.cell(cells, column),
                       cell_text(row, column).value_or(std::string()));
  });
}

/// `malformed`: lines whose cells may be shifted.
void check_stored_rates(const TunedFile& file, std::uint32_t source,
                        const std::unordered_set<std::size_t>& malformed, std::vector<Finding>& findings) {
  if (!file.columns.has(Column::tflops) && !file.columns.has(Column::bw)) return;
  CsvCells cells;
  for (const TunedEntry& row : file.entries) {
    if (!valid_time(row.us) || malformed.count(row.line) != 0 ||
        !cells.split(file.document.lines[row.line - 1].text))
      continue;
    std::string text = wrong_rate_text(row, cells, file.columns);
    if (!text.empty()) findings.push_back({FindingKind::wrong_rate, source, row.line, std::move(text)});
  }
}

/// The libtype of which a kernel's name is; empty where the name does not say.
std::string libtype_of_kernel_name(std::string_view kernel_name) {
  struct Prefix {
    std::string_view text;
    std::string_view libtype;
  };
  // As in every table that AITER ships; "_ZN5aiter" begins the symbols of its assembler kernels, "Cijk_" the
  // names of Tensile, which hipBLASLt runs.
  static constexpr std::array<Prefix, 4> prefixes{
      {{"_ZN5aiter", "asm"}, {"Cijk_", "hipblaslt"}, {"flydsl_", "flydsl"}, {"opus_", "opus"}}};
  for (const Prefix& prefix : prefixes) {
    if (kernel_name.starts_with(prefix.text)) return std::string(prefix.libtype);
  }
  return family_of_kernel_name(kernel_name).value_or(std::string());
}

void check_libtypes(const TunedFile& file, std::uint32_t source, std::vector<Finding>& findings) {
  for (const TunedEntry& row : file.entries) {
    if (row.libtype.empty()) continue;
    const std::string libtype = libtype_of_kernel_name(row.kernel_name);
    if (libtype.empty() || libtype == row.libtype) continue;
    findings.push_back({FindingKind::wrong_libtype, source, row.line,
                        fmt::format("libtype '{}', but '{}' is the name of a kernel of {}", row.libtype,
                                    row.kernel_name, libtype)});
  }
}

/// The tables whose rows hold no time at all.
bool lacks_times(const TunedFile& file) { return !file.columns.has(Column::us); }

}  // namespace

std::vector<Finding> audit_tables(std::span<TunedFile> files, const CheckOptions& options) {
  Rows rows;
  std::vector<std::string> paths;
  for (TunedFile& file : files) {
    for (TunedEntry& entry : file.entries) {
      entry.source = static_cast<std::uint32_t>(paths.size());
      rows.push_back(&entry);
    }
    paths.push_back(file.path);
  }
  std::vector<Finding> findings = check_rows(rows, paths, options);
  std::erase_if(findings, [&](const Finding& finding) {
    return finding.kind == FindingKind::failed_time && lacks_times(files[finding.source]);
  });
  for (std::uint32_t source = 0; source < files.size(); ++source) {
    std::unordered_set<std::size_t> malformed;
    std::unordered_set<std::size_t> read;
    for (const TunedEntry& entry : files[source].entries) read.insert(entry.line);
    for (const std::string& diagnostic : files[source].diagnostics) {
      const auto [line, text] = split_diagnostic(diagnostic, paths[source]);
      // A row with one odd cell is read, and answers without it.
      const bool answers = line == 0 || read.contains(line);
      findings.push_back({FindingKind::malformed, source, line, std::string(text),
                          answers ? std::optional(Severity::warning) : std::nullopt});
      malformed.insert(findings.back().line);
    }
    check_stored_rates(files[source], source, malformed, findings);
    check_libtypes(files[source], source, findings);
  }
  std::ranges::stable_sort(findings, [](const Finding& a, const Finding& b) {
    return std::tuple(a.source, a.line, a.kind) < std::tuple(b.source, b.line, b.kind);
  });
  return findings;
}

FindingKinds kinds_fixed_by_default() {
  return {FindingKind::malformed,       FindingKind::failed_time, FindingKind::over_tolerance,
          FindingKind::impossible_rate, FindingKind::unreachable, FindingKind::duplicate_key};
}

namespace {

using KindOfLine = std::unordered_map<std::size_t, FindingKind>;

/// The lines that go, each with its first kind; duplicates only among the rows that are left.
KindOfLine lines_to_drop(const TunedFile& file, std::uint32_t source, std::span<const Finding> findings,
                         const FixOptions& options) {
  std::unordered_set<std::size_t> kept;
  std::unordered_set<std::size_t> answering;
  for (const TunedEntry& entry : file.entries) {
    if (entry.us == 0 && !options.drop_zero_times) kept.insert(entry.line);
    if (may_answer(entry)) answering.insert(entry.line);
  }
  KindOfLine dropped;
  for (const Finding& finding : findings) {
    // These two are asked of the rows that are left.
    const bool later = finding.kind == FindingKind::duplicate_key || finding.kind == FindingKind::redundant;
    const bool stays = (finding.kind == FindingKind::failed_time && kept.count(finding.line) != 0) ||
                       (finding.kind == FindingKind::malformed && answering.count(finding.line) != 0);
    const bool drops = options.kinds.has(finding.kind) && finding.kind != FindingKind::wrong_rate;
    if (finding.source == source && drops && !later && !stays) {
      dropped.try_emplace(finding.line, finding.kind);
    }
  }
  const auto groups_left = [&] {
    Rows left;
    for (const TunedEntry& entry : file.entries) {
      if (dropped.count(entry.line) == 0) left.push_back(&entry);
    }
    return rows_by_group(left);
  };
  if (options.kinds.has(FindingKind::duplicate_key)) {
    for (const Duplicate& duplicate : duplicate_rows(groups_left())) {
      dropped.try_emplace(duplicate.loser->line, FindingKind::duplicate_key);
    }
  }
  if (options.kinds.has(FindingKind::redundant)) {
    for (const RedundantRow& redundant : redundant_rows(groups_left())) {
      dropped.try_emplace(redundant.row->line, FindingKind::redundant);
    }
  }
  return dropped;
}

std::string with_right_rates(std::string_view line, const TunedEntry& entry, const Columns& columns) {
  RawRow row(line);
  CsvCells cells;
  cells.split(line);
  const std::vector<Column> wrong = wrong_rates(entry, cells, columns);
  for (std::size_t position = 0; position < columns.width(); ++position) {
    const Column* column = columns.known_at(position);
    if (column == nullptr || std::find(wrong.begin(), wrong.end(), *column) == wrong.end()) continue;
    row.set(position, cell_text(entry, *column).value_or(std::string()));
  }
  return row.text();
}

}  // namespace

FixedTable fix_table(const TunedFile& file, std::uint32_t source, std::span<const Finding> findings,
                     const FixOptions& options) {
  const FindingKinds& kinds = options.kinds;
  const KindOfLine dropped = lines_to_drop(file, source, findings, options);
  std::unordered_map<std::size_t, const TunedEntry*> wrong_rates;
  std::unordered_map<std::size_t, const TunedEntry*> entries;
  for (const TunedEntry& entry : file.entries) entries.emplace(entry.line, &entry);
  for (const Finding& finding : findings) {
    if (finding.source != source || finding.kind != FindingKind::wrong_rate) continue;
    wrong_rates.emplace(finding.line, entries.at(finding.line));
  }
  FixedTable fixed;
  for (std::size_t index = 0; index < file.document.lines.size(); ++index) {
    const CsvLine& line = file.document.lines[index];
    const bool is_row = index > file.header && !is_blank_or_comment(line.text);
    const auto gone = is_row ? dropped.find(line.number) : dropped.end();
    // Diagnostics are not kept without end, so rows that could not be read are those without an entry.
    const bool unread = is_row && kinds.has(FindingKind::malformed) && entries.count(line.number) == 0;
    if (gone != dropped.end() || unread) {
      const FindingKind kind = gone != dropped.end() ? gone->second : FindingKind::malformed;
      ++fixed.dropped[static_cast<std::size_t>(kind)];
      continue;
    }
    const auto wrong = wrong_rates.find(line.number);
    if (wrong == wrong_rates.end()) {
      fixed.text += line.text;
    } else {
      fixed.text += with_right_rates(line.text, *wrong->second, file.columns);
      ++fixed.recomputed;
    }
    fixed.text += line.end;
    if (is_row && entries.count(line.number) != 0) ++fixed.rows;
  }
  return fixed;
}

}  // namespace gemmtune
