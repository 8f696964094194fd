// A small seeded generator whose numbers are the same on every machine (std distributions are not).
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

namespace gemmtune {

/// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit state, full period, good enough for test data and
/// shuffles.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  /// What Random(…) takes to go on from here.
  std::uint64_t state() const { return state_; }
  /// As so many calls of next().
  void skip(std::uint64_t steps) { state_ += steps * 0x9e3779b97f4a7c15ULL; }
  /// Uniform in [0, 1).
  double uniform() { return static_cast<double>(next() >> 11) * 0x1.0p-53; }
  /// Uniform in [0, bound); requires bound > 0. The bias is below 2⁻³² for the bounds used here.
  std::uint64_t below(std::uint64_t bound) { return next() % bound; }

 private:
  std::uint64_t state_;
};

/// Fisher and Yates: every order is as likely.
template <typename Items>
void shuffle(Items& items, Random& random) {
  for (std::size_t i = items.size(); i > 1; --i)
    std::swap(items[i - 1], items[random.below(static_cast<std::uint64_t>(i))]);
}

}  // namespace gemmtune
