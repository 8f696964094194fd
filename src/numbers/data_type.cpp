#include "numbers/data_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>

#include "base/text.h"
#include "numbers/bfloat16.h"
#include "numbers/minifloat.h"

namespace gemmtune {
namespace {

float bits_to_f32(std::uint32_t bits) { return std::bit_cast<float>(bits); }
float half_to_f32(std::uint32_t bits) { return f16_to_f32(static_cast<std::uint16_t>(bits)); }
float brain_to_f32(std::uint32_t bits) { return bf16_to_f32(static_cast<std::uint16_t>(bits)); }
float fn_to_f32(std::uint32_t bits) { return f8_e4m3fn_to_f32(static_cast<std::uint8_t>(bits)); }
float fnuz_to_f32(std::uint32_t bits) { return f8_e4m3fnuz_to_f32(static_cast<std::uint8_t>(bits)); }
float i8_to_f32(std::uint32_t bits) { return static_cast<float>(static_cast<std::int8_t>(bits)); }
/// Two's complement.
float i4_to_f32(std::uint32_t bits) {
  return static_cast<float>(bits < 8 ? static_cast<int>(bits) : static_cast<int>(bits) - 16);
}
float f4_to_f32(std::uint32_t bits) { return e2m1_to_f32(static_cast<std::uint8_t>(bits)); }

std::uint32_t f32_to_fn(float value) { return f32_to_f8_e4m3fn(value); }
std::uint32_t f32_to_fnuz(float value) { return f32_to_f8_e4m3fnuz(value); }
std::uint32_t f32_to_f4(float value) { return f32_to_e2m1(value); }
/// Symmetric: beyond ±127: ±127.
std::uint32_t f32_to_i8(float value) {
  const auto rounded = static_cast<std::int8_t>(std::nearbyint(std::clamp(value, -127.0F, 127.0F)));
  return std::bit_cast<std::uint8_t>(rounded);
}
/// Symmetric: beyond ±7: ±7.
std::uint32_t f32_to_i4(float value) {
  return static_cast<std::uint32_t>(static_cast<int>(std::nearbyint(std::clamp(value, -7.0F, 7.0F)))) & 15U;
}
std::uint32_t f32_to_bits(float value) { return std::bit_cast<std::uint32_t>(value); }
std::uint32_t f32_to_half(float value) { return f32_to_f16(value); }
std::uint32_t f32_to_brain(float value) { return f32_to_bf16(value); }

template <typename Word, float (*convert)(std::uint32_t)>
void widen_words(std::span<const std::byte> bytes, std::int64_t first, std::span<float> out) {
  const std::byte* source = bytes.data() + static_cast<std::size_t>(first) * sizeof(Word);
  for (std::size_t i = 0; i < out.size(); ++i) {
    Word word = 0;
    std::memcpy(&word, source + i * sizeof(Word), sizeof(Word));
    out[i] = convert(word);
  }
}

/// The number of each of the `count` bit patterns of a small type.
template <float (*convert)(std::uint32_t), std::size_t count>
const std::array<float, count>& table_of() {
  static const auto table = [] {
    std::array<float, count> numbers{};
    for (std::size_t element = 0; element < count; ++element)
      numbers[element] = convert(static_cast<std::uint32_t>(element));
    return numbers;
  }();
  return table;
}

template <float (*convert)(std::uint32_t)>
void widen_bytes(std::span<const std::byte> bytes, std::int64_t first, std::span<float> out) {
  const auto& table = table_of<convert, 256>();
  const std::byte* source = bytes.data() + first;
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = table[std::to_integer<std::size_t>(source[i])];
}

template <float (*convert)(std::uint32_t)>
void widen_halves(std::span<const std::byte> bytes, std::int64_t first, std::span<float> out) {
  const auto& table = table_of<convert, 16>();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const auto at = static_cast<std::size_t>(first) + i;
    const auto pair = std::to_integer<unsigned>(bytes[at / 2]);
    out[i] = table[at % 2 == 0 ? pair & 15U : pair >> 4];
  }
}

// clang-format off
constexpr DataTypeTraits rows[] = {
    {.type = DataType::f32, .name = "f32", .torch = "torch.float32", .bits = 32, .words = {"float32", "fp32", "float"},
     .to_f32 = bits_to_f32, .from_f32 = f32_to_bits, .widen = widen_words<std::uint32_t, bits_to_f32>,
     .fp8 = false, .fill_sigma = 0},
    {.type = DataType::f16, .name = "f16", .torch = "torch.float16", .bits = 16, .words = {"float16", "fp16", "half"},
     .to_f32 = half_to_f32, .from_f32 = f32_to_half, .widen = widen_words<std::uint16_t, half_to_f32>,
     .fp8 = false, .fill_sigma = 0},
    {.type = DataType::bf16, .name = "bf16", .torch = "torch.bfloat16", .bits = 16, .words = {"bfloat16"},
     .to_f32 = brain_to_f32, .from_f32 = f32_to_brain, .widen = widen_words<std::uint16_t, brain_to_f32>,
     .fp8 = false, .fill_sigma = 0},
    {.type = DataType::f8_e4m3fn, .name = "f8_e4m3fn", .torch = "torch.float8_e4m3fn", .bits = 8,
     .words = {"float8_e4m3fn"},
     .to_f32 = fn_to_f32, .from_f32 = f32_to_fn, .widen = widen_bytes<fn_to_f32>,
     .fp8 = true, .fill_sigma = 64},
    {.type = DataType::f8_e4m3fnuz, .name = "f8_e4m3fnuz", .torch = "torch.float8_e4m3fnuz", .bits = 8,
     .words = {"float8_e4m3fnuz"},
     .to_f32 = fnuz_to_f32, .from_f32 = f32_to_fnuz, .widen = widen_bytes<fnuz_to_f32>,
     .fp8 = true, .fill_sigma = 64},
    {.type = DataType::i8, .name = "i8", .torch = "torch.int8", .bits = 8, .words = {"int8"},
     .to_f32 = i8_to_f32, .from_f32 = f32_to_i8, .widen = widen_bytes<i8_to_f32>,
     .fp8 = false, .fill_sigma = 36},
    {.type = DataType::f4_e2m1, .name = "f4_e2m1", .torch = "torch.float4_e2m1fn_x2", .bits = 4,
     .words = {"fp4", "fp4x2", "float4_e2m1fn_x2"},
     .to_f32 = f4_to_f32, .from_f32 = f32_to_f4, .widen = widen_halves<f4_to_f32>,
     .fp8 = false, .fill_sigma = 1.7},
    {.type = DataType::u8, .name = "u8", .torch = "torch.uint8", .bits = 8, .words = {"uint8"},
     .to_f32 = nullptr, .from_f32 = nullptr, .widen = nullptr,
     .fp8 = false, .fill_sigma = 0},
    {.type = DataType::i4, .name = "i4", .torch = "torch.int4", .bits = 4, .words = {"int4", "i4x2"},
     .to_f32 = i4_to_f32, .from_f32 = f32_to_i4, .widen = widen_halves<i4_to_f32>,
     .fp8 = false, .fill_sigma = 2.5},
};
// clang-format on

constexpr bool in_order() {
  for (std::size_t index = 0; index < std::size(rows); ++index) {
    if (static_cast<std::size_t>(rows[index].type) != index) return false;
  }
  return true;
}
static_assert(in_order(), "a row per type, in the order of the enumeration");

}  // namespace

