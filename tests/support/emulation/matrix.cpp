#include "support/emulation/matrix.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "numbers/data_type.h"

namespace gemmtune::emulation {
namespace {

using Element = MatrixInstruction::Element;

constexpr std::array instructions{
    MatrixInstruction{Operation::mfma_f32_16x16x16_f16, "v_mfma_f32_16x16x16_f16", 16, 16, 16, Element::f16,
                      64},
    MatrixInstruction{Operation::mfma_f32_32x32x8_f16, "v_mfma_f32_32x32x8_f16", 32, 32, 8, Element::f16, 64},
    MatrixInstruction{Operation::mfma_f32_16x16x16_bf16, "v_mfma_f32_16x16x16_bf16", 16, 16, 16,
                      Element::bf16, 64},
    MatrixInstruction{Operation::mfma_f32_32x32x8_bf16, "v_mfma_f32_32x32x8_bf16", 32, 32, 8, Element::bf16,
                      64},
    MatrixInstruction{Operation::mfma_f32_16x16x32_fp8, "v_mfma_f32_16x16x32_fp8_fp8", 16, 16, 32,
                      Element::e4m3fnuz, 64},
    MatrixInstruction{Operation::mfma_f32_32x32x16_fp8, "v_mfma_f32_32x32x16_fp8_fp8", 32, 32, 16,
                      Element::e4m3fnuz, 64},
    MatrixInstruction{Operation::mfma_i32_16x16x32_i8, "v_mfma_i32_16x16x32_i8", 16, 16, 32, Element::i8, 64},
    MatrixInstruction{Operation::mfma_i32_32x32x16_i8, "v_mfma_i32_32x32x16_i8", 32, 32, 16, Element::i8, 64},
    MatrixInstruction{Operation::mfma_i32_16x16x16_i8, "v_mfma_i32_16x16x16i8", 16, 16, 16, Element::i8, 64},
    MatrixInstruction{Operation::mfma_i32_32x32x8_i8, "v_mfma_i32_32x32x8i8", 32, 32, 8, Element::i8, 64},
    MatrixInstruction{Operation::mfma_f32_16x16x32_f16, "v_mfma_f32_16x16x32_f16", 16, 16, 32, Element::f16,
                      64},
    MatrixInstruction{Operation::mfma_f32_32x32x16_f16, "v_mfma_f32_32x32x16_f16", 32, 32, 16, Element::f16,
                      64},
    MatrixInstruction{Operation::mfma_f32_16x16x32_bf16, "v_mfma_f32_16x16x32_bf16", 16, 16, 32,
                      Element::bf16, 64},
    MatrixInstruction{Operation::mfma_f32_32x32x16_bf16, "v_mfma_f32_32x32x16_bf16", 32, 32, 16,
                      Element::bf16, 64},
    MatrixInstruction{Operation::mfma_i32_16x16x64_i8, "v_mfma_i32_16x16x64_i8", 16, 16, 64, Element::i8, 64},
    MatrixInstruction{Operation::mfma_i32_32x32x32_i8, "v_mfma_i32_32x32x32_i8", 32, 32, 32, Element::i8, 64},
    MatrixInstruction{Operation::mfma_f32_16x16x32_e4m3fn, "v_mfma_f32_16x16x32_fp8_fp8", 16, 16, 32,
                      Element::e4m3fn, 64},
    MatrixInstruction{Operation::mfma_f32_32x32x16_e4m3fn, "v_mfma_f32_32x32x16_fp8_fp8", 32, 32, 16,
                      Element::e4m3fn, 64},
    MatrixInstruction{Operation::mfma_f32_16x16x128_e4m3fn, "v_mfma_f32_16x16x128_f8f6f4", 16, 16, 128,
                      Element::e4m3fn, 64},
    MatrixInstruction{Operation::mfma_f32_32x32x64_e4m3fn, "v_mfma_f32_32x32x64_f8f6f4", 32, 32, 64,
                      Element::e4m3fn, 64},
    MatrixInstruction{Operation::mfma_scale_f32_16x16x128_fp4, "v_mfma_scale_f32_16x16x128_f8f6f4", 16, 16,
                      128, Element::fp4, 64},
    MatrixInstruction{Operation::mfma_scale_f32_32x32x64_fp4, "v_mfma_scale_f32_32x32x64_f8f6f4", 32, 32, 64,
                      Element::fp4, 64},
    MatrixInstruction{Operation::mma_m16n8k16_f16, "mma.m16n8k16.f16", 16, 8, 16, Element::f16, 32},
    MatrixInstruction{Operation::mma_m16n8k16_bf16, "mma.m16n8k16.bf16", 16, 8, 16, Element::bf16, 32},
    MatrixInstruction{Operation::mma_m16n8k32_e4m3, "mma.m16n8k32.e4m3", 16, 8, 32, Element::e4m3fn, 32},
};

/// The numbers of all 8-bit patterns, and of all of 16 bits.
const float* numbers_of(Element element) {
  const auto table = [](DataType type, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = traits(type).to_f32(static_cast<std::uint32_t>(i));
    return values;
  };
  static const std::vector<float> f16 = table(DataType::f16, 65536);
  static const std::vector<float> bf16 = table(DataType::bf16, 65536);
  static const std::vector<float> fnuz = table(DataType::f8_e4m3fnuz, 256);
  static const std::vector<float> fn = table(DataType::f8_e4m3fn, 256);
  static const std::vector<float> i8 = table(DataType::i8, 256);
  static const std::vector<float> fp4 = table(DataType::f4_e2m1, 16);
  switch (element) {
    case Element::f16:
      return f16.data();
    case Element::bf16:
      return bf16.data();
    case Element::e4m3fnuz:
      return fnuz.data();
    case Element::e4m3fn:
      return fn.data();
    case Element::fp4:
      return fp4.data();
    default:
      return i8.data();
  }
}

int operand_elements(const MatrixInstruction& one, int rows) { return rows * one.depth / one.lanes; }

/// Elements of one operand as numbers, `scales_at` bytes behind a lane's operands times their scale (0: there are none).
void gather(const MatrixInstruction& one, const void* const* in, std::size_t offset, std::size_t scales_at,
            int rows, Position (*position)(const MatrixInstruction&, int, int), double* matrix) {
  const float* numbers = numbers_of(one.element);
  const int count = operand_elements(one, rows);
  for (int lane = 0; lane < one.lanes; ++lane) {
    const auto* bytes = static_cast<const std::uint8_t*>(in[lane]) + offset;
    const std::uint8_t exponent =
        scales_at > 0 ? static_cast<const std::uint8_t*>(in[lane])[scales_at] : std::uint8_t{127};
    const double scale = exponent == 255 ? std::nan("") : std::ldexp(1.0, exponent - 127);
    for (int i = 0; i < count; ++i) {
      std::uint16_t bits = 0;
      if (one.operand_bits() == 16) std::memcpy(&bits, bytes + 2 * i, 2);
      if (one.operand_bits() == 8) bits = bytes[i];
      if (one.operand_bits() == 4) bits = bytes[i / 2] >> i % 2 * 4 & 15;
      const Position at = position(one, lane, i);
      matrix[at.row * one.depth + at.column] = numbers[bits] * scale;
    }
  }
}

/// Products accumulate in float64 and are rounded once an instruction; of int8 all is exact.
template <typename Sum, typename Wide>
void multiply(const MatrixInstruction& one, const void* const* in, void* const* out, std::size_t sums_at,
              const double* a, const double* b) {
  const int count = one.rows * one.columns / one.lanes;
  for (int lane = 0; lane < one.lanes; ++lane) {
    for (int i = 0; i < count; ++i) {
      const Position at = position_in_d(one, lane, i);
      Sum sum;
      std::memcpy(
          &sum,
          static_cast<const std::uint8_t*>(in[lane]) + sums_at + sizeof(Sum) * static_cast<std::size_t>(i),
          sizeof sum);
      const double* row = a + at.row * one.depth;
      const double* column = b + at.column * one.depth;
      Wide wide = 0;
      for (int k = 0; k < one.depth; ++k) wide += static_cast<Wide>(row[k]) * static_cast<Wide>(column[k]);
      sum = static_cast<Sum>(static_cast<Wide>(sum) + wide);
      std::memcpy(static_cast<std::uint8_t*>(out[lane]) + sizeof(Sum) * static_cast<std::size_t>(i), &sum,
                  sizeof sum);
    }
  }
}

}  // namespace

const MatrixInstruction* find_instruction(Operation operation) {
  for (const MatrixInstruction& one : instructions)
    if (one.operation == operation) return &one;
  return nullptr;
}

// MFMA: lanes / rows groups of lanes; a group holds consecutive k of all rows. mma.sync: PTX ISA, fragments of
// mma.m16n8k16 and mma.m16n8k32: registers of four bytes, rows lane / 4 and 8 more, k by lane % 4.
Position position_in_a(const MatrixInstruction& one, int lane, int index) {
  if (one.lanes == 64) {
    const int each = operand_elements(one, one.rows);
    return {lane % one.rows, lane / one.rows * each + index};
  }
  const int in_register = 32 / one.operand_bits();
  const int reg = index / in_register;
  return {lane / 4 + 8 * (reg % 2), reg / 2 * one.depth / 2 + lane % 4 * in_register + index % in_register};
}

Position position_in_b(const MatrixInstruction& one, int lane, int index) {
  if (one.lanes == 64) {
    const int each = operand_elements(one, one.columns);
    return {lane % one.columns, lane / one.columns * each + index};
  }
  const int in_register = 32 / one.operand_bits();
  return {lane / 4, index / in_register * one.depth / 2 + lane % 4 * in_register + index % in_register};
}

Position position_in_d(const MatrixInstruction& one, int lane, int index) {
  if (one.lanes == 64) {
    const int groups = 64 / one.columns;  // of four rows each
    return {index / 4 * 4 * groups + lane / one.columns * 4 + index % 4, lane % one.columns};
  }
  return {lane / 4 + index / 2 * 8, lane % 4 * 2 + index % 2};
}

void execute(const MatrixInstruction& one, const void* const* in, void* const* out) {
  const bool scaled = one.element == Element::fp4;
  // fp4 operands are passed in eight words, of which the lower four hold them.
  const auto operand_bytes = [&](int rows) {
    return scaled ? std::size_t{32}
                  : static_cast<std::size_t>(operand_elements(one, rows) * one.operand_bits() / 8);
  };
  const std::size_t a_bytes = operand_bytes(one.rows);
  const std::size_t b_bytes = operand_bytes(one.columns);
  std::vector<double> a(static_cast<std::size_t>(one.rows * one.depth));
  std::vector<double> b(static_cast<std::size_t>(one.columns * one.depth));
  // The sums are a vector of their own alignment behind the operands.
  const auto sums_bytes = static_cast<std::size_t>(one.rows * one.columns / one.lanes * 4);
  const std::size_t alignment = one.lanes == 32 ? 4 : sums_bytes;
  const std::size_t sums_at = (a_bytes + b_bytes + alignment - 1) / alignment * alignment;
  const std::size_t scales_at = scaled ? sums_at + sums_bytes : 0;
  gather(one, in, 0, scales_at, one.rows, position_in_a, a.data());
  gather(one, in, a_bytes, scaled ? scales_at + 4 : 0, one.columns, position_in_b, b.data());
  if (one.element == Element::i8) {
    multiply<std::int32_t, std::int64_t>(one, in, out, sums_at, a.data(), b.data());
  } else {
    multiply<float, double>(one, in, out, sums_at, a.data(), b.data());
  }
}

}  // namespace gemmtune::emulation
