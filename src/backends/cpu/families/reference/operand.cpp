#include "backends/cpu/families/reference/operand.h"

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

double ReferenceOperand::at(std::int64_t matrix, std::int64_t row, std::int64_t k) const {
  const double element = load_element(shape.type, elements, index(matrix, row, k));
  const std::int64_t scale_index = matrix * shape.scale.elements() + shape.scale.index(row, k);
  const double zero_point =
      zero_points == nullptr ? 0 : static_cast<const std::int8_t*>(zero_points)[scale_index];
  return (element - zero_point) * scale(matrix, scale_index);
}

}  // namespace gemmtune::cpu
