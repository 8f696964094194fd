// AITER's tuned CSVs of every operation: every header state in, rows of others byte for byte out.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "formats/csv/columns.h"
#include "formats/csv/csv.h"
#include "tuned/entry.h"

namespace gemmtune {

struct TunedFile {
  std::string path;
  bool has_gfx = true;
  Columns columns;                       // of its header; columns.schema() is its table
  std::vector<TunedEntry> entries;       // rows that mean something; invalid times included
  std::vector<std::string> diagnostics;  // file:line, column, value, expected
  CsvDocument document;                  // its bytes and lines
  std::size_t header = 0;                // index of the header in document.lines; lines.size(): none

  const Schema& schema() const { return columns.schema(); }
};

/// A row that means nothing: it has no entry.
struct UnreadRow {
  std::size_t line = 0;
  std::string why;
};
/// Every row of the file without an entry; diagnostics of other rows speak of single cells.
std::vector<UnreadRow> unread_rows(const TunedFile& file);

struct TunedReadOptions {
  std::optional<OperationForm> operation{};  // nullopt: from the header or the file name
  bool strict = false;                       // a bad row is an error
  bool keeps_cells = false;                  // what a row says beside its key is written again byte for byte
};

/// A file of another format is an error that says which. A zero-byte or header-only file has no entries. A
/// header without key columns, or without a time, is an error that names them; one
/// without cu_num (2024) has entries that answer no device. Rows with a time that can never be chosen are
/// kept.
Result<TunedFile> read_tuned_csv(const std::string& path, const TunedReadOptions& options = {});
/// The same from memory; `source` stands for the path in messages, and names the table if the header does
/// not.
Result<TunedFile> parse_tuned_csv(std::string source, std::string content,
                                  const TunedReadOptions& options = {});

enum class CsvSchema { aiter, seed };  // with and without a leading gfx column

struct PublishOptions {
  CsvSchema schema = CsvSchema::aiter;  // of a new file; an existing one keeps its own
  bool sort = false;                    // rows by gfx, cu_num, N, M, K, the rest of the key
  // The JSON object behind the entries' `env` hash, merged into <path>.env.json; may be empty. Where the
  // entries have several hashes: an object of hash → object.
  std::string environment_json;
};

/// ok if AITER's columns hold the problem: row-major operands, an alignment of at most 16; else `unsupported`.
Status check_expressible(const Problem& problem);

/// Under <path>.lock (links of `path` resolved first): reads the file again, replaces the rows of the same
/// keys in place, appends the new ones, and keeps every other byte: rows of other devices, unknown columns,
/// comments, blank lines, line ends. A row that already says the same keeps its bytes too, so publishing
/// twice changes nothing. Columns that the header lacks are appended to it where a written row has something
/// for them; old rows stay short. <path>.env.json is merged and synced before the file is renamed; a damaged
/// one is kept as <path>.env.json.damaged.
///
/// Rows with m_from take over the M that they answer: other ranges of the same key without M are cut from
/// below or removed (update_range), exact rows of other M stay. M that lose their range so are said in the
/// log.
///
/// A key has one row: further rows of a published key are removed, and of two entries with one key the later
/// counts. An entry that may not be chosen (tuned/choice.h) never replaces a row that may. Errors (the file is then as it was):
/// entries of several operations, or of another one than the file's, a non-AMD row into a file without gfx, a
/// file without cu_num, a problem that AITER's columns cannot hold (column-major operands, alignment above
/// 16), and what the operating system refuses.
Status publish(const std::string& path, const std::vector<TunedEntry>& entries,
               const PublishOptions& options);

/// Why rows of `gfx`, which is not AMD's, do not go into the file at `path`, which has no column gfx, and what to do.
Status no_gfx_column(const std::string& path, std::string_view gfx);

/// ok if a table without gfx, whose rows differ by cu_num alone, can hold these rows of AMD devices. An error
/// that names two rows of different architectures with one cu_num, or one whose cu_num stands for another
/// architecture (gfx_of_cu_num): it would answer for a device that it was not measured on.
Status check_without_gfx(std::span<const TunedEntry* const> rows);

/// The text of a new file (header and rows) of an operation, which all entries have. Carried cells stand as
/// they were read, those of unknown columns behind all others.
std::string write_tuned_csv(OperationForm operation, const std::vector<TunedEntry>& entries,
                            CsvSchema schema);

}  // namespace gemmtune
