// PyTorch TunableOp's files: results (tunableop_results0.csv) and calls that wait (tunableop_untuned0.csv).
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

struct TunableopRow {
  Problem problem;
  // "Default", "Gemm_Hipblaslt_1219", "Gemm_Cublaslt_id_66_tile_10_…", "1219" (rocBLAS, in the oldest files);
  // empty: a call that waits
  std::string solution;
  std::optional<double> us;  // of results with a time; the file has milliseconds
  std::string key;           // operation and parameters as they stand in the file
  std::string strides;       // "lda = 256" of operands that are not dense; empty: all are
  std::size_t line = 0;      // 1-based
};

/// "Validator,PT_VERSION,2.11.0": PyTorch refuses a file whose validators are not its own.
struct TunableopValidator {
  std::string key;
  std::string value;
  std::size_t line = 0;
};

struct TunableopFile {
  std::vector<TunableopValidator> validators;
  std::vector<TunableopRow> rows;
  std::vector<std::string> diagnostics;  // file:line: lines that stand for no problem here
};

/// A first line of such a file.
bool is_tunableop(std::string_view line);
/// Errors: those of parse_csv().
Result<TunableopFile> parse_tunableop_csv(const std::string& source, std::string content);

/// One line of a result, or of a call that waits where there is no solution. Errors name what PyTorch has no words for:
/// packed weights, a result of another type than the operands'.
Result<std::string> tunableop_line(const Problem& problem, std::string_view solution, double us);

/// "hipblaslt", "rocblas", "cublaslt", or "torch" of PyTorch's default: whose a solution is.
std::string_view library_of_solution(std::string_view solution);
/// The library's own number of a solution ("Gemm_Hipblaslt_617849", "Gemm_Hipblaslt_TN_12683", "1219"); nullopt for names
/// without one.
std::optional<std::int64_t> index_of_solution(std::string_view solution);

/// "cublaslt_r1_algo66_tile10_…" of "Gemm_Cublaslt_id_66_tile_10_…" and back; empty for other names.
std::string cublaslt_kernel_of(std::string_view solution);
std::string cublaslt_solution_of(std::string_view kernel_name);

/// Bytes of the partial sums that a split-K kernel of this name keeps outside of y: the least workspace that it needs. 0 for
/// others, and for other names.
std::int64_t cublaslt_partial_sums(const Problem& problem, std::string_view kernel_name);

}  // namespace gemmtune
