// y[token] = sum over the token's slots that have an expert, in their order, of routing weight * (partial result + its expert's bias2). A block for each token and 2048 columns.
//
// The host defines: OUTPUT (numbers.cuh), PARTIALS (0: float32, 1: of y's type), BIAS (1: experts have one).

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_combine_arguments.h"
#include "backends/gpu/moe/moe_dependent.cuh"

using gemmtune::gpu::MoeCombineArguments;

#define THREADS 256
#define WIDTH 8  // columns of a thread
#define NOT_A_NUMBER __uint_as_float(0x7fc00000u)

typedef StoredElement<PARTIALS ? types().output : Element::f32>::type partial;
static __device__ inline float read_partial(partial value) {
  return read_stored < PARTIALS ? types().output : Element::f32 > (value);
}

struct __align__(16) PartialVector {
  partial values[WIDTH];
};
struct __align__(16) OutputVector {
  output values[WIDTH];
};

struct __align__(16) BiasVector {
  float values[WIDTH];
};

// The bias of a slot's expert, whose id is valid: the slot has a position.
static __device__ inline const float* bias_of(const MoeCombineArguments& a, long long token, int slot) {
  const int expert =
      slot < a.routed_topk ? a.ids[token * a.routed_topk + slot] : a.routed_experts + slot - a.routed_topk;
  return a.bias + expert * a.columns;
}

#define MAX_SLOTS (BIAS ? 4 : 8)  // that are loaded together: registers

// Adds COUNT slots of a token, from `slot` on. All loads are under way before the first is used: of few tokens their latency is what this kernel takes.
// `first`: the thread's first column.
template <int COUNT>
static __device__ inline void add_slots(const MoeCombineArguments& a, long long token, int slot, long long first,
                                        float (&sums)[WIDTH], bool& missing) {
  const partial* partials = (const partial*)a.partials + first;
  int position[COUNT];
  float weight[COUNT];
  PartialVector vectors[COUNT];
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    position[i] = a.position_of[token * a.topk + slot + i];
    weight[i] = a.weights ? a.weights[token * a.topk + slot + i] : 1.0f;
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
    missing |= position[i] < -1;
    // Of an empty slot nothing is read, and its weight may be anything.
    vectors[i] = PartialVector{};
    if (position[i] >= 0) {
      vectors[i] = *(const PartialVector*)(partials + position[i] * a.columns);
    } else {
      weight[i] = 0.0f;
    }
  }
  BiasVector biases[COUNT];
  if constexpr (BIAS) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      biases[i] = BiasVector{};
      if (position[i] >= 0) biases[i] = *(const BiasVector*)(bias_of(a, token, slot + i) + first);
    }
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) {
#pragma unroll
    for (int j = 0; j < WIDTH; ++j) {
      if constexpr (BIAS) {
        sums[j] = fmaf(weight[i], read_partial(vectors[i].values[j]) + biases[i].values[j], sums[j]);
      } else {
        sums[j] = fmaf(weight[i], read_partial(vectors[i].values[j]), sums[j]);
      }
    }
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
    for (; slot + MAX_SLOTS <= a.topk; slot += MAX_SLOTS) add_slots<MAX_SLOTS>(a, token, slot, first, sums, missing);
    if (slot + 4 <= a.topk) {
      add_slots<4>(a, token, slot, first, sums, missing);
      slot += 4;
    }
#pragma unroll 1
    for (; slot < a.topk; ++slot) add_slots<1>(a, token, slot, first, sums, missing);
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
      missing |= position < -1;
      if (position < 0) continue;
      float value = read_partial(partials[position * a.columns + first + i]);
      if constexpr (BIAS) {
        value += bias_of(a, token, slot)[first + i];
      }
      sum = fmaf(weights ? weights[slot] : 1.0f, value, sum);
    }
    a.y[token * a.ldy + first + i] = round_output(missing ? NOT_A_NUMBER : sum);
  }
}
