#include "numbers/weight_layout.h"

#include <algorithm>
#include <cstring>

#include "base/enumerators.h"

namespace gemmtune {
namespace {

constexpr EnumeratorNames<WeightLayout, 7> layout_names({
    {WeightLayout::any, "any"},
    {WeightLayout::plain, "plain"},
    {WeightLayout::panel16, "panel16"},
    {WeightLayout::onednn, "onednn"},
    {WeightLayout::aiter16x16, "aiter16x16"},
    {WeightLayout::tile64x128, "tile64x128"},
    {WeightLayout::fragment64, "fragment64"},
});

/// Element (k, column) of a panel: pairs of k stand side by side.
std::int64_t panel_index(const Panel16& shape, std::int64_t k, std::int64_t column) {
  return (k / shape.pair * Panel16::columns + column) * shape.pair + k % shape.pair;
}

/// `copy(element index in the panel, element index in the plain weight)` for every real element of a panel.
template <typename Copy>
void for_each_element(const Panel16& shape, std::int64_t panel, Copy copy) {
  const std::int64_t first = panel * Panel16::columns;
  const std::int64_t columns = std::min(Panel16::columns, shape.n - first);
  constexpr std::int64_t block = 128;  // of k: its part of a panel stays in the L1
  for (std::int64_t begin = 0; begin < shape.k; begin += block) {
    const std::int64_t end = std::min(begin + block, shape.k);
    for (std::int64_t column = 0; column < columns; ++column)
      for (std::int64_t k = begin; k < end; ++k)
        copy(panel_index(shape, k, column), (first + column) * shape.k + k);
  }
}

template <typename Element>
void pack(const Panel16& shape, const void* plain, void* destination) {
  const auto* source = static_cast<const char*>(plain);
  auto* packed = static_cast<char*>(destination);
  std::memset(packed, 0, static_cast<std::size_t>(shape.bytes()));
  constexpr auto size = static_cast<std::int64_t>(sizeof(Element));
  for (std::int64_t panel = 0; panel < shape.panels(); ++panel, packed += shape.panel_bytes())
    for_each_element(shape, panel, [&](std::int64_t to, std::int64_t from) {
      std::memcpy(packed + to * size, source + from * size, sizeof(Element));
    });
}

template <typename Element>
void unpack(const Panel16& shape, const void* packed, void* destination) {
  const auto* source = static_cast<const char*>(packed);
  auto* plain = static_cast<char*>(destination);
  constexpr auto size = static_cast<std::int64_t>(sizeof(Element));
  for (std::int64_t panel = 0; panel < shape.panels(); ++panel, source += shape.panel_bytes())
    for_each_element(shape, panel, [&](std::int64_t from, std::int64_t to) {
      std::memcpy(plain + to * size, source + from * size, sizeof(Element));
    });
}

/// `copy(offset in the tiles, offset in the plain weight)` for every chunk.
template <typename Copy>
void for_each_chunk(const Tile16& shape, Copy copy) {
  constexpr std::int64_t stride = Tile16::rows * Tile16::chunk_bytes;
  for (std::int64_t row = 0; row < shape.n; ++row)
    for (std::int64_t at = 0; at < shape.row_bytes(); at += Tile16::chunk_bytes)
      copy(shape.row_offset(row) + at / Tile16::chunk_bytes * stride, row * shape.row_bytes() + at);
}

/// `copy(offset in the tiles, offset in the plain weight, bytes)` for every unit.
template <typename Copy>
void for_each_unit(const Tile64& shape, Copy copy) {
  for (std::int64_t row = 0; row < shape.n; ++row)
    for (std::int64_t at = 0; at < shape.row_bytes(); at += Tile64::unit_bytes)
      copy(shape.offset(row, at), row * shape.row_bytes() + at,
           std::min(Tile64::unit_bytes, shape.row_bytes() - at));
}

}  // namespace

std::span<const WeightLayout> all_weight_layouts() { return enumerators<WeightLayout, 7>; }
std::string_view to_string(WeightLayout layout) { return layout_names.of(layout); }
std::optional<WeightLayout> parse_weight_layout(std::string_view text) { return layout_names.find(text); }

void pack_panel16(const Panel16& shape, const void* plain, void* destination) {
  if (shape.element_bytes == 4) return pack<std::uint32_t>(shape, plain, destination);
  if (shape.element_bytes == 1) return pack<std::uint8_t>(shape, plain, destination);
  pack<std::uint16_t>(shape, plain, destination);
}

void unpack_panel16(const Panel16& shape, const void* packed, void* destination) {
  if (shape.element_bytes == 4) return unpack<std::uint32_t>(shape, packed, destination);
  if (shape.element_bytes == 1) return unpack<std::uint8_t>(shape, packed, destination);
  unpack<std::uint16_t>(shape, packed, destination);
}

void shuffle_tile16(const Tile16& shape, const void* plain, void* destination) {
  for_each_chunk(shape, [&](std::int64_t to, std::int64_t from) {
    std::memcpy(static_cast<char*>(destination) + to, static_cast<const char*>(plain) + from,
                Tile16::chunk_bytes);
  });
}

void unshuffle_tile16(const Tile16& shape, const void* shuffled, void* destination) {
  for_each_chunk(shape, [&](std::int64_t from, std::int64_t to) {
    std::memcpy(static_cast<char*>(destination) + to, static_cast<const char*>(shuffled) + from,
                Tile16::chunk_bytes);
  });
}

void pack_tile64(const Tile64& shape, const void* plain, void* destination) {
  std::memset(destination, 0, static_cast<std::size_t>(shape.bytes()));
  for_each_unit(shape, [&](std::int64_t to, std::int64_t from, std::int64_t bytes) {
    std::memcpy(static_cast<char*>(destination) + to, static_cast<const char*>(plain) + from,
                static_cast<std::size_t>(bytes));
  });
}

void unpack_tile64(const Tile64& shape, const void* packed, void* destination) {
  for_each_unit(shape, [&](std::int64_t from, std::int64_t to, std::int64_t bytes) {
    std::memcpy(static_cast<char*>(destination) + to, static_cast<const char*>(packed) + from,
                static_cast<std::size_t>(bytes));
  });
}

}  // namespace gemmtune
