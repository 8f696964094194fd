// Strips of 16 rows of a plain MXFP4 weight in shared memory, as device/e2m1_strip.cuh reads them.
#pragma once

#include <cstdint>

#include "base/rounding.h"

namespace gemmtune::cuda {

/// Rows with k elements, and those of their scales. Where rows follow each other at multiples of 128 bytes in shared memory, or of 64, threads would meet in the
/// same banks: 32 bytes lie between them then, and 16 between those of their scales. Rows with gaps are copied one by one, scales only at multiples of 16 bytes.
struct StripRows {
  explicit StripRows(std::int64_t k)
      : row_bytes(k / 2),
        pitch(row_bytes + (row_bytes % 64 == 0 ? 32 : 0)),
        scale_row(k / 32),
        scale_pitch(scale_row + (scale_row % 16 == 0 ? 16 : 0)) {}
  /// Of so many rows and their scales.
  std::int64_t bytes(std::int64_t rows) const {
    return round_up(rows * (pitch + scale_pitch), std::int64_t{128});
  }

  std::int64_t row_bytes;
  std::int64_t pitch;
  std::int64_t scale_row;
  std::int64_t scale_pitch;
};

}  // namespace gemmtune::cuda
