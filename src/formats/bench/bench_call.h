// Calls in the words of rocblas-bench and hipblaslt-bench (their YAML and their command lines), and of CUTLASS's profiler.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "formats/shapes/shape_list.h"
#include "problem/problem.h"

namespace gemmtune {

/// C = op(A) · op(B), all column-major: its m is our N, its n our M, A our weight.
struct BenchCall {
  char trans_a = 'N';
  char trans_b = 'N';
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t lda = 0;  // 0: not said
  std::int64_t ldb = 0;
  std::int64_t ldc = 0;
  std::int64_t batch = 1;
  std::string a_type = "f32_r";
  std::string b_type = "f32_r";
  std::string c_type = "f32_r";
  std::string d_type;  // empty: as C
  std::int64_t scale_a = 0;
  std::int64_t scale_b = 0;
  bool bias = false;
};

/// One word of a call and its value: M, transA, a_type … Words that say nothing of the shape (alpha, strides, solutions) are
/// passed over. Errors name the word.
Status set_bench_word(BenchCall& call, std::string_view word, std::string_view value);

/// Of a call that a problem of a16w16 says: one matrix each, types that are known here, one scale for an operand. `strides`
/// becomes "lda = 256" where operands are not dense; the problem is that of dense ones.
Result<Problem> problem_of_bench_call(const BenchCall& call, std::string& strides);

/// "hipblaslt-bench … -m 1536 -n 16 -k 7168 --transA T …" in a line of a log; nullopt: the line has no such call.
std::optional<Result<ShapeRow>> bench_call_of_line(std::string_view line);

/// By words that tune_gemm's files do not have: function, transA, a_type, lda.
bool is_bench_yaml(std::string_view content);
/// The calls as sizes; those that no problem says are diagnostics.
Result<ShapeList> parse_bench_yaml(const std::string& source, const std::string& content,
                                   const ShapeListOptions& options);

/// By the columns Provider, OperationKind, Operation and Disposition.
bool is_cutlass_header(std::string_view first_line);
/// The GEMMs that CUTLASS's profiler timed, as sizes.
Result<ShapeList> parse_cutlass_csv(const std::string& source, std::string content,
                                    const ShapeListOptions& options);

}  // namespace gemmtune
