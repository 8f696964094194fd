// The second seam between portable code and the files of one instruction set: decoding of small types,
// integer panels, scales, and what mixtures of experts do beside multiplying. Rules as in micro.h: plain
// structs and function pointers, no standard template.
//
// A small type is decoded to the compute type, exactly, before panel kernels meet it: int8 pairs to int16 for
// integer arithmetic, all else to bf16 or float32, which hold every value (and its e8m0 or e4m3 scale, or less its zero
// point) without rounding.
#pragma once

#include "backends/cpu/microkernels/micro.h"

namespace gemmtune::cpu {

/// Types that are decoded; the index into the tables below.
enum class Stored : unsigned char { f8_e4m3fn, f8_e4m3fnuz, i8, f4_e2m1, i4 };
inline constexpr int stored_types = 5;
/// What the panel kernels multiply.
enum class Compute : unsigned char { f32, bf16, i16 };
inline constexpr int compute_types = 3;

/// One row: `count` elements from a byte's first one. Writes count rounded up to 32 elements, zeros behind
/// the last; reads nothing behind them.
struct DecodeRowArgs {
  const void* from;
  long count;
  void* to;
  const unsigned char* exponents;      // an e8m0 scale for every 32 elements; null: none
  const float* factors = nullptr;      // in place of exponents: for every 16 elements
  const float* zero_points = nullptr;  // for every 32 elements, subtracted first; null: none
};
using DecodeRow = void (*)(const DecodeRowArgs&);

/// One panel of a weight in panel16 (bytes: [4 bytes of k][16 columns][4]), `chunks` of 32 elements, into a
/// panel of the compute type.
struct DecodePanelArgs {
  const void* from;
  long chunks;
  void* to;
  const unsigned char* exponents;      // of the first column and chunk; null: none
  long exponent_stride;                // from column to column
  long columns;                        // that are there, ≤ 16
  const float* factors = nullptr;      // in place of exponents: [chunk][half of 16 elements][16 columns]
  const float* zero_points = nullptr;  // [chunk][16 columns], subtracted first; null: none
};
using DecodePanel = void (*)(const DecodePanelArgs&);

/// out[m][n] = or += tile[m][n] · row_scale[m · row_stride] · column_scale[n], for dense tiles of `columns`
/// columns, a multiple of 16. The tile is float32, or int32 for the integer form, and may be `out` where
/// nothing is added.
struct ScaleArgs {
  const void* tile;
  float* out;
  long rows;
  long columns;
  const float* row_scale;
  long row_stride;
  const float* column_scale;
  bool add;
};
using Scale = void (*)(const ScaleArgs&);

/// silu: out[i] = silu(gate[i] · weight) · up[i] · weight, with silu(v) = v / (1 + e^−v); without `up` (null) its
/// factor and weight are left out. swiglu: g / (1 + e^(−1.702 g)) · (u + 1) of g = gate[i] · weight, at most 7, and
/// u = up[i] · weight, from −7 to 7; requires `up`. `out` may be one of the others.
struct ActivateArgs {
  const float* gate;
  const float* up;
  float weight;
  long count;
  float* out;
};
using Activate = void (*)(const ActivateArgs&);

/// sum[i] = or += row[i] · factor; `row` may be `sum`.
struct AddRowArgs {
  const float* row;
  float factor;
  long count;
  float* sum;
  bool add;
};
using AddRow = void (*)(const AddRowArgs&);

struct DecodeKernels {
  DecodeRow row[compute_types][stored_types];  // null where the pair makes no sense
  DecodePanel panel[compute_types][stored_types];
  PanelList integer_panels;  // int16 pairs, sums in int32
  PackX pack_integer_x;
  PackPanel pack_integer_panel;
  Scale scale;
  Scale scale_integer;
  Activate silu;
  Activate swiglu;
  AddRow add_row;
};

extern const DecodeKernels scalar_decode_kernels;
#if defined(GEMMTUNE_X86_KERNELS)
extern const DecodeKernels avx2_decode_kernels;
extern const DecodeKernels avx512_decode_kernels;
extern const DecodeKernels avx512vnni_decode_kernels;
extern const DecodeKernels avx512vbmi_decode_kernels;  // and VBMI
#endif

}  // namespace gemmtune::cpu
