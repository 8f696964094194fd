// One row of a tuned file: cells to TunedEntry and back.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "formats/aiter/problem_cells.h"
#include "formats/csv/columns.h"
#include "formats/diagnostics.h"
#include "tuned/entry.h"

namespace gemmtune {

/// Where the header of a tuned file is and what it holds. A file without a header has `index` = lines.size().
struct TunedHeader {
  std::size_t index = 0;
  Columns columns;
  std::string disagreement;  // of the file's name with the header; empty where the caller named the operation
};

/// Finds the table (see detect_table). A header without key columns, or without a
/// time, is an error that names them.
Result<TunedHeader> read_tuned_header(const CsvDocument& document, std::optional<OperationForm> wanted);

/// Reads entries row by row; `columns` must outlive it.
class EntryReader {
 public:
  /// `keeps_cells`: cells behind the key whose text cell_text() would not give back are carried too.
  explicit EntryReader(const Columns& columns, bool keeps_cells = false)
      : columns_(columns), problems_(columns, {}), keeps_cells_(keeps_cells) {}
  /// gfx, cu_num, the problem and other_key; false (and a diagnostic) where they mean nothing. cu_num is 0
  /// where the header lacks it or the cell is empty: such a row answers no device.
  bool read_key(const CsvCells& row, std::size_t line, TunedEntry& entry, Diagnostics* diagnostics);
  /// The rest. Missing cells: us and err_ratio NaN, solidx and splitK 0. A bad cell of AITER's columns makes
  /// the row useless; one of gemmtune's columns, or of a fused MoE's switches (a
  /// short row shifts them), has its diagnostic and counts as empty. Such cells, numbers with more digits
  /// than are written, and the cells of unknown columns are carried.
  bool read_values(const CsvCells& row, std::size_t line, TunedEntry& entry, Diagnostics* diagnostics) const;

 private:
  struct Values;
  void read_own(Values& values, TunedEntry& entry) const;
  void read_stages(Values& values, TunedEntry& entry) const;
  void carry_types(Values& values) const;
  void keep_cells(Values& values, const TunedEntry& entry) const;

  const Columns& columns_;
  ProblemReader problems_;
  bool keeps_cells_;
};

/// AITER's key of a row as text (the tag of a fused MoE row and types that are not known included); without gfx where the file has none.
std::string row_key(const TunedEntry& entry, const Schema& schema, bool with_gfx);
/// The cell as it is written (not yet quoted); nullopt for columns that are none of a tuned file's.
std::optional<std::string> cell_text(const TunedEntry& entry, Column column);
/// The cells that make a row the same row as another, in the order by which AITER sorts: gfx, cu_num, N, M, K
/// and the rest of the key; of fused MoE the key as it stands.
bool sorts_before(const TunedEntry& a, const TunedEntry& b);
/// True where a file that holds `old_row` need not change to hold `entry`: all values are equal, at full
/// precision or as rounded for writing. tflops and bw are no values (AITER's own files hold wrong ones).
bool same_row(const TunedEntry& old_row, const TunedEntry& entry);

}  // namespace gemmtune
