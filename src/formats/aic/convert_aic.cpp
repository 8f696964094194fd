// aiconfigurator's tables among the formats.
#include <fmt/format.h>

#include <unordered_set>
#include <utility>

#include "formats/aic/aic_csv.h"
#include "formats/conversion.h"
#include "formats/csv/csv.h"
#include "formats/diagnostics.h"

namespace gemmtune {
namespace {

/// Why aiconfigurator has no row for it; empty: it has one.
std::string why_not_aic(const TunedEntry& entry) {
  const Problem& problem = entry.problem;
  if (!entry.other_key.empty()) return "of a table that is only read";
  if (!valid_time(entry.us)) return "no valid time";
  if (aic_dtype(problem).empty())
    return fmt::format("{}: no gemm_dtype or moe_dtype of its types", short_name(problem));
  if (problem.bias) return "a bias, for which the table has no column";
  if (!all_row_major(problem)) return "column-major operands, for which the table has no column";
  if (traits(problem.operation).batched) return "a batched GEMM, for which the table has no column";
  return {};
}

std::string aic_key(const TunedEntry& entry) {
  const Problem& problem = entry.problem;
  if (!is_mixture(problem))
    return fmt::format("{},{},{},{}", aic_dtype(problem), problem.m, problem.n, problem.k);
  const std::string routing =
      entry.routing.empty() ? std::string("uniform") : std::string(entry.routing.view());
  return fmt::format("{},{},{},{},{},{},1,1,{}", aic_dtype(problem), problem.m, problem.k, problem.n,
                     problem.moe.topk, problem.moe.experts, csv_cell(routing));
}

}  // namespace

Result<ConversionRows> read_aic_rows(const std::string& source, std::string content,
                                     const ConversionOptions& /*options*/) {
  GEMMTUNE_TRY(auto file, parse_aic_csv(source, std::move(content)));
  ConversionRows rows;
  rows.source = source;
  rows.origin = "aic";
  rows.operation = file.operation;
  rows.entries = std::move(file.entries);
  for (const std::string& diagnostic : file.diagnostics) {
    const auto [line, why] = split_diagnostic(diagnostic, source);
    rows.leave_out_line(line, why);
  }
  return rows;
}

Result<std::string> write_aic_rows(ConversionRows& rows, const ConversionOptions& /*options*/) {
  const bool mixture = traits(rows.operation.operation).mixture;
  std::string text = "framework,version,device,op_name,kernel_source,";
  text += mixture ? "moe_dtype,num_tokens,hidden_size,inter_size,topk,num_experts,moe_tp_size,moe_ep_size,"
                    "distribution,latency\n"
                  : "gemm_dtype,m,n,k,latency\n";
  std::unordered_set<std::string> known;
  for (std::size_t index = 0; index < rows.entries.size(); ++index) {
    if (rows.is_gone(index)) continue;
    const TunedEntry& entry = rows.entries[index];
    if (const std::string why = why_not_aic(entry); !why.empty()) {
      rows.leave_out(index, why);
      continue;
    }
    const std::string key = aic_key(entry);
    // aiconfigurator reads the first row of a key.
    if (!known.insert(fmt::format("{} {}", entry.gfx, key)).second) {
      rows.leave_out(index, fmt::format("another row of M = {} comes first", entry.problem.m));
      continue;
    }
    text += fmt::format("GEMMTUNE,{},{},{},{},{},{:.10g}\n", csv_cell(entry.env), csv_cell(entry.gfx),
                        mixture ? "moe" : "gemm", csv_cell(entry.kernel_name), key, entry.us / 1000);
  }
  return text;
}

}  // namespace gemmtune
