// Adds the partial sums of split-K in the order of the splits. A thread has elements of y, and the grid's y a batch each.

#include "backends/cuda/families/mma/mma_epilogue.cuh"

extern "C" __global__ void __launch_bounds__(256) mma_reduce(const MmaArguments a) {
  const long long count = (long long)a.m * a.n;
  const float scale = scale_of(a);
  for (long long i = (long long)blockIdx.x * 256 + threadIdx.x; i < count; i += (long long)gridDim.x * 256) {
    float sum = 0.0f;
    for (int split = 0; split < a.split_k; ++split) sum += partials_of_block(a)[split * count + i];
    const int row = (int)(i / a.n);
    const int column = (int)(i % a.n);
    y_of_block(a)[row * a.ldy + column] = epilogue_value(a, sum, scale, column);
  }
}
