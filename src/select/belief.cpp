#include "select/belief.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gemmtune {
namespace {

constexpr double agreement = 1.2;        // of two measurings, at most
constexpr double far_off_screening = 3;  // the same kernel in screening and in rounds
constexpr double far_above_roof = 10;    // a default that a vendor ships is not that slow
constexpr double min_screened_gain = 0.03;
constexpr double screened_deviations = 3;

bool is_off(double a, double b, double factor) {
  return a > 0 && b > 0 && std::fabs(std::log(a / b)) > std::log(factor);
}

std::string off_screening(const char* kernel, double rounds, double screened) {
  if (!is_off(rounds, screened, far_off_screening)) return {};
  return fmt::format("the {} took {:.4g} us, and {:.4g} us in screening", kernel, rounds, screened);
}

}  // namespace

bool agree(double a, double b) { return a > 0 && b > 0 && !is_off(a, b, agreement); }

bool agree(const PairTimes& a, const PairTimes& b) {
  return agree(a.default_us, b.default_us) && agree(a.kernel_us, b.kernel_us);
}

std::string doubt_of(const PairEvidence& evidence) {
  const PairTimes& rounds = evidence.rounds;
  if (std::string off = off_screening("default", rounds.default_us, evidence.screened.default_us);
      !off.empty())
    return off;
  if (std::string off = off_screening("kernel", rounds.kernel_us, evidence.screened.kernel_us); !off.empty())
    return off;
  if (evidence.roof_microseconds > 0 && rounds.default_us > far_above_roof * evidence.roof_microseconds) {
    return fmt::format("the default took {:.4g} us, and reading its weight {:.4g} us", rounds.default_us,
                       evidence.roof_microseconds);
  }
  if (evidence.other_ratio && is_off(*evidence.other_ratio, rounds.ratio(), agreement)) {
    return fmt::format("the ratio to the default is {:.4g} in some rounds and {:.4g} in others",
                       *evidence.other_ratio, rounds.ratio());
  }
  return {};
}

std::string doubt_of_win(const PairEvidence& evidence) {
  if (evidence.screening_deviation <= 0) return {};
  const double margin = std::max(min_screened_gain, screened_deviations * evidence.screening_deviation);
  for (const PairTimes& times : {evidence.screened, evidence.early}) {
    const double ratio = times.ratio();
    if (ratio <= 0 || std::log(ratio) >= margin || agree(ratio, evidence.rounds.ratio())) continue;
    return fmt::format("the ratio to the default is {:.4g} in rounds and was {:.4g} in screening",
                       evidence.rounds.ratio(), ratio);
  }
  return {};
}

}  // namespace gemmtune
