// Packs a weight of 4 bits into the layout fragment64 of numbers/weight_layout.h, or unpacks it. A thread makes the 16 bytes of a thread of the tensor
// core's warp group; elements past the weight's last row or past the end of k become zero. The host defines UNPACK (0, 1) and INTEGERS
// (1: int4).

#include "backends/gpu/device/fragment64.cuh"
#include "backends/gpu/pack/pack_arguments.h"

using gemmtune::gpu::FragmentArguments;

extern "C" __global__ void __launch_bounds__(256, 1) fragment(const FragmentArguments a) {
  for (long long unit = blockIdx.x * 256LL + threadIdx.x; unit < a.units; unit += gridDim.x * 256LL) {
    const int thread = (int)(unit % 128);
    const long long tile = unit / 128;
    const long long row = tile / a.k_tiles * 64 + thread / 32 * 16 + thread % 32 / 4;
    unsigned* const words = (unsigned*)(a.tiles + unit * 16);
    for (int j = 0; j < 4; ++j) {
      unsigned word = UNPACK ? words[j] : 0u;
      for (int pair = 0; pair < 4; ++pair) {
        const long long at_row = row + pair % 2 * 8;
        const long long at = tile % a.k_tiles * 32 + j * 8 + thread % 4 + pair / 2 * 4;
        if (at_row >= a.n || at >= a.row_bytes) continue;
        unsigned char* const byte = a.rows + at_row * a.row_bytes + at;
        if (UNPACK) {
          *byte = (unsigned char)(gather_element<INTEGERS != 0>(word & 0xffffu, pair) |
                                  gather_element<INTEGERS != 0>(word >> 16, pair) << 4);
        } else {
          word |= spread_element<INTEGERS != 0>(*byte & 15u, pair) |
                  spread_element<INTEGERS != 0>((unsigned)*byte >> 4, pair) << 16;
        }
      }
      if (!UNPACK) words[j] = word;
    }
  }
}
