// The third seam between portable code and the files of one instruction set: weights of small types that are
// multiplied as they stream by, decoded in registers. Rules as in micro.h: plain structs and function
// pointers, no standard template.
//
// Formats: a weight panel is panel16 of bytes (numbers/weight_layout.h): lines of 64 bytes, one dword of k
// for each of 16 columns. K is cut into steps of 8 lines, that is 32 stored bytes of k (32 elements of 8
// bits, 64 of 4). Packed x is [step][mr][32 · parts bytes], in the order in which decoding a line yields its
// elements; fp4 of AMX tiles is [2 · step][mr][64 bytes].
#pragma once

namespace gemmtune::cpu {

/// What streams; the index into the tables below.
enum class Streamed : unsigned char {
  f8_e4m3fn,        // bf16 products of float32 sums
  f8_e4m3fnuz,      //
  f8_e4m3fn_block,  // and a scale for every 128 of k
  f8_e4m3fnuz_block,
  i8,      // int32 sums
  f4_e2m1  // int32 sums of 32 of k, scaled by e8m0; of AMX tiles bf16 products, scales included
};
inline constexpr int streamed_types = 6;

inline constexpr long step_bytes = 32;       // stored, of k
inline constexpr long steps_of_scale = 4;    // of block-scaled fp8: 128 elements
inline constexpr long scales_of_step = 2;    // of fp4: 32 elements each
inline constexpr long integer_x_bytes = 32;  // of a packed row's step: int8
inline constexpr long decoded_x_bytes = 64;  // … fp8 as bf16, fp4 as bytes of even and of odd elements
inline constexpr long wide_x_bytes = 128;    // … fp4 as bf16

/// e8m0 scales of rows of a weight, `count` each, as float32 [count][16]: of up to 16 rows, missing ones
/// get 1.
struct StreamScaleArgs {
  const unsigned char* exponents;
  long stride;
  long rows;
  long count;
  float* out;
};
using StreamScales = void (*)(const StreamScaleArgs&);

/// c[mr][16 · panels] (+)= packed x · panels. c holds float32, int32 for int8.
struct StreamArgs {
  const void* x;
  const void* w;  // the first panel at its first step
  long w_stride;  // bytes from panel to panel
  long steps;     // block scales: from a multiple of steps_of_scale on
  float* c;       // dense tile
  bool accumulate;
  long prefetch;          // bytes ahead of the weight line being read; 0: nothing ahead
  const int* start;       // where sums begin: int8 [mr] (only where nothing is added to), fp4 [scale][mr]
  const float* x_scales;  // block fp8, fp4: [scale][mr]
  const float* w_scales;  // block fp8: [scale]; fp4: [panel][scale][16], panels w_scale_stride floats apart
  long w_scale_stride;
  const StreamScaleArgs*
      w_exponents;  // fp4 of AMX tiles: of all columns, from the first step on; out is not used
};
using StreamKernel = void (*)(const StreamArgs&);

/// `rows` rows of x, `bytes` stored bytes of k each; missing rows and bytes count as zeros.
struct StreamPackArgs {
  const void* x;
  long stride;  // bytes from row to row
  long rows;
  long mr;
  long bytes;
  long steps;
  void* out;
  int* start;                      // int8: [mr]; fp4: [scale][mr]; not written for fp8 and AMX tiles
  const unsigned char* exponents;  // fp4 of AMX tiles: e8m0 scales from the first step on
  long exponent_stride;            // from row to row
};
using StreamPack = void (*)(const StreamPackArgs&);

struct StreamEntry {
  int mr;
  int panels;
  StreamKernel run;
};
struct StreamKernels {
  const StreamEntry* entries[streamed_types];  // null where the type is not streamed
  int counts[streamed_types];
  StreamPack pack[streamed_types];
  StreamScales scales;
  bool scales_packed_f4;  // packed x of fp4 has its scales: w_exponents are read, not start, x_scales,
                          // w_scales
};

#if defined(GEMMTUNE_X86_KERNELS)
extern const StreamKernels avx512vbmi_stream_kernels;  // AVX-512 with BF16, VNNI and VBMI
extern const StreamKernels amx_stream_kernels;         // and AMX: between begin and end of its IsaKernels
#endif

}  // namespace gemmtune::cpu
