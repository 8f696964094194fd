// Data types: one row of traits for each in data_type.cpp.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace gemmtune {

/// In the order of the C interface's gemmtune_type, which begins with 1. Rows of tuned files sort by it.
enum class DataType { f32, f16, bf16, f8_e4m3fn, f8_e4m3fnuz, i8, f4_e2m1, u8, i4 };

struct DataTypeTraits {
  DataType type;
  std::string_view name;   // our short name: f32, f16, bf16, f8_e4m3fn …
  std::string_view torch;  // the text of AITER's tables: torch.bfloat16 …
  int bits;                // per element; two elements of 4 bits share a byte, the even one in the low half
  std::array<std::string_view, 4>
      words;  // further spellings of the command line and of AITER's dtypes module
  /// The number that an element's bits mean (exact), and the bits of the nearest element (ties to even; the
  /// types of at most 8 bits saturate). Null for types that gemmtune knows from tables only.
  float (*to_f32)(std::uint32_t bits);
  std::uint32_t (*from_f32)(float value);
  /// Elements first … of a packed array as numbers, as many as fit into `out`.
  void (*widen)(std::span<const std::byte> bytes, std::int64_t first, std::span<float> out);
  bool fp8;
  /// σ of random elements whose scale carries the range, such that few reach the end of the type's range; 0
  /// for types without scales.
  double fill_sigma;
};

/// All types, in the order of the enumeration.
std::span<const DataTypeTraits> all_data_types();
const DataTypeTraits& traits(DataType type);

std::string_view to_string(DataType type);
/// The text of AITER's tables: torch.bfloat16 …
std::string_view torch_name(DataType type);
/// Accepts our name, torch.*, dtypes.* and the command line's words (f32, float32, fp32, f16, float16, half,
/// bf16, bfloat16, fp8, int8 …), any case. fp8 and f8 are those of no device: e4m3fn.
std::optional<DataType> parse_data_type(std::string_view text);
/// The fp8 e4m3 that a device computes with: AMD's own form (fnuz) on gfx94x, OCP's (fn) elsewhere and where `architecture`
/// is empty.
DataType device_fp8(std::string_view architecture);
/// What the word of a type means on a device of `architecture`: fp8 and f8 are device_fp8(), other words are the same
/// everywhere.
std::optional<DataType> data_type_on(std::string_view architecture, std::string_view text);
/// Bits per element; 4 for f4_e2m1 and i4.
int bits(DataType type);
/// Bytes of `elements` elements, rounded up to whole bytes.
std::int64_t bytes_of(DataType type, std::int64_t elements);

/// The bits of element `index` of a packed array.
std::uint32_t element_bits(DataType type, const void* base, std::int64_t index);
/// The nearest element as a number: infinite above the range of f32, f16 and bf16. Rounded to f32 first, as
/// kernels do: a bias is added in float32 before the result is rounded. Requires traits(type).from_f32.
double round_to(DataType type, double value);

}  // namespace gemmtune
