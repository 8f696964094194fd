// Pairs of int16 by vpdpwssd, which multiplies them and adds both products to an int32 lane. Requires
// vector_avx512.h, vector_kernels.h and vector_decode.h, VNNI.
#pragma once

namespace gemmtune::cpu {
namespace {

struct IntegerPairs : PairLines {
  static Vec multiply(V x, V w, Vec sum) {
    return reinterpret_cast<Vec>(_mm512_dpwssd_epi32(
        reinterpret_cast<__m512i>(sum), reinterpret_cast<__m512i>(w), reinterpret_cast<__m512i>(x)));
  }
};

constexpr PanelEntry integer_pair_panels[] = {
    {1, 1, panel_kernel<IntegerPairs, 1, 1>},   {1, 2, panel_kernel<IntegerPairs, 1, 2>},
    {1, 3, panel_kernel<IntegerPairs, 1, 3>},   {4, 1, panel_kernel<IntegerPairs, 4, 1>},
    {4, 2, panel_kernel<IntegerPairs, 4, 2>},   {4, 3, panel_kernel<IntegerPairs, 4, 3>},
    {8, 1, panel_kernel<IntegerPairs, 8, 1>},   {8, 2, panel_kernel<IntegerPairs, 8, 2>},
    {14, 1, panel_kernel<IntegerPairs, 14, 1>}, {14, 2, panel_kernel<IntegerPairs, 14, 2>}};

constexpr DecodeKernels vnni_decode_tables() {
  return decode_tables({integer_pair_panels, 10}, pack_x<ReadPairs>, pack_panel<ReadPairs>);
}

}  // namespace
}  // namespace gemmtune::cpu
