// y = silu(gate) * up. A block for each row and THREADS * WIDTH columns, and again where the grid is not as wide as the row.
//
// The host defines: OUTPUT (numbers.cuh), ACTIVATION=1 and GATED=1 (moe_activation.cuh), DEPENDENT (moe_dependent.cuh).

#include "backends/gpu/activation/silu_and_mul_arguments.h"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"
#include "backends/gpu/moe/moe_dependent.cuh"

using gemmtune::gpu::SiluAndMulArguments;

#define THREADS 128
#define WIDTH 8  // columns of a thread

struct __align__(16) Vector {
  output values[WIDTH];
};

extern "C" __global__ void __launch_bounds__(THREADS) silu_and_mul(const SiluAndMulArguments a) {
  wait_for_the_kernel_in_front();
  const output* gate = a.gate + blockIdx.x * a.ldgate;
  const output* up = a.up + blockIdx.x * a.ldup;
  output* y = a.y + blockIdx.x * a.ldy;
  const long long step = (long long)gridDim.y * THREADS * WIDTH;
#pragma unroll 1
  for (long long first = ((long long)blockIdx.y * THREADS + threadIdx.x) * WIDTH; first < a.columns; first += step) {
    if (a.vectors) {
      const Vector gates = *(const Vector*)(gate + first);
      const Vector ups = *(const Vector*)(up + first);
      Vector result;
#pragma unroll
      for (int i = 0; i < WIDTH; ++i)
        result.values[i] = round_output(activate(read_output(gates.values[i]), read_output(ups.values[i])));
      *(Vector*)(y + first) = result;
      continue;
    }
#pragma unroll 1
    for (long long i = first; i < first + WIDTH && i < a.columns; ++i)
      y[i] = round_output(activate(read_output(gate[i]), read_output(up[i])));
  }
}
