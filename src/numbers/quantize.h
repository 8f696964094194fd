// Quantizers: float32 matrices to small types and the scales that undo it, value ≈ element · scale. All are
// symmetric (no zero point), with the scale largest magnitude / largest number of the type, 1 where a block
// is zero; elements are rounded to nearest even and saturate. Operands in these forms are what docs/guide.md
// describes.
#pragma once

#include <cstdint>

namespace gemmtune {

inline constexpr std::int64_t scale_block = 128;  // of the block-scaled operations: along k, and of w along n
inline constexpr std::int64_t mx_block = 32;      // of MXFP4, along k

/// Row-major; `leading` elements from row to row.
struct FloatMatrix {
  const float* values = nullptr;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t leading = 0;
};

enum class QuantizedType { i8, f8_e4m3fn, f8_e4m3fnuz };

/// 127, 448, 240.
float largest_number(QuantizedType type);

/// One scale for each block of `block_rows` × `block_columns`, row-major: scales [⌈rows/block_rows⌉,
/// ⌈columns/block_columns⌉]; `elements` is dense [rows, columns]. Requires blocks of at least 1 × 1; neither
/// output may overlap the matrix.
struct ScaleBlocks {
  std::int64_t block_rows = 1;
  std::int64_t block_columns = 1;
};
void quantize(const FloatMatrix& matrix, QuantizedType type, const ScaleBlocks& blocks, void* elements,
              float* scales);

/// One scale.
void quantize_per_tensor(const FloatMatrix& matrix, QuantizedType type, void* elements, float* scale);
/// A scale a row: a token of x, an output channel of w.
void quantize_per_token(const FloatMatrix& matrix, QuantizedType type, void* elements, float* scales);
/// Scales [rows, ⌈columns/128⌉]: x of the block-scaled operations.
void quantize_1x128(const FloatMatrix& matrix, QuantizedType type, void* elements, float* scales);
/// Scales [⌈rows/128⌉, ⌈columns/128⌉]: w of the block-scaled operations.
void quantize_128x128(const FloatMatrix& matrix, QuantizedType type, void* elements, float* scales);

/// MXFP4 (OCP Microscaling Formats 1.0, 6.3): e2m1, two to a byte, the even column in the low half; an e8m0
/// scale for every 32 columns, 2^(⌊log₂ largest magnitude⌋ − 2). `elements` [rows, columns/2], `scales`
/// [rows, columns/32]. Requires columns to be a multiple of 32.
void quantize_mxfp4(const FloatMatrix& matrix, std::uint8_t* elements, std::uint8_t* scales);

}  // namespace gemmtune
