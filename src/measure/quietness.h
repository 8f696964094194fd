// How quiet the machine was. Busy neighbours, throttling and stalls slow down the drift reference: a kernel
// that is timed once in each round and takes no part in the decision, so that leaving a round out by its time
// favours no candidate.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace gemmtune {

/// Rounds of one decision.
struct Quietness {
  int rounds = 0;     // that were used
  int disturbed = 0;  // of these: used although disturbed, because there were too few quiet ones
  int repeated = 0;   // further ones that were measured and left out

  /// More than a quarter of the rounds were disturbed even after repeating.
  bool busy() const { return disturbed * 4 > rounds; }
  Quietness& operator+=(const Quietness& other);
  friend bool operator==(const Quietness&, const Quietness&) = default;
};

/// How disturbed each round was: the drift reference's time as a share of the longest time that counts as
/// quiet. That is the quiet level plus 10 % (`min_excess`), or plus what quiet rounds differ by if that is
/// more. The quiet level is the first quartile, so that it holds while up to three quarters of the rounds are
/// slow; quiet rounds differ by four times the distance from there to the fastest. 0 for a time that is not
/// finite, and with fewer than `min_rounds_for_level` rounds. `known_microseconds` is the quiet level of the
/// same reference in earlier rounds (infinity: none): if it is lower by more than 5 %, it is used instead, so
/// that a machine that is slow from the first round to the last counts as disturbed too.
std::vector<double> disturbance(std::span<const double> reference_microseconds,
                                double known_microseconds = std::numeric_limits<double>::infinity(),
                                double min_excess = 0.10);
/// The level that disturbance compares with: the first quartile; infinity with fewer than
/// min_rounds_for_level rounds.
double quiet_level(std::span<const double> reference_microseconds);
inline constexpr std::size_t min_rounds_for_level = 5;

}  // namespace gemmtune
