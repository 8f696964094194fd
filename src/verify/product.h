// x · wᵀ in float64 for some rows and columns, with what bounds its rounding errors. Inside verify/ only.
#pragma once

#include <cstdint>
#include <span>

#include "verify/dequantized.h"

namespace gemmtune {

struct ProductSource {
  const RowSource& x;
  const RowSource& w;
  std::int64_t k = 0;
  std::span<const double> bias;  // of every column of y; empty: none
  double x_floor = 0;            // is added to each |x| of the magnitudes
};

/// Which rows of x and which rows of w (columns of y) are multiplied.
struct Selection {
  std::span<const std::int64_t> rows;
  std::span<const std::int64_t> columns;
};

/// Element (i, j) of the selection at i · row_stride + j · column_stride: its value, and Σ|x||w| + |bias| of what
/// is a finite number.
struct ProductOutput {
  double* values = nullptr;
  double* magnitudes = nullptr;
  double* reaches = nullptr;  // Reference::reaches; null: not asked for
  std::int64_t row_stride = 0;
  std::int64_t column_stride = 0;
};

void multiply_selected(const ProductSource& source, const Selection& selection, const ProductOutput& output,
                       int threads);

}  // namespace gemmtune
