// Elements of y, x and w as numbers: reading and rounding by type, inside verify/ only and shared with no
// kernel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/status.h"
#include "numbers/data_type.h"

namespace gemmtune {

/// Operand types that verification can read.
bool readable(DataType type);
/// `count` elements from element `first` of a packed array, widened (exactly) to float. Requires
/// readable(type).
void read_elements(DataType type, std::span<const std::byte> bytes, std::int64_t first, std::span<float> out);
/// The nearest element of an output type (f32, f16, bf16; ties to even), as a number: infinite above its
/// range.
double round_to(DataType type, double value);
/// The nearest element of any readable type, as its bits.
std::uint32_t encode_element(DataType type, float value);
/// Bytes of one element; 1 for f4_e2m1 too, of which two are in a byte. Requires readable(type).
std::size_t element_bytes(DataType type);

}  // namespace gemmtune
