// Data types: one row a type in data_type.cpp.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace gemmtune {

enum class DataType { f32, f16, bf16, f8_e4m3fn, f8_e4m3fnuz, i8, f4_e2m1, u8, i4 };

/// Our short name: f32, f16, bf16, f8_e4m3fn …
std::string_view to_string(DataType type);
/// The text AITER's tables hold: torch.bfloat16 …
std::string_view torch_name(DataType type);
/// Accepts our name, torch.*, dtypes.* and the command line's words (f32, float32, fp32, f16, float16, half,
/// bf16, bfloat16, fp8, int8 …), any case.
std::optional<DataType> parse_data_type(std::string_view text);
/// Bits an element; 4 for f4_e2m1 and i4.
int bits(DataType type);
/// Bytes of `elements` elements, rounded up to whole bytes.
std::int64_t bytes_of(DataType type, std::int64_t elements);

}  // namespace gemmtune
