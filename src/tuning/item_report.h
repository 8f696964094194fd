// What the tuner reports: of a shape or a weight, and of the run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/evaluator.h"
#include "formats/shapes/shape_list.h"
#include "measure/policy.h"
#include "select/finals.h"
#include "tuned/entry.h"

namespace gemmtune {

enum class ProblemState {
  tuned,
  kept_default,
  skipped_done,
  unsupported,
  failed,
  out_of_budget,
  interrupted
};
std::string_view to_string(ProblemState state);

/// What the report of a range of M has beside that of a shape.
struct RangeFigures {
  std::vector<std::string> failures;  // "M = 17: why no kernel runs there"
  std::size_t searched = 0;           // M with the full search
  std::size_t compared = 0;           // M with paired rounds of known kernels
  int finals_calls = 0;               // of those rounds
  double settled_share = 0;           // of the axis in log M; 1: all of it
};

/// A shape, or a weight over a range of M, and its result.
struct ItemReport : FinalsFigures {
  ShapeRow shape;  // of a range: M is its last, the calls are those of all shapes of the weight
  ProblemState state = ProblemState::failed;  // of a range kept_default: every row has the default kernel
  std::string reason;                         // for all but tuned and kept_default
  bool repeats = false;          // skipped_done because an earlier shape of the list is the same problem
  std::vector<TunedEntry> rows;  // of a shape at most one; of a range ascending in M, with m_from and regret
  std::vector<Trial> trials;     // every candidate that was looked at; empty for a range
  std::vector<std::string> refusals;  // "family: why it does not take the problem"; of a range at its last M
  std::string
      default_fault;  // of a row without a usable default: what is wrong with it, or why it has no time
  double seconds = 0;
  std::optional<RangeFigures> range{};

  /// The row of a shape; null for none.
  const TunedEntry* row() const { return rows.empty() ? nullptr : &rows.front(); }
};

struct RunSummary {
  std::vector<ItemReport>
      items;                  // shapes in the order of the request, or weights in the order of their first
  double seconds = 0;         // without those …
  double waited_seconds = 0;  // … in which a worker waited for another program that was timing
  double geometric_mean_speedup = 0;  // over rows with a baseline; 0: none
  std::int64_t candidates = 0;
  std::size_t confirmed = 0;  // rows with a confirmation pass
  std::size_t revised = 0;    // rows of these with another kernel after it
  double pass_deviation = 0;  // of a ratio between passes, select/confirmation.h
};

}  // namespace gemmtune
