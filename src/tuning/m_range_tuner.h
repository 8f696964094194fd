// Tuning over the M axis: each weight (N, K, types) of a list over a range of M, as few rows as a bound of
// regret allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tuning/m_range_planner.h"
#include "tuning/tuner.h"

namespace gemmtune {

/// What is being measured now.
struct MRangeMoment {
  std::size_t group = 0;  // index into the groups
  std::size_t groups = 0;
  Problem problem;  // with the M of the question
  MQuestion::Kind kind = MQuestion::Kind::none;
  std::size_t tuned = 0;      // M of this group that had the full search
  std::size_t first_ms = 0;   // so many have it in any case
  double settled_share = 0;   // of the axis in log M; 0 until those are done
  double group_seconds = 0;   // since the group began
  double settling_begin = 0;  // the group_seconds at which the first M were done; 0: not yet
};

/// A weight and what became of its axis.
struct MRangeReport {
  ShapeRow shape;                             // M: the last of the range; calls of all its shapes
  ProblemState state = ProblemState::failed;  // kept_default: every row has the default kernel
  std::string reason;                         // for all but tuned and kept_default
  std::vector<TunedEntry> rows;               // published, ascending in M; each has m_from and regret
  std::vector<std::string> failures;          // "M = 17: why no kernel runs there"
  std::vector<std::string> refusals;          // "family: why it does not take the problem", of the last M
  std::size_t tuned = 0;                      // M with the full search
  std::size_t compared = 0;                   // M with paired rounds of known kernels
  int finals_calls = 0;                       // of those rounds
  double settled_share = 0;                   // 1: the whole axis
  double seconds = 0;
};

struct MRangeSummary {
  std::vector<MRangeReport> groups;  // in the order of their first shape
  double seconds = 0;
  double geometric_mean_speedup = 0;  // over rows with a baseline; 0: none
  std::int64_t candidates = 0;
};

/// Called by one thread at a time.
class MRangeObserver {
 public:
  virtual ~MRangeObserver() = default;
  virtual void question(const MRangeMoment& moment) = 0;
  virtual void group_done(std::size_t group, std::size_t groups, const MRangeReport& report) = 0;
};

/// Tunes every weight of request.shapes over request.m_range (required); the M of the shapes only say, with
/// their calls, which M matter where a weight layout must be chosen. Answers each question of an
/// MRangePlanner: `tune` as tune() tunes a problem, `compare` by paired rounds, `check` by the full gate at
/// the smallest M of a row. A group that the output covers already is left out unless request.all (or .stale,
/// where its rows are of another environment).
///
/// Published are, while a group is at work, its finished ranges from the left end on, and the tuned M behind
/// them as rows of one M (not where the file has a row of that M). Rows of earlier ranges go as new ones
/// cover them (see publish()). `problems` hears of each full search, with index = how many there were before
/// and count = 0, for nobody knows how many there will be. Not for fused_moe, which is looked up by token
/// tiers: its groups are `unsupported`.
Result<MRangeSummary> tune_m_ranges(Device& device, std::span<Evaluator* const> evaluators,
                                    const TuneRequest& request, MRangeObserver& observer,
                                    TuneObserver& problems);

/// The distinct weights of a list, their calls added up, with `m` rows.
std::vector<ShapeRow> weights_of(std::span<const ShapeRow> shapes, std::int64_t m);

}  // namespace gemmtune
