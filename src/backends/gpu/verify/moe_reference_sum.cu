// The reference of each token: the sum over its slots, in their order. A block of 256 threads for each token.

#include "backends/gpu/verify/moe_reference_arguments.h"

using gemmtune::gpu::MoeReferenceSumArguments;

extern "C" __global__ void __launch_bounds__(256, 1) moe_reference_sum(const MoeReferenceSumArguments a) {
  const long long token = blockIdx.x;
  for (long long column = threadIdx.x; column < a.columns; column += 256) {
    double value = 0.0;
    float magnitude = 0.0f;
    for (int slot = 0; slot < a.topk; ++slot) {
      const long long position = a.position_of[token * a.topk + slot];
      if (position < 0) continue;
      const long long at = position * a.columns + column;
      value += a.partials[at];
      magnitude += a.partial_magnitudes[at];
    }
    a.values[token * a.columns + column] = value;
    a.magnitudes[token * a.columns + column] = magnitude;
  }
}
