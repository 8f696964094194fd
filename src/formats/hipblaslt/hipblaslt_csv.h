// hipBLASLt's online tuning table, as AITER keeps it in hip_online_tuning_res.csv.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune {

/// One line. Sizes are hipBLASLt's, of column-major operands: m is our N, n our M (tokens), A our weight, B
/// our x. All fields but the last two are the key.
struct HipblasltRow {
  bool preshuffle = false;
  bool use_rowwise = false;  // a scale for each row; else one for each tensor
  char trans_a = 'T';        // T or N
  char trans_b = 'N';
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::string a_type;  // f32_r, f16_r, bf16_r, f8_e4m3_fnuz_r; "<?>" for all that AITER has no name for
  std::int64_t lda = 0;
  std::int64_t stride_a = 0;
  std::string b_type;
  std::int64_t ldb = 0;
  std::int64_t stride_b = 0;
  std::string c_type;
  std::int64_t ldc = 0;
  std::int64_t stride_c = 0;
  std::string compute_type = "f32_r";
  std::int64_t batch_count = 1;
  std::int64_t algo_index = 0;  // of one build of hipBLASLt on one device; the file names neither
  std::string kernel_name;
  std::size_t line = 0;  // 1-based
  friend bool operator==(const HipblasltRow&, const HipblasltRow&) = default;
};

struct HipblasltFile {
  std::string path;
  std::vector<HipblasltRow> rows;
  std::vector<std::string> diagnostics;  // file:line: lines that AITER's reader never finds
};

/// Blank lines, lines that begin with '#' and a header in either spelling (with and without blanks,
/// preshuffle or bpreshuffle) are passed over. A line that has not 20 fields without blanks around them, of
/// the right kind, is a diagnostic and left out. Errors: NUL bytes, lines above 1 MiB, what the system
/// refuses.
Result<HipblasltFile> read_hipblaslt_csv(const std::string& path);
Result<HipblasltFile> parse_hipblaslt_csv(const std::string& source, std::string content);

/// Header (comma and blank between the names) and rows (no blanks), as AITER writes them.
std::string write_hipblaslt_csv(const std::vector<HipblasltRow>& rows);

/// Appends a row under <path>.lock by replacing the file: readers see it with the row or without. A missing
/// or empty file gets the header first. An earlier row of the same key still wins. Not to be used beside a
/// process that tunes online into the same file: AITER locks the file itself. Errors: names with commas or
/// line ends, and what the system refuses.
Status append_hipblaslt_row(const std::string& path, const HipblasltRow& row);

/// The row's key for a problem of a16w16; algo_index and kernel_name are empty. Errors: other operations,
/// batches, a column-major y. The bias has no place in the key.
Result<HipblasltRow> to_hipblaslt_row(const Problem& problem);
/// Without bias. Errors name the field: a type "<?>", scales by row, strides, leading dimensions that are not
/// those of dense operands, and what check() refuses.
Result<Problem> to_problem(const HipblasltRow& row);

}  // namespace gemmtune
