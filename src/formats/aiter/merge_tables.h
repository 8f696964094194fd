// Several tuned files of one table as one file, and a dense table as ranges.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/diagnostics.h"

namespace gemmtune {

struct MergeOptions {
  std::optional<CsvSchema> schema;  // nullopt: with gfx where any file has it
};

struct MergedTable {
  std::string text;                // header and rows
  std::size_t rows = 0;            // in `text`
  std::size_t duplicates = 0;      // rows that lost
  std::vector<LeftOut> left_out;   // rows of another layout than their group's, with their files
  std::vector<std::string> notes;  // "file:line: what became of the row", one a row that is not as expected
};

/// One row a key: the smallest time of the rows that may be chosen (tuned/choice.h), ties and keys without
/// any such row the first row; it stands where its key came first. Of pre-shuffled groups whose rows want several layouts one is kept
/// (choose_layouts). Columns: the first file's; those of later files before tflops (else at the end), gfx in
/// front, gemmtune's own at the end. Rows of a file with the same header keep every byte, others the bytes of
/// each cell (but m_from where ranges of several files overlap: then each keeps the M that it answers); a
/// column that a row's file lacks holds what its absence means. Where the table has gfx, rows of files without that column get
/// the architecture of their cu_num. Comments and blank lines are not carried. Rows of a fused MoE that differ in their tag alone
/// stay all; those that look-up does not choose stand behind the one that it does.
///
/// TunedEntry::source is an index into `files` afterwards, and gfx is filled in.
///
/// Errors: files of several tables; rows that are not AMD's where `schema` has no gfx.
Result<MergedTable> merge_tables(std::span<TunedFile> files, const MergeOptions& options);

/// A row of a compressed table that stands for several.
struct MadeRange {
  TunedEntry row;  // as it was before, with the largest M
  std::int64_t m_from = 0;
  std::size_t rows = 0;  // that it stands for, itself among them
  std::size_t line = 0;  // of the compressed table, 1-based
};

struct CompressedTable {
  std::string text;
  std::size_t rows_before = 0;
  std::size_t rows_after = 0;
  std::vector<MadeRange> ranges;
};

/// The table as ranges (tuned/compress.h): the rows that stay keep their bytes, those that became ranges get
/// m_from and a regret of 0 (in columns at the end where the header lacks them). Reads its own text back and
/// compares every tuned M; a difference is an error (`internal`). `file`: one row a key, as merge_tables()
/// writes it.
Result<CompressedTable> compress_table(const TunedFile& file);

}  // namespace gemmtune
