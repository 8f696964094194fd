// What `tune` says at the end: a table and a summary for people, one document for programs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "cli/shared/check_report.h"
#include "cli/tune/tune_buckets.h"
#include "cli/tune/tune_options.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// It ran right and has samples.
bool is_timed(const Trial& trial);
/// "tiled_r1_… 12.30 µs ±0.10, err_ratio 0.0000", or the outcome and its reason.
std::string trial_text(const Trial& trial);
/// "1x2048x2048 bf16 (qkv)".
std::string shape_text(const ShapeRow& shape);
/// "2048x2048 bf16": N, K and what else identifies a weight.
std::string weight_text(const Problem& problem);
/// "tiled_r1_… 12.30 µs, 1.234x, win" or the state and its reason.
std::string result_text(const ItemReport& report);
/// Of a range: "5 rows, 14 M searched, 32 compared, 3 min 5 s", or the state and its reason.
std::string range_result_text(const ItemReport& report);

/// What the rows' speed-ups are against: "oneDNN 2.6.3 (2022)", each once.
std::vector<std::string> opponents(const RunSummary& summary, const DeviceInfo& device);
/// Behind a line with a speed-up: ", oneDNN 2.6.3 (2022)"; empty where that is not known.
std::string opponents_text(const RunSummary& summary, const DeviceInfo& device);

/// "nothing to do: …" if every shape was in the output before.
std::optional<std::string> nothing_done_text(const RunSummary& summary, const std::string& output);

/// The line of --events about a shape that is done.
std::string problem_event(std::string_view event, std::size_t index, const ItemReport& report);

struct RunEnding {
  const RunSummary& summary;
  const ShapeList& shapes;
  const Outputs& outputs;
  const DeviceInfo& device;
  std::optional<MRange> range{};  // of --m-range
  bool interrupted = false;
  std::optional<BucketReport> buckets{};                 // of --buckets
  std::optional<std::vector<CheckedRow>> correctness{};  // of --compare in tune_gemm's mode
};

/// Table and summary, as wide as stdout (at most 120 columns; kernel names are whole where stdout is no
/// terminal).
std::string ending_text(const RunEnding& ending);
std::string ending_json(const RunEnding& ending);
/// exit_interrupted, exit_findings (failed or unsupported items, M without a kernel, rows that could not be
/// read) or exit_done.
int ending_code(const RunEnding& ending);

}  // namespace gemmtune::cli