std::span<const DataTypeTraits> all_data_types() { return rows; }
const DataTypeTraits& traits(DataType type) { return rows[static_cast<std::size_t>(type)]; }

std::string_view to_string(DataType type) { return traits(type).name; }
std::string_view torch_name(DataType type) { return traits(type).torch; }
int bits(DataType type) { return traits(type).bits; }

std::int64_t bytes_of(DataType type, std::int64_t elements) { return (elements * bits(type) + 7) / 8; }

std::uint32_t element_bits(DataType type, const void* base, std::int64_t index) {
  static_assert(std::endian::native == std::endian::little);
  const auto* bytes = static_cast<const unsigned char*>(base);
  const int width = bits(type);
  if (width == 4) {
    const unsigned pair = bytes[index / 2];
    return index % 2 == 0 ? pair & 15U : pair >> 4;
  }
  std::uint32_t element = 0;
  const auto size = static_cast<std::size_t>(width / 8);
  std::memcpy(&element, bytes + static_cast<std::size_t>(index) * size, size);
  return element;
}

double round_to(DataType type, double value) {
  const DataTypeTraits& row = traits(type);
  return static_cast<double>(row.to_f32(row.from_f32(static_cast<float>(value))));
}

DataType device_fp8(std::string_view architecture) {
  return architecture.starts_with("gfx94") ? DataType::f8_e4m3fnuz : DataType::f8_e4m3fn;
}

std::optional<DataType> parse_data_type(std::string_view text) { return data_type_on({}, text); }

std::optional<DataType> data_type_on(std::string_view architecture, std::string_view text) {
  const std::string lowered = to_lower(trim(text));
  std::string_view word = lowered;
  for (const std::string_view prefix : {"torch.", "dtypes."}) {
    if (word.starts_with(prefix)) {
      word.remove_prefix(prefix.size());
      break;
    }
  }
  if (word.empty()) return std::nullopt;
  if (word == "fp8" || word == "f8") return device_fp8(architecture);
  for (const DataTypeTraits& candidate : rows) {
    if (word == candidate.name || word == candidate.torch.substr(6)) return candidate.type;
    for (const std::string_view spelling : candidate.words) {
      if (word == spelling) return candidate.type;
    }
  }
  return std::nullopt;
}

}  // namespace gemmtune
