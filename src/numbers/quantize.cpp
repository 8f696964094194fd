#include "numbers/quantize.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "numbers/minifloat.h"

namespace gemmtune {
namespace {

std::uint8_t encode(QuantizedType type, float value) {
  switch (type) {
    case QuantizedType::f8_e4m3fn:
      return f32_to_f8_e4m3fn(value);
    case QuantizedType::f8_e4m3fnuz:
      return f32_to_f8_e4m3fnuz(value);
    case QuantizedType::i8:
      break;
  }
  const float rounded = std::nearbyint(std::clamp(value, -127.0F, 127.0F));
  return std::bit_cast<std::uint8_t>(static_cast<std::int8_t>(rounded));
}

struct Region {
  std::int64_t first_row = 0;
  std::int64_t first_column = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

template <typename Visit>
void for_each(const FloatMatrix& matrix, const Region& region, Visit visit) {
  for (std::int64_t row = region.first_row; row < region.first_row + region.rows; ++row)
    for (std::int64_t column = region.first_column; column < region.first_column + region.columns; ++column)
      visit(row, column, matrix.values[row * matrix.leading + column]);
}

float largest_magnitude(const FloatMatrix& matrix, const Region& region) {
  float largest = 0;
  for_each(matrix, region,
           [&](std::int64_t, std::int64_t, float value) { largest = std::max(largest, std::fabs(value)); });
  return largest;
}

}  // namespace

float largest_number(QuantizedType type) {
  if (type == QuantizedType::i8) return 127;
  return type == QuantizedType::f8_e4m3fn ? 448 : 240;
}

void quantize(const FloatMatrix& matrix, QuantizedType type, const ScaleBlocks& blocks, void* elements,
              float* scales) {
  auto* out = static_cast<std::uint8_t*>(elements);
  for (std::int64_t row = 0; row < matrix.rows; row += blocks.block_rows)
    for (std::int64_t column = 0; column < matrix.columns; column += blocks.block_columns) {
      const Region region{row, column, std::min(blocks.block_rows, matrix.rows - row),
                          std::min(blocks.block_columns, matrix.columns - column)};
      const float largest = largest_magnitude(matrix, region);
      const float scale = largest > 0 ? largest / largest_number(type) : 1;
      *scales++ = scale;
      for_each(matrix, region, [&](std::int64_t r, std::int64_t c, float value) {
        out[r * matrix.columns + c] = encode(type, value / scale);
      });
    }
}

void quantize_per_tensor(const FloatMatrix& matrix, QuantizedType type, void* elements, float* scale) {
  quantize(matrix, type, {std::max<std::int64_t>(matrix.rows, 1), std::max<std::int64_t>(matrix.columns, 1)},
           elements, scale);
}
void quantize_per_token(const FloatMatrix& matrix, QuantizedType type, void* elements, float* scales) {
  quantize(matrix, type, {1, std::max<std::int64_t>(matrix.columns, 1)}, elements, scales);
}
void quantize_1x128(const FloatMatrix& matrix, QuantizedType type, void* elements, float* scales) {
  quantize(matrix, type, {1, scale_block}, elements, scales);
}
void quantize_128x128(const FloatMatrix& matrix, QuantizedType type, void* elements, float* scales) {
  quantize(matrix, type, {scale_block, scale_block}, elements, scales);
}

void quantize_mxfp4(const FloatMatrix& matrix, std::uint8_t* elements, std::uint8_t* scales) {
  for (std::int64_t row = 0; row < matrix.rows; ++row)
    for (std::int64_t column = 0; column < matrix.columns; column += mx_block) {
      const float largest = largest_magnitude(matrix, {row, column, 1, mx_block});
      // 4 = 2² is e2m1's largest power of two; a quarter of the largest magnitude has its exponent less two.
      const std::uint8_t scale = largest > 0 ? f32_to_e8m0(largest * 0.25F) : 127;
      *scales++ = scale;
      const float factor = e8m0_to_f32(scale);
      const float* from = matrix.values + row * matrix.leading + column;
      for (std::int64_t i = 0; i < mx_block; i += 2)
        *elements++ =
            static_cast<std::uint8_t>(f32_to_e2m1(from[i] / factor) | f32_to_e2m1(from[i + 1] / factor) << 4);
    }
}

}  // namespace gemmtune
