// Is this output right? Both gates of docs/measuring.md over one output.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "problem/problem.h"
#include "verify/reference.h"

namespace gemmtune {

/// Tolerances of a problem: one row a rule in tolerance.cpp, with its reasoning.
struct Tolerance {
  double absolute = 0.01;  // AITER's element test: |out − ref| > absolute + relative · |ref|
  double relative = 0.01;
  double largest_err_ratio = 0.05;  // --errRatio
  double largest_frobenius = 0;     // ‖out − ref‖ / ‖ref‖
  double element_factor = 0;        // |out − ref| ≤ element_factor · Σ|x||w| + rounding of y's type
  double output_epsilon = 0;        // half a unit in the last place of y's type
  double largest_misrounded = 1;  // share of elements that differ from the rounded reference (16-bit outputs)
};

Tolerance tolerance_for(const Problem& problem, double largest_err_ratio);

struct CheckReport {
  bool right = false;
  std::string reason;    // why it is wrong: a fixed phrase, then numbers; empty where right
  double err_ratio = 1;  // AITER's column
  double frobenius = 0;
  double misrounded = 0;
  std::int64_t worst_row = -1;  // of the element with the largest excess
  std::int64_t worst_column = -1;
};

/// `output` is y as [M, ldy] elements of y's type, of which the first N of each row count. NaN or infinity
/// where the reference has none is wrong whatever the ratios say.
CheckReport check_output(const Problem& problem, const Reference& reference,
                         std::span<const std::byte> output, std::int64_t ldy, const Tolerance& tolerance);

}  // namespace gemmtune
