// AITER's tuned and untuned CSV among the formats.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/text.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/aiter/tuned_row.h"
#include "formats/conversion.h"
#include "formats/diagnostics.h"
#include "formats/shapes/shape_list.h"
#include "tuned/groups.h"

namespace gemmtune {
namespace {

/// Heterogeneous and grouped MoE, mxscale.
bool is_only_read(const TunedEntry& entry) { return !entry.other_key.empty(); }

constexpr const char* only_row_major = "AITER's columns hold row-major operands only (x [M, K], w [N, K])";

std::string why_not_tuned(const TunedEntry& entry) {
  if (is_only_read(entry)) return "of a table that is only read";
  if (!all_row_major(entry.problem)) return only_row_major;
  if (entry.libtype.empty() && entry.kernel_name.empty()) return "a size without a winner";
  if (entry.libtype == "hipblaslt" && entry.kernel_name.starts_with("Gemm_") && entry.solidx == 0)
    return fmt::format("kernel '{}': a solution of hipBLASLt without its index", entry.kernel_name);
  if (entry.libtype == "rocblas") return "a solution of rocBLAS, which no libtype of AITER's runs";
  return {};
}

/// AITER's readers take one row a key: of several the chosen one stays, the others are left out by name.
void keep_one_row_a_key(ConversionRows& rows, std::vector<TunedEntry>& kept,
                        const std::vector<std::size_t>& indexes) {
  const Schema& schema = schema_of(rows.operation);
  std::unordered_map<std::string, std::size_t> best;  // of `kept`
  std::vector<bool> lost(kept.size());
  for (std::size_t index = 0; index < kept.size(); ++index) {
    const auto [at, made] = best.try_emplace(row_key(kept[index], schema, true), index);
    if (made) continue;
    std::size_t winner = at->second;
    std::size_t loser = index;
    if (better_row(kept[index], kept[winner])) std::swap(winner, loser);
    at->second = winner;
    lost[loser] = true;
    rows.leave_out(indexes[loser],
                   fmt::format("{}, but {} for the same key at line {}", row_time_text(kept[loser].us),
                               row_time_text(kept[winner].us), kept[winner].line));
  }
  std::vector<TunedEntry> chosen;
  for (std::size_t index = 0; index < kept.size(); ++index) {
    if (!lost[index]) chosen.push_back(std::move(kept[index]));
  }
  kept = std::move(chosen);
}

/// The rows that a tuned file can hold, with the device filled in; `refuse` (if any) says why
/// a row is not taken.
Result<std::vector<TunedEntry>> tuned_entries(ConversionRows& rows, const ConversionOptions& options,
                                              std::string (*refuse)(const TunedEntry&) = nullptr) {
  GEMMTUNE_RETURN_IF_ERROR(require_types(rows));
  std::vector<TunedEntry> kept;
  std::vector<std::size_t> indexes;
  for (std::size_t index = 0; index < rows.entries.size(); ++index) {
    if (rows.is_gone(index)) continue;
    TunedEntry entry = rows.entries[index];
    std::string why = why_not_tuned(entry);
    if (!why.empty()) {
      rows.leave_out(index, why);
      continue;
    }
    if (entry.cu_num == 0) entry.cu_num = options.cu_num;
    if (entry.cu_num == 0) return Status::invalid("{}: says no compute units; give --cu_num", rows.source);
    if (entry.gfx.empty()) entry.gfx = options.gfx.empty() ? gfx_of_cu_num(entry.cu_num) : options.gfx;
    if (entry.gfx.empty()) return Status::invalid("{}: says no architecture; give --gfx", rows.source);
    if (refuse != nullptr) why = refuse(entry);
    if (!why.empty()) {
      rows.leave_out(index, why);
    } else {
      kept.push_back(std::move(entry));
      indexes.push_back(index);
    }
  }
  keep_one_row_a_key(rows, kept, indexes);
  if (rows.config != nullptr && !kept.empty()) {
    rows.left_out.push_back({LeftOutKind::column, "us", 0, kept.size(),
                             "a Triton config has no times: no look-up chooses such rows"});
  }
  return kept;
}

std::string refuse_without_gfx(const TunedEntry& entry) {
  if (amd_architecture(entry.gfx)) return {};
  return fmt::format("{}: a table without gfx speaks of AMD devices", entry.gfx);
}

/// Architectures that the compute units do not give back.
void name_lost_gfx(ConversionRows& rows, const std::vector<TunedEntry>& written) {
  const auto lost = static_cast<std::size_t>(std::ranges::count_if(
      written, [](const TunedEntry& entry) { return entry.gfx != gfx_of_cu_num(entry.cu_num); }));
  if (lost == 0) return;
  rows.left_out.push_back({LeftOutKind::column, "gfx", 0, lost, "cu_num does not give it back"});
}

}  // namespace

Result<ConversionRows> read_aiter_rows(const std::string& source, std::string content,
                                       const ConversionOptions& options) {
  GEMMTUNE_TRY(auto file, parse_tuned_csv(source, std::move(content),
                                          {.operation = options.operation, .keeps_cells = true}));
  ConversionRows rows;
  rows.source = source;
  rows.operation = file.schema().operation;
  for (UnreadRow& row : unread_rows(file)) rows.leave_out_line(row.line, row.why);
  std::unordered_set<std::size_t> unread;
  for (const LeftOut& row : rows.left_out) unread.insert(row.line);
  for (std::string& diagnostic : file.diagnostics) {
    if (unread.count(split_diagnostic(diagnostic, source).first) == 0)
      rows.notes.push_back(std::move(diagnostic));
  }
  rows.entries = std::move(file.entries);
  return rows;
}

Result<std::string> write_aiter_rows(ConversionRows& rows, const ConversionOptions& options) {
  GEMMTUNE_TRY(const auto entries, tuned_entries(rows, options));
  return write_tuned_csv(rows.operation, entries, CsvSchema::aiter);
}

Result<std::string> write_seed_rows(ConversionRows& rows, const ConversionOptions& options) {
  GEMMTUNE_TRY(const auto entries, tuned_entries(rows, options, refuse_without_gfx));
  GEMMTUNE_RETURN_IF_ERROR(check_without_gfx(rows_of(entries)));
  name_lost_gfx(rows, entries);
  return write_tuned_csv(rows.operation, entries, CsvSchema::seed);
}

ShapeListOptions list_options_of(const ConversionOptions& options) {
  return {.operation = options.operation,
          .x_type = options.x_type,
          .y_type = options.y_type,
          .architecture = options.gfx};
}

Result<ConversionRows> rows_of_list(Result<ShapeList> read, std::string_view origin) {
  GEMMTUNE_TRY(auto list, std::move(read));
  ConversionRows rows;
  rows.source = list.source;
  rows.origin = origin;
  rows.operation = list.operation;
  rows.left_out = std::move(list.ignored);
  rows.notes = std::move(list.notes);
  rows.leave_out_lines(list.diagnostics);
  for (const ShapeRow& row : list.rows) {
    TunedEntry& entry = rows.entries.emplace_back();
    entry.problem = row.problem;
    entry.line = row.line;
    entry.us = std::numeric_limits<double>::quiet_NaN();
    CarriedCells cells;
    if (row.calls != 1) cells.push_back({"calls", std::to_string(row.calls)});
    if (!row.layer.empty()) cells.push_back({"layer", row.layer});
    if (!cells.empty()) entry.carried = std::make_shared<const CarriedCells>(std::move(cells));
  }
  return rows;
}

Result<ConversionRows> read_untuned_rows(const std::string& source, std::string content,
                                         const ConversionOptions& options) {
  return rows_of_list(parse_shape_list(source, std::move(content), list_options_of(options)), {});
}

Result<std::string> write_untuned_rows(ConversionRows& rows, const ConversionOptions&) {
  GEMMTUNE_RETURN_IF_ERROR(require_types(rows));
  std::vector<ShapeRow> shapes;
  std::unordered_set<std::string> known;
  std::size_t repeated = 0;
  rows.take_each([&](std::size_t, const TunedEntry& entry) -> std::string {
    if (!all_row_major(entry.problem)) return only_row_major;
    if (is_only_read(entry)) return "of a table that is only read";
    if (known.insert(print(entry.problem)).second) {
      const std::string* calls = find_carried(entry, "calls");
      const std::string* layer = find_carried(entry, "layer");
      shapes.push_back({entry.problem, calls != nullptr ? parse_integer(*calls).value_or(1) : 1,
                        layer != nullptr ? *layer : std::string(), entry.line});
    } else {
      ++repeated;
    }
    return {};
  });
  if (repeated != 0) {
    rows.notes.push_back(fmt::format("{}: {} row{} of sizes that are listed already", rows.source, repeated,
                                     repeated == 1 ? "" : "s"));
  }
  // Without rows the header is still that of the operation.
  return shapes.empty() ? empty_shape_list(rows.operation) : write_shape_list(shapes);
}

}  // namespace gemmtune
