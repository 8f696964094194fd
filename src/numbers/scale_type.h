// The number formats of scales.
#pragma once

#include <cstdint>

namespace gemmtune {

enum class ScaleType {
  none,
  f32,
  e8m0,  // 2^(byte − 127); 255 is NaN
  e4m3,  // f8_e4m3fn
  bf16,
  f16,
};

/// Bytes of one scale; 0 of none.
std::int64_t bytes_of(ScaleType type);
/// Scale `index` of an array as a number, exact; 1 of none. `scales` needs no alignment.
double scale_value(ScaleType type, const void* scales, std::int64_t index);

}  // namespace gemmtune
