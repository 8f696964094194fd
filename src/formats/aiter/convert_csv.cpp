// AITER's tuned and untuned CSV among the formats.
#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "formats/aiter/tuned_csv.h"
#include "formats/all_formats.h"
#include "formats/shapes/shape_list.h"

namespace gemmtune {
namespace {

/// Columns that today's header does not have are lost.
void name_lost_columns(const TunedFile& file, ConversionRows& rows) {
  if (file.header == file.document.lines.size()) return;
  for (std::size_t position = 0; position < file.columns.width(); ++position) {
    const std::string& name = file.columns.name_at(position);
    if (file.columns.known_at(position) != nullptr || name.empty()) continue;
    rows.left_out.push_back(fmt::format("{}:{}: column {}: unknown, not carried", file.path,
                                        file.document.lines[file.header].number, name));
  }
}

bool expressible(const TunedEntry& entry) {
  const Problem& problem = entry.problem;
  return problem.x_order == Order::row_major && problem.w_order == Order::row_major &&
         problem.y_order == Order::row_major;
}

/// The rows that a tuned file can hold, with the device filled in.
Result<std::vector<TunedEntry>> tuned_entries(ConversionRows& rows, const ConversionOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(require_types(rows));
  std::vector<TunedEntry> kept;
  for (TunedEntry entry : rows.entries) {
    if (entry.cu_num == 0) entry.cu_num = options.cu_num;
    if (entry.cu_num == 0) return Status::invalid("{}: says no compute units; give --cu_num", rows.source);
    if (entry.gfx.empty()) entry.gfx = options.gfx.empty() ? gfx_of_cu_num(entry.cu_num) : options.gfx;
    if (entry.gfx.empty()) return Status::invalid("{}: says no architecture; give --gfx", rows.source);
    if (entry.libtype.empty() && entry.kernel_name.empty()) {
      leave_out(rows, entry, "a size without a winner");
    } else if (!expressible(entry)) {
      leave_out(rows, entry, "AITER's columns hold row-major operands only (x [M, K], w [N, K])");
    } else if (!entry.other_key.empty()) {
      leave_out(rows, entry, "of a table that is only read");
    } else {
      kept.push_back(std::move(entry));
    }
  }
  return kept;
}

}  // namespace

Result<ConversionRows> read_aiter_rows(const std::string& source, std::string content,
                                       const ConversionOptions& options) {
  auto file = parse_tuned_csv(source, std::move(content), {.operation = options.operation});
  if (!file.ok()) return file.status();
  ConversionRows rows;
  rows.source = source;
  rows.operation = file->schema().operation;
  rows.entries = std::move(file->entries);
  rows.left_out = std::move(file->diagnostics);
  name_lost_columns(*file, rows);
  return rows;
}

Result<std::string> write_aiter_rows(ConversionRows& rows, const ConversionOptions& options) {
  const auto entries = tuned_entries(rows, options);
  if (!entries.ok()) return entries.status();
  return write_tuned_csv(rows.operation, *entries, CsvSchema::aiter);
}

Result<std::string> write_seed_rows(ConversionRows& rows, const ConversionOptions& options) {
  const auto entries = tuned_entries(rows, options);
  if (!entries.ok()) return entries.status();
  std::vector<TunedEntry> amd;
  for (const TunedEntry& entry : *entries) {
    if (amd_architecture(entry.gfx)) {
      amd.push_back(entry);
    } else {
      leave_out(rows, entry, fmt::format("{}: a table without gfx speaks of AMD devices", entry.gfx));
    }
  }
  return write_tuned_csv(rows.operation, amd, CsvSchema::seed);
}

Result<ConversionRows> read_untuned_rows(const std::string& source, std::string content,
                                         const ConversionOptions& options) {
  ShapeListOptions list_options;
  list_options.operation = options.operation;
  list_options.x_type = options.x_type;
  list_options.y_type = options.y_type;
  auto list = parse_shape_list(source, std::move(content), list_options);
  if (!list.ok()) return list.status();
  ConversionRows rows;
  rows.source = source;
  rows.operation = list->operation;
  rows.left_out = std::move(list->diagnostics);
  for (const ShapeRow& row : list->rows) {
    TunedEntry& entry = rows.entries.emplace_back();
    entry.problem = row.problem;
    entry.line = row.line;
  }
  return rows;
}

Result<std::string> write_untuned_rows(ConversionRows& rows, const ConversionOptions&) {
  GEMMTUNE_RETURN_IF_ERROR(require_types(rows));
  std::vector<ShapeRow> shapes;
  std::unordered_set<std::string> known;
  for (const TunedEntry& entry : rows.entries) {
    if (!expressible(entry)) {
      leave_out(rows, entry, "AITER's columns hold row-major operands only (x [M, K], w [N, K])");
    } else if (known.insert(print(entry.problem)).second) {
      shapes.push_back({entry.problem, 1, {}, entry.line});
    }
  }
  return write_shape_list(shapes);
}

}  // namespace gemmtune
