// What a running `tune` shows on a terminal: the run, its shapes, and what each worker does.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "tuned/entry.h"
#include "tuning/tuner.h"

namespace gemmtune::cli {

/// Where a shape of the run is.
enum class ShapeState { waiting, in_work, left, tuned, keeps_default, undecided, failed, not_tuned };

/// A worker and the shape that it is at.
struct LiveWorker {
  std::string name;  // of its device
  std::string shape;
  std::string doing;
  double seconds = 0;           // that it does so
  std::int64_t candidates = 0;  // tried of the shape, in this visit
  std::optional<double> best_microseconds;
  std::optional<double> default_microseconds;
  std::optional<PairedRatio> ratio = std::nullopt;  // of paired rounds, once there are some
};

struct LiveRun {
  std::vector<ShapeState> shapes;  // of those that are tuned, in the order of the request
  std::string step;                // what the run does beside tuning: "confirmation pass"
  double seconds = 0;
  std::optional<double> remaining;
  std::int64_t candidates = 0;
  double gain = 0;  // geometric mean of the rows so far; 0: none
  std::vector<LiveWorker> workers;
};

/// Lines of at most `columns`: a bar with the time left, the gain so far, a sign a shape (several shapes share one where
/// there are more than columns), and a line a worker.
std::vector<std::string> live_lines(const LiveRun& run, std::size_t columns);

/// "1.234x (1.201 to 1.260 in 15 rounds)".
std::string ratio_text(const PairedRatio& ratio);

/// ", best 10.00 µs, default 12.00 µs": of single short samples, which prove no ratio.
std::string screened_text(std::optional<double> best_microseconds,
                          std::optional<double> default_microseconds);

/// The state of a shape that is done.
ShapeState state_of(const ItemReport& report);

}  // namespace gemmtune::cli
