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

// Adds COUNT slots of a token. All loads are under way before the first is used: of few tokens their latency is what this kernel takes.
template <int COUNT>
static __device__ inline void add_slots(const MoeCombineArguments& a, const int* positions, const float* weights, const partial* partials, float (&sums)[WIDTH], bool& missing) {
  int position[COUNT];
  float weight[COUNT];
  PartialVector vectors[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    position[i] = positions[i];
    weight[i] = weights ? weights[i] : 1.0f;
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    missing |= position[i] < 0;
    vectors[i] = *(const PartialVector*)(partials + (position[i] < 0 ? 0 : position[i]) * a.columns);
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) sums[j] = fmaf(weight[i], read_partial(vectors[i].values[j]), sums[j]);
  }
}

// Two blocks a multiprocessor: with more the compiler has too few registers for the loads.
extern "C" __global__ void __launch_bounds__(THREADS, 2) moe_combine(const MoeCombineArguments a) {
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
    int slot = 0;
#pragma unroll 1
    for (; slot + 8 <= a.topk; slot += 8) add_slots<8>(a, positions + slot, weights ? weights + slot : nullptr, partials + first, sums, missing);
    if (slot + 4 <= a.topk) {
      add_slots<4>(a, positions + slot, weights ? weights + slot : nullptr, partials + first, sums, missing);
      slot += 4;
    }
#pragma unroll 1
    for (; slot < a.topk; ++slot) add_slots<1>(a, positions + slot, weights ? weights + slot : nullptr, partials + first, sums, missing);
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
