// The problem that a row of a bf16 table stands for: what shape lists and tuned files have in common.
#pragma once

#include <optional>
#include <string>

#include "formats/columns.h"
#include "formats/complaints.h"
#include "problem/problem.h"

namespace gemmtune {

/// Types that the caller wants instead of the file's.
struct TypeOverrides {
  std::optional<DataType> x_type;
  std::optional<DataType> y_type;
};

/// Empty, or one of the words that pandas and AITER write for a missing cell (Null, NA, nan …).
bool is_missing(std::string_view cell);
/// The cells of a row that means something. False for a blank line, a comment, a row of empty cells, and for
/// a row that is none (an unclosed quote, more cells than the header), which has a complaint then.
bool split_row(const CsvLine& line, const Columns& columns, CsvCells& cells, Complaints& complaints);

/// Reads problems row by row. A column that the header lacks, or a missing cell: bias, scaleAB, bpreshuffle
/// False; outdtype as dtype. A pre-shuffled weight's layout is `any`.
class ProblemReader {
 public:
  ProblemReader(const Columns& columns, TypeOverrides overrides) : columns_(columns), overrides_(overrides) {}
  /// False where the row means no problem; then its first bad cell has a complaint (none where `complaints`
  /// is nullptr). Dimensions are within 1 … max_dimension; whether any kernel takes the types is not asked
  /// here.
  bool read(const CsvCells& row, std::size_t line, Problem& problem, Complaints* complaints);

 private:
  struct Row;
  std::optional<DataType> type_of(std::string_view text);

  const Columns& columns_;
  TypeOverrides overrides_;
  // The type text of the row before: tables repeat it, and comparing is cheaper than parsing.
  std::string last_text_;
  std::optional<DataType> last_type_;
};

/// A bool as AITER writes it.
std::string_view python_bool(bool value);

}  // namespace gemmtune
