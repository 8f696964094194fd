#include "numbers/weight_layout.h"

#include <array>
#include <cstring>
#include <utility>

namespace gemmtune {
namespace {

constexpr std::array<std::pair<WeightLayout, std::string_view>, 4> names{{
    {WeightLayout::any, "any"},
    {WeightLayout::plain, "plain"},
    {WeightLayout::panel16, "panel16"},
    {WeightLayout::onednn, "onednn"},
}};

}  // namespace

std::string_view to_string(WeightLayout layout) { return names[static_cast<std::size_t>(layout)].second; }

std::optional<WeightLayout> parse_weight_layout(std::string_view text) {
  for (const auto& [layout, name] : names) {
    if (name == text) return layout;
  }
  return std::nullopt;
}

namespace {

/// Calls visit(plain element index, packed element index) for every element of the weight.
template <typename Visit>
void for_each_element(const Panel16& shape, Visit visit) {
  const std::int64_t panel_elements = shape.padded_k() * Panel16::columns;
  for (std::int64_t column = 0; column < shape.n; ++column) {
    const std::int64_t panel = column / Panel16::columns * panel_elements;
    const std::int64_t lane = column % Panel16::columns * shape.pair;
    for (std::int64_t step = 0; step < shape.k; ++step) {
      visit(column * shape.k + step,
            panel + step / shape.pair * Panel16::columns * shape.pair + lane + step % shape.pair);
    }
  }
}

template <typename Element>
void pack(const Panel16& shape, const void* plain, void* destination) {
  const auto* from = static_cast<const Element*>(plain);
  auto* to = static_cast<Element*>(destination);
  for_each_element(shape, [&](std::int64_t source, std::int64_t target) { to[target] = from[source]; });
}

template <typename Element>
void unpack(const Panel16& shape, const void* packed, void* destination) {
  const auto* from = static_cast<const Element*>(packed);
  auto* to = static_cast<Element*>(destination);
  for_each_element(shape, [&](std::int64_t target, std::int64_t source) { to[target] = from[source]; });
}

}  // namespace

void pack_panel16(const Panel16& shape, const void* plain, void* destination) {
  std::memset(destination, 0, static_cast<std::size_t>(shape.bytes()));
  switch (shape.element_bytes) {
    case 1:
      return pack<std::uint8_t>(shape, plain, destination);
    case 2:
      return pack<std::uint16_t>(shape, plain, destination);
    default:
      return pack<std::uint32_t>(shape, plain, destination);
  }
}

void unpack_panel16(const Panel16& shape, const void* packed, void* destination) {
  switch (shape.element_bytes) {
    case 1:
      return unpack<std::uint8_t>(shape, packed, destination);
    case 2:
      return unpack<std::uint16_t>(shape, packed, destination);
    default:
      return unpack<std::uint32_t>(shape, packed, destination);
  }
}

}  // namespace gemmtune
