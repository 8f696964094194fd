// How a table serves a workload: which level answers each call, and what that is in time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tuned/table.h"

namespace gemmtune {

/// One shape of a workload.
struct WorkloadShape {
  Problem problem;
  std::int64_t calls = 1;
};

struct ServedShape {
  const WorkloadShape* shape = nullptr;
  Match match = Match::untuned;
  const TunedEntry* row = nullptr;  // null where untuned; owned by the table
  double us = 0;                    // of one call: the row's, else estimated; 0: nothing to estimate from
  bool estimated = false;
};

struct LevelShare {
  std::size_t shapes = 0;
  double calls = 0;
  double us = 0;  // of all calls
};

struct Coverage {
  std::vector<ServedShape> shapes;               // as given
  std::array<LevelShare, match_count> levels{};  // by Match
  LevelShare total;
  double median_tflops = 0;  // that the table's rows achieve; 0: none
  const LevelShare& at(Match match) const { return levels[static_cast<std::size_t>(match)]; }
};

/// The time of an answered call is its row's, also where the row's M is another; an untuned call, and one that a bucket
/// answers, which has no time, is estimated at the median rate of the rows of its operation on this device, else of all rows of the operation.
Coverage cover(const TunedTable& table, const std::string& gfx, int cu_num,
               std::span<const WorkloadShape> workload, bool fewer_threads = true);

/// The untuned shapes, most calls first, at most `count`.
std::vector<const ServedShape*> worst_misses(const Coverage& coverage, std::size_t count);

}  // namespace gemmtune
