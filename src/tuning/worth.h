// What tuning can gain before it is done: each shape's default is timed beside the kernels that a search tries first, and what
// the whole search adds to those is known from recorded runs. tests/tuning/worth_test.cpp holds the intervals to recordings.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "evaluate/evaluator.h"
#include "measure/statistics.h"
#include "tuning/tune_request.h"

namespace gemmtune {

/// One shape. Speed-ups are the default's time over that of the kernel that tuning would choose, at least 1.
struct ShapeWorth {
  ShapeRow shape;
  double default_microseconds = 0;  // 0: it was not timed
  std::string default_kernel;
  std::string best_kernel;          // of those that were tried; the default where none was faster
  double best_microseconds = 0;     // by its ratio to the default in paired rounds
  std::optional<Interval> seen;     // 95 %, of the ratio of these two
  double roof_microseconds = 0;     // reading the weight alone; 0: not known
  std::size_t tried = 0;            // kernels
  std::size_t kernels = 0;          // that take the shape …
  std::size_t expected = 0;         // … and that a whole search would try
  double speedup = 1;               // expected
  Interval speedup_interval{1, 1};  // 95 %
  std::string why_not;              // it was not measured, and counts for nothing
};

struct Worth {
  std::vector<ShapeWorth> shapes;
  double default_microseconds = 0;  // calls x default's time of those that were measured
  std::size_t measured = 0;
  double saved_share = 0;         // expected, of that time
  Interval saved_interval{0, 0};  // 95 %
  double seconds = 0;             // that measuring took
};

/// `request`: as of tune(), whose search it begins; its output is not read or written. Within about `seconds` (0: 32 kernels of each
/// shape); shapes in the order of calls x size, so that those that are left out matter least. `on_shape`
/// is called after each. An error is the evaluator's.
Result<Worth> estimate_worth(
    const Device& device, Evaluator& evaluator, const TuneRequest& request, double seconds,
    const std::function<void(const ShapeWorth&, std::size_t done, std::size_t count)>& on_shape);

/// The speed-up that the whole search reaches, from what its first kernels did. `ratio`: default over the best of them;
/// `tried` were looked at of those that a whole search would try; `roof_share`: the roof's time over the default's, 0 if not known.
struct ExpectedSpeedup {
  double speedup = 1;
  Interval interval{1, 1};
};
ExpectedSpeedup expected_speedup(double ratio, std::optional<Interval> seen, std::size_t tried,
                                 std::size_t expected_kernels, double roof_share);

/// Adds the shapes up: their shares of the time, and an interval for which half of what each may be off is common to all.
void add_up(Worth& worth);

}  // namespace gemmtune
