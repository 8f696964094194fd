// PyTorch TunableOp's files among the formats.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "formats/conversion.h"
#include "formats/diagnostics.h"
#include "formats/tunableop/tunableop_csv.h"

namespace gemmtune {
namespace {

/// What PyTorch gives cuBLASLt on Hopper; a solution that needs more fails in its check.
constexpr std::int64_t torch_workspace = std::int64_t{32} << 20;

TunedEntry entry_of(const TunableopRow& row, const ConversionOptions& options) {
  TunedEntry entry;
  entry.problem = row.problem;
  entry.line = row.line;
  entry.us = std::numeric_limits<double>::quiet_NaN();
  entry.err_ratio = std::numeric_limits<double>::quiet_NaN();
  if (row.solution.empty()) return entry;
  entry.gfx = options.gfx;
  entry.cu_num = options.cu_num;
  entry.libtype = library_of_solution(row.solution);
  entry.solidx = index_of_solution(row.solution).value_or(0);
  entry.kernel_name = row.problem.scale_ab ? std::string() : cublaslt_kernel_of(row.solution);
  if (entry.kernel_name.empty()) entry.kernel_name = row.solution;
  entry.us = row.us.value_or(entry.us);
  return entry;
}

/// The words of PyTorch for a row's kernel; empty: there are none.
std::string solution_of(const TunedEntry& entry) {
  if (entry.libtype == library_of_solution(entry.kernel_name) &&
      (entry.kernel_name.starts_with("Gemm_") || entry.kernel_name == "Default" ||
       index_of_solution(entry.kernel_name)))
    return entry.kernel_name;
  // PyTorch's name does not say whether fp8 is accumulated fast.
  return entry.libtype == "cublaslt" && !entry.problem.scale_ab ? cublaslt_solution_of(entry.kernel_name)
                                                                : std::string();
}

/// A line of such a file, as it was: its key says more than a problem does, and PyTorch needs no time.
std::string line_again(const std::string& key, const std::string& solution, const TunedEntry& entry) {
  if (solution.empty()) return key + "\n";
  return std::isnan(entry.us) ? fmt::format("{},{}\n", key, solution)
                              : fmt::format("{},{},{:.10g}\n", key, solution, entry.us / 1000);
}

}  // namespace

Result<ConversionRows> read_tunableop_rows(const std::string& source, std::string content,
                                           const ConversionOptions& options) {
  GEMMTUNE_TRY(auto file, parse_tunableop_csv(source, std::move(content)));
  ConversionRows rows;
  rows.source = source;
  rows.origin = "tunableop";
  for (const TunableopValidator& validator : file.validators) {
    rows.parts.push_back({"Validator " + validator.key,
                          fmt::format("Validator,{},{}\n", validator.key, validator.value), validator.line});
  }
  for (const std::string& diagnostic : file.diagnostics) {
    const auto [line, why] = split_diagnostic(diagnostic, source);
    rows.leave_out_line(line, why);
  }
  for (const TunableopRow& row : file.rows) {
    rows.own_keys[rows.entries.size()] = {row.key, row.strides};
    rows.entries.push_back(entry_of(row, options));
  }
  return rows;
}

Result<std::string> write_tunableop_rows(ConversionRows& rows, const ConversionOptions&) {
  GEMMTUNE_RETURN_IF_ERROR(require_types(rows));
  std::string text;
  for (CarriedPart& part : rows.parts) {
    if (rows.origin != "tunableop") continue;
    text += part.text;
    part.taken = true;
  }
  for (std::size_t index = 0; index < rows.entries.size(); ++index) {
    if (rows.is_gone(index)) continue;
    const TunedEntry& entry = rows.entries[index];
    const std::string solution = solution_of(entry);
    const auto own = rows.own_keys.find(index);
    if (own != rows.own_keys.end() && (entry.libtype.empty() || !solution.empty())) {
      text += line_again(own->second.text, solution, entry);
      continue;
    }
    if (solution.empty() || !valid_time(entry.us)) {
      rows.leave_out(index, solution.empty() ? fmt::format("kernel '{}' of '{}', which PyTorch does not have",
                                                           entry.kernel_name, entry.libtype)
                                             : std::string("no valid time"));
      continue;
    }
    const std::int64_t workspace = cublaslt_partial_sums(entry.problem, entry.kernel_name);
    if (workspace > torch_workspace) {
      rows.leave_out(index,
                     fmt::format("its partial sums need {} MiB of workspace, PyTorch gives cuBLASLt {}",
                                 workspace >> 20, torch_workspace >> 20));
      continue;
    }
    const auto line = tunableop_line(entry.problem, solution, entry.us);
    if (!line.ok()) {
      rows.leave_out(index, line.message());
      continue;
    }
    text += *line;
  }
  if (rows.origin != "tunableop") {
    rows.notes.push_back(
        fmt::format("{}: PyTorch reads the results beside its own Validator lines only; "
                    "gemmtune.torch.write_tunableop adds them",
                    rows.source));
  }
  return text;
}

}  // namespace gemmtune
