// Shape lists in: AITER's untuned CSVs of every operation (every header state), YAML of gemm sizes, standard
// input.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "formats/diagnostics.h"
#include "problem/problem.h"

namespace gemmtune {

struct ShapeRow {
  Problem problem;
  std::int64_t calls = 1;  // how often the shape runs; weights budgets and reports
  std::string layer;       // name of the layer, where the list has it
  std::size_t line = 0;    // 1-based
};

struct ShapeList {
  std::string source;
  OperationForm operation = Operation::a16w16;  // of every row, where the list is a file's
  std::vector<ShapeRow> rows;                   // duplicates removed, first kept, calls added up
  // "file:line: column M: value '-3', expected a whole number from 1 to 2147483647"
  std::vector<std::string> diagnostics;
  std::vector<std::string> notes;  // how the file was read where it does not say it itself
  std::vector<LeftOut> ignored;    // columns that the operation's list does not have, with their cells' count
};

struct ShapeListOptions {
  std::optional<OperationForm> operation;  // --op; nullopt: from header or file name
  std::optional<DataType> x_type;          // --indtype; wins over the file's dtype
  std::optional<DataType> y_type;          // --outdtype; wins over the file's outdtype
  bool strict = false;                     // a bad row is an error
  std::string output = {};  // the tuned file that the list is for: it may state the operation (TableSources)
  std::string architecture = {};  // of the device that words of types are meant for; empty: of none
};

/// Reads a CSV, or a YAML list of sizes (by its extension; without one, by its first character), "-" is
/// standard input. A colon-separated list of paths is one list: rows of one operation, duplicates removed, calls
/// added up. A list of M, N and K of which nothing states the operation is of a16w16, one of a16w16 without a type is of bf16,
/// and a note says so. A missing key column, an unreadable file, a header of another operation and a file without
/// any good row are errors, and so are Triton configs and hipBLASLt's tables; single bad rows become diagnostics, one a row (M = 0, negative, above 2³¹ − 1 …)
/// and the rest is used. A tuned file may serve as a shape list: its devices do not add up as calls.
///
/// YAML: gemm_size_yaml.h.
Result<ShapeList> read_shape_list(const std::string& paths, const ShapeListOptions& options);
/// The same from memory; `source` stands for the path.
Result<ShapeList> parse_shape_list(const std::string& source, std::string content,
                                   const ShapeListOptions& options);
/// As AITER's untuned CSV of the rows' operation, which all have, plus `calls` (and `layer` where any row has
/// one). No rows: the header of a16w16.
std::string write_shape_list(const std::vector<ShapeRow>& rows);
/// "file: not used: columns a, b (3 rows)"; empty where the whole file was used.
std::string describe_ignored(const ShapeList& list);
/// What a command prints beside the diagnostics: the notes, then describe_ignored().
std::vector<std::string> notes_of(const ShapeList& list);
/// The header alone.
std::string empty_shape_list(OperationForm operation);

}  // namespace gemmtune
