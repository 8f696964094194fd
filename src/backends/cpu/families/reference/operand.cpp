#include "backends/cpu/families/reference/operand.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "numbers/scale_type.h"

namespace gemmtune::cpu {
namespace {

/// Bytes before element (row, k) of a packed matrix, as an index of elements of `size` bytes.
std::int64_t panel16_index(const Panel16& panel, std::int64_t row, std::int64_t k) {
  const std::int64_t first = row / Panel16::columns * panel.padded_k() * Panel16::columns;
  return first + (k / panel.pair * Panel16::columns + row % Panel16::columns) * panel.pair + k % panel.pair;
}

std::int64_t tile16_index(const Tile16& tile, std::int64_t row, std::int64_t k) {
  const std::int64_t byte = k * tile.element_bytes;
  return (tile.row_offset(row) + byte / Tile16::chunk_bytes * Tile16::rows * Tile16::chunk_bytes +
          byte % Tile16::chunk_bytes) /
         tile.element_bytes;
}

}  // namespace

double load_element(DataType type, const void* base, std::int64_t index) {
  return static_cast<double>(traits(type).to_f32(element_bits(type, base, index)));
}

void store_element(DataType type, void* base, std::int64_t index, double value) {
  const std::uint32_t element = traits(type).from_f32(static_cast<float>(value));
  const auto size = static_cast<std::size_t>(bits(type) / 8);
  std::memcpy(static_cast<char*>(base) + static_cast<std::size_t>(index) * size, &element, size);
}

std::int64_t ReferenceOperand::index(std::int64_t matrix, std::int64_t row, std::int64_t k) const {
  if (layout == WeightLayout::plain)
    return matrix * batch_stride + row * shape.row_step(leading) + k * shape.column_step(leading);
  // Packed: a byte of two elements counts as one, then the half is chosen.
  const std::int64_t halves = bits(shape.type) == 4 ? 2 : 1;
  const std::int64_t first = matrix * layout_bytes(shape, layout) / bytes_of(shape.type, 1);
  const std::int64_t at = layout == WeightLayout::panel16 ? panel16_index(panel16_of(shape), row, k / halves)
                                                          : tile16_index(tile16_of(shape), row, k / halves);
  return (first + at) * halves + k % halves;
}

double ReferenceOperand::scale(std::int64_t matrix, std::int64_t scale_index) const {
  if (scale_step == 0) return scale_value(ScaleType::f32, scales, 0);
  const double global = global_scale == nullptr ? 1 : scale_value(ScaleType::f32, global_scale, matrix);
  return scale_value(shape.scale.type, scales, scale_index) * global;
}

void ReferenceOperand::widen(std::int64_t matrix, std::int64_t row, std::int64_t k,
                             std::span<float> out) const {
  const DataTypeTraits& type = traits(shape.type);
  const std::int64_t first = index(matrix, row, k);
  if (layout == WeightLayout::plain && shape.column_step(leading) == 1) {
    const auto bytes = bytes_of(shape.type, first + static_cast<std::int64_t>(out.size()));
    type.widen({static_cast<const std::byte*>(elements), static_cast<std::size_t>(bytes)}, first, out);
    return;
  }
  for (float& element : out)
    element = type.to_f32(element_bits(shape.type, elements, index(matrix, row, k++)));
}

void ReferenceOperand::read(std::int64_t matrix, std::int64_t row, std::int64_t k,
                            std::span<double> out) const {
  std::array<float, max_read> numbers;
  widen(matrix, row, k, std::span(numbers).first(out.size()));
  const bool is_one_scale =
      zero_points == nullptr && (scale_step == 0 || shape.scale.type == ScaleType::none);
  for (std::size_t i = 0; i < out.size();) {
    const std::int64_t at = k + static_cast<std::int64_t>(i);
    const std::int64_t scale_index = matrix * shape.scale.elements() + shape.scale.index(row, at);
    const double zero_point =
        zero_points == nullptr ? 0 : static_cast<const std::int8_t*>(zero_points)[scale_index];
    const double factor = scale(matrix, scale_index);
    const std::size_t end =
        is_one_scale ? out.size()
                     : std::min(out.size(),
                                i + static_cast<std::size_t>(shape.scale.k_block - at % shape.scale.k_block));
    for (; i < end; ++i) out[i] = (static_cast<double>(numbers[i]) - zero_point) * factor;
  }
}

}  // namespace gemmtune::cpu
