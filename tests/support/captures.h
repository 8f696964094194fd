// An operation's captured CSV joined with its side store.
#pragma once

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "formats/capture/capture_file.h"

namespace gemmtune {

struct CapturedRow : CapturedProblem {
  std::size_t line = 0;  // of the CSV, 1-based; 0: its header cannot express the problem
};

struct Capture {
  std::vector<CapturedRow> problems;     // those of the CSV in its order, then those without a line
  std::vector<std::string> diagnostics;  // rows that cannot be read, and a side store that cannot
};

/// A problem that nobody counted has no calls. Both files missing is `not_found`.
inline Result<Capture> read_capture(const std::string& untuned_path, OperationForm operation) {
  Capture capture;
  CallStore counted;
  if (auto store = read_call_store(calls_path(untuned_path)); store.ok()) {
    counted = std::move(*store);
  } else {
    capture.diagnostics.push_back(store.message());
  }
  ShapeListOptions options;
  options.operation = operation;
  auto list = read_shape_list(untuned_path, options);
  if (!list.ok() && (list.code() != StatusCode::not_found || counted.empty())) return list.status();
  if (list.ok()) {
    for (std::string& diagnostic : list->diagnostics) capture.diagnostics.push_back(std::move(diagnostic));
    for (const ShapeRow& row : list->rows) {
      CapturedProblem known;
      known.problem = problem_of_row(row.problem);
      if (auto node = counted.extract(print(known.problem)); !node.empty()) known = std::move(node.mapped());
      capture.problems.push_back({std::move(known), row.line});
    }
  }
  for (auto& [name, rest] : counted) capture.problems.push_back({std::move(rest)});
  return capture;
}

}  // namespace gemmtune
