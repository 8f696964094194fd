// hipBLASLt's online tuning table among the formats.
#include <fmt/format.h>

#include <limits>
#include <utility>

#include "formats/conversion.h"
#include "formats/diagnostics.h"
#include "formats/hipblaslt/hipblaslt_csv.h"

namespace gemmtune {

Result<ConversionRows> read_hipblaslt_rows(const std::string& source, std::string content,
                                           const ConversionOptions& options) {
  GEMMTUNE_TRY(auto file, parse_hipblaslt_csv(source, std::move(content)));
  ConversionRows rows;
  rows.source = source;
  for (const std::string& diagnostic : file.diagnostics) {
    const auto [line, why] = split_diagnostic(diagnostic, source);
    rows.leave_out_line(line, why);
  }
  for (const HipblasltRow& row : file.rows) {
    TunedEntry entry;
    entry.line = row.line;
    auto problem = to_problem(row);
    if (!problem.ok()) {
      rows.leave_out_line(row.line, problem.message());
      continue;
    }
    entry.problem = *problem;
    entry.gfx = options.gfx;
    entry.cu_num = options.cu_num;
    entry.libtype = "hipblaslt";
    entry.solidx = row.algo_index;
    entry.kernel_name = row.kernel_name;
    entry.us = std::numeric_limits<double>::quiet_NaN();
    entry.err_ratio = std::numeric_limits<double>::quiet_NaN();
    rows.entries.push_back(std::move(entry));
  }
  return rows;
}

Result<std::string> write_hipblaslt_rows(ConversionRows& rows, const ConversionOptions&) {
  GEMMTUNE_RETURN_IF_ERROR(require_types(rows));
  std::vector<HipblasltRow> lines;
  for (std::size_t index = 0; index < rows.entries.size(); ++index) {
    if (rows.is_gone(index)) continue;
    const TunedEntry& entry = rows.entries[index];
    if (entry.libtype != "hipblaslt") {
      rows.leave_out(index, fmt::format("libtype '{}', expected hipblaslt", entry.libtype));
      continue;
    }
    if (entry.kernel_name.starts_with("Gemm_") && entry.solidx == 0) {
      rows.leave_out(index, fmt::format("kernel '{}': a solution without its index", entry.kernel_name));
      continue;
    }
    if (entry.problem.bias) {
      rows.leave_out(index, "a bias, for which the table has no field");
      continue;
    }
    auto line = to_hipblaslt_row(entry.problem);
    if (!line.ok()) {
      rows.leave_out(index, line.message());
      continue;
    }
    line->algo_index = entry.solidx;
    line->kernel_name = entry.kernel_name;
    lines.push_back(std::move(*line));
  }
  return write_hipblaslt_csv(lines);
}

}  // namespace gemmtune
