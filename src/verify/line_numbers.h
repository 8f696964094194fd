// What operands that are a caller's own may hold: NaN, infinities, and numbers whose sums pass the range of float32. Which results
// are right then.
#pragma once

#include <limits>

#include "numbers/data_type.h"

namespace gemmtune {

inline constexpr double max_float = std::numeric_limits<float>::max();

/// Of the scales of a row, without regard to sign, to NaN and to zeros.
struct ScaleRange {
  double largest = 0;   // 0 without scales
  double smallest = 1;  // at most 1
};

/// What is known of the numbers of one row of an operand, its bias included: what sums over it may become.
struct LineNumbers {
  bool has_nan = false;
  bool has_infinity = false;
  double norm = 0;  // root of the sum of squares of its finite numbers
  ScaleRange scales;
  double bias = 0;  // without sign
};

/// What a right result may be.
enum class Expected { number, number_or_infinity, anything, not_finite, nan };

/// A result of the two lines.
Expected expected_of(const LineNumbers& x, const LineNumbers& w, DataType y_type);

/// One element of the reference.
struct ExactElement {
  double value = 0;
  double error = 0;  // bound of what float32 sums lose of it
  double reach = 0;  // Reference::reaches
};

/// Whether a result that is NaN or an infinity is right: NaN where the exact evaluation has it, an infinity of its sign, and
/// what some order of float32 sums gives that pass its range, or a rounding to y's type.
bool may_be(double not_finite, const ExactElement& exact, DataType y_type);

/// The order in which these scales are applied decides whether a float32 result is a number.
bool scales_pass_float(const ScaleRange& x, const ScaleRange& w);
/// What no partial sum passes whose terms have this magnitude, where scales may be applied behind the sum.
double reach_of(double magnitude, const ScaleRange& x, const ScaleRange& w);

}  // namespace gemmtune
