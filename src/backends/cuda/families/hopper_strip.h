// Strips of 16 rows of a plain weight of 4 bits in shared memory, as device/e2m1_strip.cuh and moe_decode_strips.cuh read them.
#pragma once

#include <cstdint>

#include "backends/cuda/families/weight_format.h"
#include "base/rounding.h"

namespace gemmtune::cuda {

/// Rows with k elements, those of their scales and those of their zero points. Where rows follow each other at multiples of 128 bytes in shared memory, or of 64,
/// threads would meet in the same banks: 32 bytes lie between them then, and 16 between those of their scales. Of groups of 32 threads read four bytes
/// of a row, and 16 bytes lie between all rows. Rows with gaps are copied one by one, scales and zero points only at multiples of 16 bytes. A copy takes about 55 cycles however
/// short it is: short rows of NVFP4 and int4 have no gaps (docs/lab/moe_decode.md).
struct StripRows {
  explicit StripRows(std::int64_t k, const WeightTraits& weight = {})
      : row_bytes(k / 2),
        pitch(row_bytes + (is_short(row_bytes, weight) ? 0
                           : weight.group == 32        ? 16
                           : row_bytes % 64 == 0       ? 32
                                                       : 0)),
        scale_row(weight.scale_row_of(k)),
        scale_pitch(scale_row + (scale_row % 16 == 0 && !is_short(scale_row, weight) ? 16 : 0)),
        zero_row(weight.zero_row_of(k)),
        zero_pitch(zero_row + (zero_row > 0 && zero_row % 16 == 0 && !is_short(zero_row, weight) ? 16 : 0)) {}
  /// Of so many rows, their scales and their zero points.
  std::int64_t bytes(std::int64_t rows) const {
    return round_up(rows * (pitch + scale_pitch + zero_pitch), std::int64_t{128});
  }

  std::int64_t row_bytes;
  std::int64_t pitch;
  std::int64_t scale_row;
  std::int64_t scale_pitch;
  std::int64_t zero_row;
  std::int64_t zero_pitch;

 private:
  static bool is_short(std::int64_t bytes, const WeightTraits& weight) {
    constexpr std::int64_t min_apart = 2048;
    return weight.format != WeightFormat::mxfp4 && bytes < min_apart;
  }
};

}  // namespace gemmtune::cuda
