// Shape lists in: AITER's untuned CSV of bf16 (every header state), YAML of gemm sizes, standard input.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
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
  std::vector<ShapeRow> rows;  // duplicates removed, first kept, calls added up
  std::vector<std::string>
      complaints;  // "file:line: column M: value '-3', expected a whole number of at least 1"
};

struct ShapeListOptions {
  std::optional<Operation> operation;  // --op; nullopt: from header or file name
  std::optional<DataType> x_type;      // --indtype
  std::optional<DataType> y_type;      // --outdtype
  bool strict = false;                 // a bad row is an error
};

/// A missing key column, an unreadable file and a file without any good row are errors; single bad rows
/// become complaints (M = 0, negative, above 2³¹ − 1 …) and the rest is used. A tuned file may serve as a
/// shape list.
Result<ShapeList> read_shape_list(const std::string& path, const ShapeListOptions& options);
/// As AITER's untuned CSV plus `calls` (and `layer` where any row has one).
std::string write_shape_list(const std::vector<ShapeRow>& rows);

}  // namespace gemmtune
