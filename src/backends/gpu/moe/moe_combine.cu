// y[token] = sum over the token's slots, in their order, of routing weight * partial result. A block for each token and 2048 columns.
//
// The host defines: OUTPUT (numbers.cuh), PARTIALS (0: float32, 1: of y's type).
using gemmtune::gpu::MoeCombineArguments;

#define THREADS 256
#define WIDTH 8  // columns of a thread
#define NOT_A_NUMBER __uint_as_float(0x7fc00000u)

#if PARTIALS
typedef output partial;
static __device__ inline float read_partial(partial value) { return read_output(value); }
#else
typedef float partial;
static __device__ inline float read_partial(partial value) { return value; }
#endif

struct __align__(16) PartialVector {
  partial values[WIDTH];
};
struct __align__(16) OutputVector {
  output values[WIDTH];
};

extern "C" __global__ void __launch_bounds__(THREADS) moe_combine(const MoeCombineArguments a) {
  wait_for_the_kernel_in_front();
  const long long token = blockIdx.x;
  const int* positions = a.position_of + token * a.topk;
  const float* weights = a.weights ? a.weights + token * a.topk : nullptr;
  const partial* partials = (const partial*)a.partials;
  const long long first = ((long long)blockIdx.y * THREADS + threadIdx.x) * WIDTH;
  if (first >= a.columns) return;
  float sums[WIDTH] = {};
  bool missing = false;
  if (a.vectors) {
#pragma unroll 4
    for (int slot = 0; slot < a.topk; ++slot) {
      const int position = positions[slot];
      if (position < 0) {
        missing = true;
        continue;
      }
      const float weight = weights ? weights[slot] : 1.0f;
      const PartialVector vector = *(const PartialVector*)(partials + position * a.columns + first);
#pragma unroll
      for (int i = 0; i < WIDTH; ++i) sums[i] = fmaf(weight, read_partial(vector.values[i]), sums[i]);
    }
    OutputVector result;
#pragma unroll
    for (int i = 0; i < WIDTH; ++i) result.values[i] = round_output(missing ? NOT_A_NUMBER : sums[i]);
    *(OutputVector*)(a.y + token * a.ldy + first) = result;
    return;
  }
#pragma unroll 1
  for (int i = 0; i < WIDTH && first + i < a.columns; ++i) {
    float sum = 0.0f;
    for (int slot = 0; slot < a.topk; ++slot) {
      const int position = positions[slot];
      if (position < 0) {
        missing = true;
        break;
      }
      sum = fmaf(weights ? weights[slot] : 1.0f, read_partial(partials[position * a.columns + first + i]), sum);
    }
    a.y[token * a.ldy + first + i] = round_output(missing ? NOT_A_NUMBER : sum);
  }
}
