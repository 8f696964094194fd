// reference, inside: elements of an operand as numbers, whatever its type, scales and layout.
#pragma once

#include <cstdint>
#include <span>

#include "backends/cpu/families/kernel_set.h"
#include "problem/operands.h"

namespace gemmtune::cpu {

/// Element `index` of an array of a type, widened.
double load_element(DataType type, const void* base, std::int64_t index);
/// Rounds to the type (f32, bf16, f16).
void store_element(DataType type, void* base, std::int64_t index, double value);

struct ReferenceOperand {
  MatrixShape shape;
  WeightLayout layout = WeightLayout::plain;
  const void* elements = nullptr;
  const void* scales = nullptr;
  const void* global_scale = nullptr;  // float32, one a matrix; null: none
  const void* zero_points = nullptr;   // int8; null: none
  std::int64_t leading = 0;            // the leading dimension, in elements; of plain layouts
  std::int64_t batch_stride = 0;       // elements from matrix to matrix; of plain layouts
  std::int64_t scale_step = 1;         // 0: one float32 scale for everything

  /// Elements (row, k) and behind of matrix `matrix`, less their zero points, times their scales: at most max_read.
  void read(std::int64_t matrix, std::int64_t row, std::int64_t k, std::span<double> out) const;
  static constexpr std::int64_t max_read = 256;

 private:
  void widen(std::int64_t matrix, std::int64_t row, std::int64_t k, std::span<float> out) const;
  std::int64_t index(std::int64_t matrix, std::int64_t row, std::int64_t k) const;
  double scale(std::int64_t matrix, std::int64_t scale_index) const;
};

}  // namespace gemmtune::cpu
