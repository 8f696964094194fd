// AVX-512 with BF16, VNNI and VBMI: table look-ups of bytes decode a line of fp8 in seven instructions and a
// line of MXFP4 in three.
// The vector header comes first, the others are written over it.
// clang-format off
#include "backends/cpu/microkernels/vector_avx512.h"
#include "backends/cpu/microkernels/vector_pack.h"
#include "backends/cpu/microkernels/vector_bytes.h"
#include "backends/cpu/microkernels/stream_fp8.h"
#include "backends/cpu/microkernels/stream_integer.h"
// clang-format on

namespace gemmtune::cpu {
namespace {

template <typename Format>
struct StreamTable {
  static constexpr StreamEntry entries[] = {
      {1, 1, Format::template kernel<1, 1>},   {1, 2, Format::template kernel<1, 2>},
      {1, 4, Format::template kernel<1, 4>},   {2, 1, Format::template kernel<2, 1>},
      {2, 2, Format::template kernel<2, 2>},   {4, 1, Format::template kernel<4, 1>},
      {4, 2, Format::template kernel<4, 2>},   {6, 1, Format::template kernel<6, 1>},
      {8, 1, Format::template kernel<8, 1>},   {8, 2, Format::template kernel<8, 2>},
      {12, 1, Format::template kernel<12, 1>}, {16, 1, Format::template kernel<16, 1>}};
  static constexpr int count = 12;
};

/// int8 needs no registers for decoding, so that taller tiles of two panels fit.
struct IntegerTable {
  static constexpr StreamEntry entries[] = {
      {1, 1, StreamI8::kernel<1, 1>},   {1, 2, StreamI8::kernel<1, 2>},   {1, 4, StreamI8::kernel<1, 4>},
      {2, 1, StreamI8::kernel<2, 1>},   {2, 2, StreamI8::kernel<2, 2>},   {4, 1, StreamI8::kernel<4, 1>},
      {4, 2, StreamI8::kernel<4, 2>},   {4, 4, StreamI8::kernel<4, 4>},   {6, 1, StreamI8::kernel<6, 1>},
      {6, 4, StreamI8::kernel<6, 4>},   {8, 1, StreamI8::kernel<8, 1>},   {8, 2, StreamI8::kernel<8, 2>},
      {12, 1, StreamI8::kernel<12, 1>}, {12, 2, StreamI8::kernel<12, 2>}, {16, 1, StreamI8::kernel<16, 1>}};
  static constexpr int count = 15;
};

using Fn = StreamTable<StreamFp8<E4m3fnBytes, false>>;
using Fnuz = StreamTable<StreamFp8<E4m3fnuzBytes, false>>;
using FnBlock = StreamTable<StreamFp8<E4m3fnBytes, true>>;
using FnuzBlock = StreamTable<StreamFp8<E4m3fnuzBytes, true>>;
using I8 = IntegerTable;
using F4 = StreamTable<StreamF4>;

}  // namespace

constexpr StreamKernels avx512vbmi_stream_kernels = {
    .entries = {Fn::entries, Fnuz::entries, FnBlock::entries, FnuzBlock::entries, I8::entries, F4::entries},
    .counts = {Fn::count, Fnuz::count, FnBlock::count, FnuzBlock::count, I8::count, F4::count},
    .pack = {pack_fp8<E4m3fnBytes>, pack_fp8<E4m3fnuzBytes>, pack_fp8<E4m3fnBytes>, pack_fp8<E4m3fnuzBytes>,
             pack_i8, pack_f4},
    .scales = stream_scales,
    .scales_packed_f4 = false,
};

}  // namespace gemmtune::cpu
