// AITER's tuned CSV of bf16 (a16w16): every header state in, rows of others byte for byte out.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "tuned/entry.h"

namespace gemmtune {

struct TunedFile {
  std::string path;
  bool has_gfx = true;
  std::vector<TunedEntry> entries;      // rows that mean something; invalid times included
  std::vector<std::string> complaints;  // file:line, column, value, expected
};

/// A zero-byte or header-only file has no entries. A header without the key columns (M, N, K, dtype) or
/// without a time is an error that names them; one without cu_num (2024) has entries that answer no device.
/// With `strict` a bad row is an error.
Result<TunedFile> read_tuned_csv(const std::string& path, bool strict = false);

enum class CsvSchema { aiter, seed };  // with and without a leading gfx column

struct PublishOptions {
  CsvSchema schema = CsvSchema::aiter;  // of a new file; an existing one keeps its own
  bool sort = false;                    // rows by gfx, cu_num, N, M, K, the rest of the key
  // The JSON object behind the entries' `env` hash, merged into <path>.env.json; may be empty. Where the
  // entries have several hashes: an object of hash → object.
  std::string environment_json;
};

/// Under <path>.lock (links of `path` resolved first): reads the file again, replaces the rows of the same
/// keys in place, appends the new ones, and keeps every other byte: rows of other devices, unknown columns,
/// comments, blank lines, line ends. A row that already says the same keeps its bytes too, so publishing
/// twice changes nothing. Columns that the header lacks are appended to it where a written row has something
/// for them; old rows stay short. <path>.env.json is merged and synced before the file is renamed; a damaged
/// one is kept as <path>.env.json.damaged.
///
/// A key has one row: further rows of a published key are removed, and of two entries with one key the later
/// counts. An entry without a valid time never replaces a row with one. Errors (the file is then as it was):
/// a non-AMD row into a file without gfx, a file without cu_num, a problem that AITER's columns cannot hold
/// (other operations, column-major operands, alignment above 16), and what the operating system refuses.
Status publish(const std::string& path, const std::vector<TunedEntry>& entries,
               const PublishOptions& options);

/// The text of a new file (header and rows); for stdout and tests.
std::string write_tuned_csv(const std::vector<TunedEntry>& entries, CsvSchema schema);

/// AITER's columns as its multi-backend bf16 tuner computes them: 2·M·N·K / (us · 10⁶) and
/// (M·K + N·K + M·N) · 2 bytes / us, whatever the types (its other bf16 tuner, gradlib, takes the types'
/// bytes); both rounded to 2 decimals, half to even on the binary value; 0 where the time is not valid.
double tflops_column(const Problem& problem, double us);     // TFLOP/s
double bandwidth_column(const Problem& problem, double us);  // GB/s (10⁹)

}  // namespace gemmtune
