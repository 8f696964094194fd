// Elements of operands in memory, for kernels written in tests.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "backends/backend.h"
#include "numbers/bfloat16.h"
#include "problem/problem.h"

namespace gemmtune::testing {

inline std::int64_t element_size(DataType type) { return bits(type) / 8; }

inline float load_element(DataType type, const void* base, std::int64_t index) {
  if (type == DataType::f32) {
    float value = 0;
    std::memcpy(&value, static_cast<const std::byte*>(base) + 4 * index, 4);
    return value;
  }
  if (bits(type) == 8) return traits(type).to_f32(element_bits(type, base, index));
  std::uint16_t value = 0;
  std::memcpy(&value, static_cast<const std::byte*>(base) + 2 * index, 2);
  return type == DataType::bf16 ? bf16_to_f32(value) : f16_to_f32(value);
}

/// Elements `step` apart, from `first` on.
inline void load_row(DataType type, const void* base, std::int64_t first, std::vector<float>& row,
                     std::int64_t step = 1) {
  for (std::size_t i = 0; i < row.size(); ++i)
    row[i] = load_element(type, base, first + static_cast<std::int64_t>(i) * step);
}

inline void store(DataType type, void* base, std::int64_t index, float value) {
  if (type == DataType::f32) {
    std::memcpy(static_cast<std::byte*>(base) + 4 * index, &value, 4);
    return;
  }
  const std::uint16_t narrow = type == DataType::bf16 ? f32_to_bf16(value) : f32_to_f16(value);
  std::memcpy(static_cast<std::byte*>(base) + 2 * index, &narrow, 2);
}

/// Scales, adds the bias and rounds, as every kernel does at its end.
inline void store_element(const Problem& problem, const Operands& operands, std::int64_t row,
                          std::int64_t column, float sum) {
  if (problem.scale_ab)
    sum = sum * *static_cast<const float*>(operands.x_scale) * *static_cast<const float*>(operands.w_scale);
  if (problem.bias) sum += load_element(problem.y_type, operands.bias, column);
  store(problem.y_type, operands.y, row * operands.ldy + column, sum);
}

}  // namespace gemmtune::testing
