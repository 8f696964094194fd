// Repeats one scale of a matrix for all of its rows.

#include "backends/cuda/families/cublaslt/expand_scale_arguments.h"

using gemmtune::cuda::ExpandScaleArguments;

extern "C" __global__ void __launch_bounds__(256) expand_scale(const ExpandScaleArguments a) {
  const long long i = blockIdx.x * 256LL + threadIdx.x;
  if (i < a.count) a.to[i] = *a.from;
}
