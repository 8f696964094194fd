// What `tune` says at the end: a table and a summary for people, one document for programs.
#pragma once

#include <string>

#include "backends/backend.h"
#include "cli/tune/tune_options.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// "1x2048x2048 bf16 (qkv)".
std::string shape_text(const ShapeRow& shape);
/// "tiled_r1_… 12.30 µs, 1.234x, win" or the state and its reason.
std::string result_text(const ProblemReport& report);

/// The line of --events about a shape that is done.
std::string problem_event(std::string_view event, std::size_t index, const ProblemReport& report);

struct TuneEnding {
  const TuneSummary& summary;
  const ShapeList& shapes;
  const Outputs& outputs;
  const DeviceInfo& device;
  bool interrupted = false;
};

/// Table and summary, as wide as stdout (at most 120 columns; kernel names are whole where stdout is no
/// terminal).
std::string ending_text(const TuneEnding& ending);
std::string ending_json(const TuneEnding& ending);
/// exit_interrupted, exit_findings (failed or unsupported shapes, rows that could not be read) or exit_done.
int ending_code(const TuneEnding& ending);

}  // namespace gemmtune::cli
