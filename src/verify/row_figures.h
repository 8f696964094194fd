// What a comparison of one row of an output with its reference found. The host and devices fill it in alike
// (backends/gpu/verify/compare.cu has the same struct); report.h makes the report of it.
#pragma once

#include <cstdint>

namespace gemmtune {

struct RowFigures {
  // Sums of squares over the row.
  double error = 0;
  double reference = 0;
  double magnitude = 0;
  double output = 0;
  double product = 0;  // of output and reference, summed
  // Over the row, without regard to sign; max_error is against the rounded reference.
  double max_output = 0;
  double max_error = 0;
  double max_exact_error = 0;  // against the reference as it is
  // The element with the largest error for its bound, the first of equal ones; −1 where nothing was compared.
  double worst_excess = -1;  // error / bound
  double worst_output = 0;
  double worst_reference = 0;
  std::int64_t worst_column = -1;
  std::int64_t checked = 0;
  std::int64_t misrounded = 0;         // not the rounded reference
  std::int64_t outside = 0;            // of AITER's tolerance
  std::int64_t not_finite = 0;         // NaN or infinity where the reference has none; not among `checked`
  std::int64_t unwritten = 0;          // of these: poison
  std::int64_t first_not_finite = -1;  // its column
  std::int64_t padding_written = 0;    // elements behind the row (N … ldy − 1) that are poison no more
};

}  // namespace gemmtune
