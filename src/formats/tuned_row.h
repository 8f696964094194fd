// One row of a tuned bf16 file: cells to TunedEntry and back.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "formats/columns.h"
#include "formats/complaints.h"
#include "formats/problem_cells.h"
#include "tuned/entry.h"

namespace gemmtune {

/// Where the header of a tuned file is and what it holds. A file without a header has `index` = lines.size().
struct TunedHeader {
  std::size_t index = 0;
  Columns columns;
};

/// A header without M, N, K, dtype and a time is an error that names them; so is another operation's.
Result<TunedHeader> read_tuned_header(const CsvDocument& document);

/// Reads entries row by row; `columns` must outlive it.
class EntryReader {
 public:
  explicit EntryReader(const Columns& columns) : columns_(columns), problems_(columns, {}) {}
  /// gfx, cu_num and the problem; false (and a complaint) where they mean nothing. cu_num is 0 where the
  /// header lacks it.
  bool read_key(const CsvCells& row, std::size_t line, TunedEntry& entry, Complaints* complaints);
  /// The rest. Missing cells: us and err_ratio NaN, solidx and splitK 0. A bad cell of AITER's columns makes
  /// the row useless; one of gemmtune's columns has its complaint and counts as empty.
  bool read_values(const CsvCells& row, std::size_t line, TunedEntry& entry, Complaints* complaints) const;

 private:
  const Columns& columns_;
  ProblemReader problems_;
};

/// AITER's key of a row as text; without gfx where the file has none.
std::string row_key(const TunedEntry& entry, bool with_gfx);
/// The cell as it is written (not yet quoted); nullopt for columns that are none of a tuned file's.
std::optional<std::string> cell_text(const TunedEntry& entry, Column column);
/// True where a file that holds `old_row` need not change to hold `entry`: all values are equal, at full
/// precision or as rounded for writing. tflops and bw are no values (AITER's own files hold wrong ones).
bool same_row(const TunedEntry& old_row, const TunedEntry& entry);

}  // namespace gemmtune
