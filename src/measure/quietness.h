// How quiet the machine was. Busy neighbours, throttling and stalls show in a canary: a kernel that is timed
// once in each round and takes no part in the decision, so that leaving a round out by its canary favours
// nobody.
#pragma once

#include <cstddef>
#include <limits>
#include <span>
#include <vector>

namespace gemmtune {

/// Rounds of one decision.
struct Quietness {
  int rounds = 0;     // that were used
  int disturbed = 0;  // of these, for want of quiet ones
  int repeated = 0;   // further ones, measured anew and thrown away

  /// More than a quarter of the rounds were disturbed even after repeating.
  bool busy() const { return disturbed * 4 > rounds; }
  Quietness& operator+=(const Quietness& other);
  friend bool operator==(const Quietness&, const Quietness&) = default;
};

/// How disturbed each round was: its canary's time as a share of the longest that counts as quiet, which is
/// the quiet rounds' and 10 % (`least_excess`) more, or what quiet rounds differ by, where that is larger.
/// The quiet level is the first quartile, so that it holds while up to three quarters of the rounds are slow;
/// what quiet rounds differ by is four times the distance from there to the fastest. 0 for a canary that is
/// not finite, which says nothing of its round, and where fewer than `least_rounds_to_judge` are there.
/// `known_microseconds` is the quiet level of the same canary in earlier rounds (infinite: none): where it is
/// lower by more than 5 %, it counts, so that a machine that is slow from the first round to the last is seen
/// too.
std::vector<double> disturbance(std::span<const double> canary_microseconds,
                                double known_microseconds = std::numeric_limits<double>::infinity(),
                                double least_excess = 0.10);
/// The level that disturbance compares with: the first quartile; infinite where there are too few
/// rounds.
double quiet_level(std::span<const double> canary_microseconds);
inline constexpr std::size_t least_rounds_to_judge = 5;

}  // namespace gemmtune
