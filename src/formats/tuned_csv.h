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

/// A zero-byte or header-only file has no entries. A header without the key columns is an error that names
/// them.
Result<TunedFile> read_tuned_csv(const std::string& path, bool strict = false);

enum class CsvSchema { aiter, seed };  // with and without a leading gfx column

struct PublishOptions {
  CsvSchema schema = CsvSchema::aiter;  // of a new file; an existing one keeps its own
  bool sort = false;                    // gfx, cu_num, N, M, K, the rest of the key
  std::string
      environment_json;  // object text to merge under its `env` hash into <path>.env.json; may be empty
};

/// Under <path>.lock: reads `path` again, replaces the rows of the same keys, appends the new ones, keeps
/// every other byte, writes <path>.env.json first, then renames. A row of a non-AMD device into a file
/// without gfx is an error.
Status publish(const std::string& path, const std::vector<TunedEntry>& entries,
               const PublishOptions& options);

/// The text of a new file (header and rows); for stdout and tests.
std::string write_tuned_csv(const std::vector<TunedEntry>& entries, CsvSchema schema);

/// AITER's columns: tflops and bw of a row by the family's formula and rounding (compatibility of gradlib's
/// tables).
double tflops_column(const Problem& problem, double us);
double bandwidth_column(const Problem& problem, double us);

}  // namespace gemmtune
