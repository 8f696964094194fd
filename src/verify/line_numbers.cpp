#include "verify/line_numbers.h"

#include <algorithm>
#include <cmath>

namespace gemmtune {
namespace {}  // namespace

bool scales_pass_float(const ScaleRange& x, const ScaleRange& w) {
  constexpr double max_element = 448;  // of the types that have scales
  return std::max(x.largest, w.largest) * max_element > max_float || x.largest * w.largest > max_float;
}

double reach_of(double magnitude, const ScaleRange& x, const ScaleRange& w) {
  return magnitude == 0 ? 0 : magnitude / x.smallest / w.smallest;
}

Expected expected_of(const LineNumbers& x, const LineNumbers& w, DataType y_type) {
  // Before or behind the sum: an infinite scale makes NaN of a zero, and an infinity of a sum.
  if (std::isinf(x.scales.largest) || std::isinf(w.scales.largest)) return Expected::not_finite;
  if (x.has_nan || w.has_nan) return Expected::nan;
  if (x.has_infinity || w.has_infinity) return Expected::not_finite;
  if (scales_pass_float(x.scales, w.scales)) return Expected::anything;
  // Cauchy and Schwarz, and a little for roundings.
  const double bound = 1.01 * (x.norm * w.norm + w.bias);
  if (reach_of(bound, x.scales, w.scales) > max_float) return Expected::anything;
  return std::isinf(round_to(y_type, bound)) ? Expected::number_or_infinity : Expected::number;
}

bool may_be(double not_finite, const ExactElement& exact, DataType y_type) {
  if (std::isinf(exact.reach)) return true;
  if (std::isnan(exact.value)) return std::isnan(not_finite);
  if (std::isinf(exact.value))
    return not_finite == exact.value || (std::isnan(not_finite) && exact.reach > max_float);
  // The sums of what is positive, and of what is negative.
  const bool above = (exact.reach + exact.value) / 2 + exact.error > max_float;
  const bool below = (exact.reach - exact.value) / 2 + exact.error > max_float;
  if (std::isnan(not_finite)) return above && below;
  const bool up = not_finite > 0;
  if (up ? above : below) return true;
  return round_to(y_type, exact.value + (up ? exact.error : -exact.error)) == not_finite;
}

}  // namespace gemmtune
