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

/// Which rounds were disturbed, ascending: those whose canary took longer than the quiet rounds' by more than
/// 10 %, or by more than quiet rounds differ, where that is larger. The quiet level is the first quartile,
/// so that it holds while up to three quarters of the rounds are slow; what quiet rounds differ by is four
/// times the distance from there to the fastest. A canary that is not finite says nothing of its round.
/// Fewer than `least_rounds_to_judge` rounds are not judged. `known_microseconds` is the quiet level of the
/// same canary in earlier rounds (infinite: none): where it is lower by more than 5 %, it counts, so that a
/// machine that is slow from the first round to the last is seen too.
std::vector<std::size_t> disturbed_rounds(
    std::span<const double> canary_microseconds,
    double known_microseconds = std::numeric_limits<double>::infinity());
/// The level that disturbed_rounds compares with: the first quartile; infinite where there are too few
/// rounds.
double quiet_level(std::span<const double> canary_microseconds);
inline constexpr std::size_t least_rounds_to_judge = 5;

}  // namespace gemmtune
