// tune_gemm's result files: one YAML flow map a size, its time in the comment behind it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune {

/// A parameter as it stands in the file. BLOCK_SIZE_M: 32 is the text 32; 'none' is a quoted text.
struct GemmParameter {
  std::string name;
  std::string text;
  bool quoted = false;

  std::optional<std::int64_t> integer() const;  // nullopt where quoted
  friend bool operator==(const GemmParameter&, const GemmParameter&) = default;
};

struct GemmResult {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::optional<Order> a_order = {};           // rowMajorA, of A [M, K]
  std::optional<Order> b_order = {};           // rowMajorB, of B [K, N]; 'N' is a weight [N, K] row by row
  std::vector<GemmParameter> parameters = {};  // in the file's order
  std::optional<double> tflops = {};           // both or none; finite
  std::optional<double> us = {};
  std::size_t line = 0;  // 1-based

  const GemmParameter* find(std::string_view name) const;
  friend bool operator==(const GemmResult&, const GemmResult&) = default;
};

enum class TuneGemmVersion { v2, v3_4 };

struct GemmResultFile {
  std::string path;
  TuneGemmVersion version = TuneGemmVersion::v2;  // v3.4 where a result has an order
  std::vector<GemmResult> results;
  std::vector<std::string> diagnostics;  // file:line: results that mean nothing, and comments that do not
};

/// What is no YAML list is an error (yaml_guard.h); an item without M, N and K, with a key twice, or with
/// other values than numbers and one-line ASCII texts is a diagnostic and left out. The time is read from
/// "# TFLOPS: x time(us): y" behind the map; a file of sizes has none.
Result<GemmResultFile> parse_gemm_results(const std::string& source, const std::string& content);

/// The parameters in the order in which `version` prints them, those it does not know behind.
void order_parameters(TuneGemmVersion version, std::vector<GemmParameter>& parameters);

/// One line a result, exactly as the version prints it: v2 leaves the orders out. Parameters stay in their
/// own order, comments stand behind results with a time. Numbers lose digits as tune_gemm's do
/// (gemm_result_number).
std::string write_gemm_results(const std::vector<GemmResult>& results, TuneGemmVersion version);

/// v3.4's benchmark table: trans,M,N,K,TFLOPS,us. Results without orders are "TN"; without a time, left out.
std::string write_gemm_benchmark_csv(const std::vector<GemmResult>& results);

/// tune_gemm's numbers: below 0.0001 as 1.234e-05; v3.4 above 1000 with one decimal; else with two.
std::string gemm_result_number(double value, TuneGemmVersion version);

}  // namespace gemmtune
