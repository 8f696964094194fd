// The problem that a row of a table stands for: what shape lists and tuned files have in common.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "formats/csv/columns.h"
#include "formats/diagnostics.h"
#include "problem/problem.h"

namespace gemmtune {

/// Types that the caller wants instead of the file's, and whose words they are.
struct TypeOverrides {
  std::optional<DataType> x_type;  // of x and w
  std::optional<DataType> y_type;
  std::string architecture = {};  // of the device that words of types are meant for, where a row says none
};

/// Empty, or one of the words that pandas and AITER write for a missing cell (Null, NA, nan …).
bool is_missing(std::string_view cell);
/// The cells of a row that means something. False for a blank line, a comment, a row of empty cells, and for
/// a row that is none (an unclosed quote, more cells than the header), which has a diagnostic then.
bool split_row(const CsvLine& line, const Columns& columns, CsvCells& cells, Diagnostics& diagnostics);

/// Reads problems row by row. A column that the header lacks, or a missing cell: bias, scaleAB, bpreshuffle
/// False; outdtype as dtype; q_dtype_w int8 for a8w8 and the device's fp8 for a8w8_bpreshuffle. Types that a
/// table does not hold: y bf16, x of the block-scaled operations the device's fp8 (device_fp8 of the row's gfx, of the one
/// that AITER takes for its cu_num, or of the caller's architecture). The layout of a pre-shuffled weight is `any`.
class ProblemReader {
 public:
  ProblemReader(const Columns& columns, TypeOverrides overrides)
      : columns_(columns), overrides_(std::move(overrides)) {}
  /// False where the row means no problem; then its first bad cell has a diagnostic (none where `diagnostics`
  /// is nullptr). Dimensions are within 1 … max_dimension; whether any kernel takes the types is not asked
  /// here. A word for a type that is not known here ("torch.uint32") is appended to `unknown_types` as
  /// "q_dtype_w=torch.uint32", and the problem keeps the operation's type; without `unknown_types` it is a bad
  /// cell.
  bool read(const CsvCells& row, std::size_t line, Problem& problem, Diagnostics* diagnostics,
            std::string* unknown_types = nullptr);

 private:
  struct Row;
  std::string_view architecture_of(const Row& row) const;
  std::optional<DataType> type_of(std::string_view architecture, std::string_view text);
  void read_dense_types(Row& row, Problem& problem);
  void read_weight_only_types(Row& row, Problem& problem);
  static void read_groups(Row& row, Problem& problem);
  void read_quantized_types(Row& row, Problem& problem);
  void read_moe(Row& row, Problem& problem);
  bool read_type(Row& row, Column column, DataType& type);

  const Columns& columns_;
  TypeOverrides overrides_;
  // The type text of the row before: tables repeat it, and comparing is cheaper than parsing.
  std::string last_text_;
  DataType last_fp8_ = DataType::f8_e4m3fn;  // of the device of that row
  std::optional<DataType> last_type_;
};

/// A bool as AITER writes it.
std::string_view python_bool(bool value);

/// What a mixture may have that AITER's rows do not say. A file has such a column only where a row needs it.
inline constexpr std::array mixture_options{Column::bias, Column::shared_experts, Column::w_group,
                                            Column::zero_points};
/// Whether a file with this problem needs the column; true for columns that are no option of its operation.
bool needs_column(const Problem& problem, Column column);

/// The cell of a key column for a problem; nullopt for columns that no problem holds.
std::optional<std::string> problem_cell(const Problem& problem, Column column);

}  // namespace gemmtune
