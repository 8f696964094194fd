#include "backends/cpu/families/reference/operand.h"

#include <cstring>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "numbers/minifloat.h"

namespace gemmtune::cpu {
namespace {

template <typename Word>
Word word_at(const void* base, std::int64_t index) {
  Word word{};
  std::memcpy(&word, static_cast<const char*>(base) + index * static_cast<std::int64_t>(sizeof(Word)),
              sizeof(Word));
  return word;
}

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

double ReferenceOperand::scale(std::int64_t matrix, std::int64_t row, std::int64_t k) const {
  if (shape.scale.type == ScaleType::none) return 1;
  if (scale_step == 0) return static_cast<double>(word_at<float>(scales, 0));
  const std::int64_t at = matrix * shape.scale.elements() + shape.scale.index(row, k);
  if (shape.scale.type == ScaleType::f32) return static_cast<double>(word_at<float>(scales, at));
  return static_cast<double>(e8m0_to_f32(word_at<std::uint8_t>(scales, at)));
}

double ReferenceOperand::at(std::int64_t matrix, std::int64_t row, std::int64_t k) const {
  return load_element(shape.type, elements, index(matrix, row, k)) * scale(matrix, row, k);
}

}  // namespace gemmtune::cpu
