#include "problem/data_type.h"

#include <array>
#include <string>

#include "base/text.h"

namespace gemmtune {
namespace {

struct Row {
  DataType type;
  std::string_view name;
  std::string_view torch;
  int bits;
  std::array<std::string_view, 4>
      words;  // further spellings of the command line and of AITER's dtypes module
};

// One row a type.
constexpr std::array<Row, 9> rows{{
    {DataType::f32, "f32", "torch.float32", 32, {"float32", "fp32", "float"}},
    {DataType::f16, "f16", "torch.float16", 16, {"float16", "fp16", "half"}},
    {DataType::bf16, "bf16", "torch.bfloat16", 16, {"bfloat16"}},
    {DataType::f8_e4m3fn, "f8_e4m3fn", "torch.float8_e4m3fn", 8, {"fp8", "f8", "float8_e4m3fn"}},
    {DataType::f8_e4m3fnuz, "f8_e4m3fnuz", "torch.float8_e4m3fnuz", 8, {"float8_e4m3fnuz"}},
    {DataType::i8, "i8", "torch.int8", 8, {"int8"}},
    {DataType::f4_e2m1, "f4_e2m1", "torch.float4_e2m1fn_x2", 4, {"fp4", "fp4x2", "float4_e2m1fn_x2"}},
    {DataType::u8, "u8", "torch.uint8", 8, {"uint8"}},
    {DataType::i4, "i4", "torch.int4", 4, {"int4", "i4x2"}},
}};

const Row& row(DataType type) { return rows[static_cast<std::size_t>(type)]; }

}  // namespace

std::string_view to_string(DataType type) { return row(type).name; }
std::string_view torch_name(DataType type) { return row(type).torch; }
int bits(DataType type) { return row(type).bits; }

std::int64_t bytes_of(DataType type, std::int64_t elements) { return (elements * bits(type) + 7) / 8; }

std::optional<DataType> parse_data_type(std::string_view text) {
  const std::string lowered = to_lower(trim(text));
  std::string_view word = lowered;
  for (const std::string_view prefix : {"torch.", "dtypes."}) {
    if (word.starts_with(prefix)) {
      word.remove_prefix(prefix.size());
      break;
    }
  }
  if (word.empty()) return std::nullopt;
  for (const Row& candidate : rows) {
    if (word == candidate.name || word == candidate.torch.substr(6)) return candidate.type;
    for (const std::string_view spelling : candidate.words) {
      if (word == spelling) return candidate.type;
    }
  }
  return std::nullopt;
}

}  // namespace gemmtune
