// The M axis of one weight: which M to measure next, and which intervals of M one kernel may answer. It sees
// names and numbers, no machine, so that every rule can be tested on a cost landscape on paper. The rules and
// their reasoning: docs/measuring.md, "The M axis".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tuning/m_range.h"

namespace gemmtune {

struct MQuestion {
  enum class Kind {
    none,     // the whole axis is settled
    tune,     // the full search at m
    compare,  // the kernels, and the default, by paired rounds at m
    check,    // is kernels[0] right for the row of m that begins at m_from?
  };
  Kind kind = Kind::none;
  std::int64_t m = 0;
  std::vector<std::string> kernels;
  std::int64_t m_from = 0;  // of check

  friend bool operator==(const MQuestion&, const MQuestion&) = default;
};

/// How one kernel did at one M.
struct MRegret {
  std::string kernel;
  double regret = 0;       // its time over the fastest's there, minus 1
  bool may_answer = true;  // right, of the group's weight layout and not slower than the default
};

/// A row of the group: `kernel` for every M of [first, last].
struct MInterval {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::string kernel;
  double regret = 0;  // the largest that was measured at an M of it

  friend bool operator==(const MInterval&, const MInterval&) = default;
};

/// The M at which every range is tuned first: first, last and the powers of two between.
std::vector<std::int64_t> first_ms(const MRange& range);

/// The multiples at which boundaries between kernels are looked for first: 1 up to M = 16, above it the fine
/// step by which dispatch pads an M without a row.
std::int64_t m_step(std::int64_t m);

/// The state of one group:
///   for (MQuestion q = planner.next(); q.kind != MQuestion::Kind::none; q = planner.next()) answer q;
/// Each question has one answer. Deterministic: the same answers lead to the same questions. The number of
/// questions is bounded by the steps of the range and small where costs are smooth.
class MRangePlanner {
 public:
  /// `regret`: a kernel fits at an M where it costs at most this share more than the fastest (or the noise
  /// that was measured there, where that is larger).
  MRangePlanner(MRange range, double regret);

  MQuestion next() const;

  /// The answer to tune: the winner (empty: no kernel runs there) and who came close, best first.
  void tuned(std::int64_t m, const std::string& winner, std::vector<std::string> runners_up);
  /// The answer to compare. Kernels that are missing did not run; the default is not in the question.
  void compared(const MQuestion& question, const std::vector<MRegret>& regrets, double noise_floor);
  /// The answer to check: the M at which the kernel is wrong or does not run, nullopt: it is right.
  void checked(const MQuestion& question, std::optional<std::int64_t> wrong_at);

  /// What may be published so far, ascending: from the left end on the ranges that were verified and checked
  /// and that do not grow any more; behind them the tuned M alone, each with its own winner. Where next() has
  /// no question this is the whole answer.
  std::vector<MInterval> intervals() const;
  /// The share of the axis, in log M, whose answer is decided.
  double settled_share() const;
  /// The tuned M.
  std::size_t tuned_count() const;

 private:
  struct Point {
    bool tuned = false;
    bool compared = false;
    bool needs_tuning = false;
    std::string winner;
    std::vector<std::string> runners_up;
    std::map<std::string, double> fits;  // kernel → regret
    std::set<std::string> measured;      // fitting or not
  };
  using Kernels = std::set<std::string>;
  using Bounds = std::pair<std::int64_t, std::int64_t>;
  struct Cover {
    std::vector<MInterval> closed;      // the next one has begun, or the axis ends
    std::optional<Bounds> unsettled{};  // the first segment that has no answer yet
  };
  class CoverBuilder;

  Kernels fitting(std::int64_t m) const;
  bool ran_nothing(std::int64_t m) const;
  /// Kernels that may answer every M between two neighbouring points, ends included.
  Kernels verified(std::int64_t a, std::int64_t b) const;
  bool is_settled(std::int64_t a, std::int64_t b) const;
  Cover cover() const;
  bool is_checked(const MInterval& interval) const;
  std::vector<std::string> best_fitting(std::int64_t m) const;
  std::vector<std::string> challengers(std::int64_t m) const;
  std::optional<MQuestion> missing_comparison(std::int64_t m, std::int64_t other) const;
  MQuestion boundary_question(std::int64_t a, std::int64_t b) const;
  MQuestion verifying_question(std::int64_t a, std::int64_t b, const Kernels& both) const;
  void note_inner(std::int64_t m);

  double regret_;
  std::map<std::int64_t, Point> points_;
  std::map<Bounds, std::array<std::int64_t, 3>> halves_;  // of segments whose mid-point was verified
  std::set<std::pair<std::int64_t, std::string>> wrong_;
  std::set<std::tuple<std::int64_t, std::int64_t, std::string>> checked_;
};

}  // namespace gemmtune
