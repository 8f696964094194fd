// NVIDIA aiconfigurator's tables of measured latencies, as CSV (parquet/parquet.h makes it of its parquet files): gemm_perf and
// moe_perf.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "tuned/entry.h"

namespace gemmtune {

struct AicFile {
  OperationForm operation = Operation::a16w16;  // fused_moe of a table of mixtures
  // Rows of tables that are only read: other_key says framework, kernel and type.
  std::vector<TunedEntry> entries;
  std::vector<std::string> diagnostics;  // file:line, column, value, expected
  // Of how many rows no time is too short, by the reason.
  std::map<std::string, std::size_t> unrated;
};

/// By the columns gemm_dtype or moe_dtype, and latency.
bool is_aic_header(std::string_view first_line);
Result<AicFile> parse_aic_csv(const std::string& source, std::string content);

/// aiconfigurator's word for the types and scales of a problem; empty: it has none.
std::string_view aic_dtype(const Problem& problem);

}  // namespace gemmtune
