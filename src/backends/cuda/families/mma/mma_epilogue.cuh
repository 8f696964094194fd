// What the mma kernel and its split-K reduction share: the operands of a block's batch, and how a sum becomes an element of y.
#pragma once

#include "backends/cuda/families/mma/mma_arguments.h"
#include "backends/gpu/device/numbers.cuh"

using gemmtune::cuda::MmaArguments;

static __device__ inline float scale_of(const MmaArguments& a) { return a.x_scale ? *a.x_scale * *a.w_scale : 1.0f; }
static __device__ inline output epilogue_value(const MmaArguments& a, float sum, float scale, int n) {
  return round_output(sum * scale + (a.bias ? read_output(a.bias[n]) : 0.0f));
}

// Operands of this block's batch.
static __device__ inline long long batch_of_block() { return types().batched ? blockIdx.z : 0; }
static __device__ inline const unsigned char* x_of_block(const MmaArguments& a) {
  return a.x + batch_of_block() * a.x_batch_bytes;
}
static __device__ inline const unsigned char* w_of_block(const MmaArguments& a) {
  return a.w + batch_of_block() * a.w_batch_bytes;
}
static __device__ inline output* y_of_block(const MmaArguments& a) { return a.y + batch_of_block() * a.y_batch_step; }
static __device__ inline float* partials_of_block(const MmaArguments& a) {
  return a.partials + batch_of_block() * a.split_k * a.m * a.n;
}
