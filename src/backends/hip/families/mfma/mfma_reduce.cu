// Adds the partial sums of split-K in the order of the splits. A thread has elements of y, and the grid's z a batch each.

#include "backends/hip/families/mfma/mfma_epilogue.cuh"

extern "C" __global__ void __launch_bounds__(256) mfma_reduce(const MfmaArguments all) {
  const MfmaArguments a = of_block(all);
  const sum* const partials = (const sum*)a.partials;
  const long long count = (long long)a.m * a.n;
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < count; i += (long long)gridDim.x * 256) {
    sum value = 0;
    for (int split = 0; split < a.split_k; ++split) value += partials[split * count + i];
    const int row = (int)(i / a.n);
    const int column = (int)(i % a.n);
    a.y[row * a.ldy + column] = epilogue_value(value, row_scale(a, row), column_at(a, column));
  }
}
