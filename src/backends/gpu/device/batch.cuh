// The arguments of a block's batch: the grid's z is the batches.
#pragma once

#include "backends/gpu/device/scales.cuh"

// Steps are in the units of the pointers: elements, or bytes. advance(a, batch) is of what else has batches.
template <typename Arguments, typename Advance>
static __device__ inline Arguments of_batch(Arguments a, const Advance& advance) {
  const long long batch = blockIdx.z;
  a.x += batch * a.x_batch_step;
  a.w += batch * a.w_batch_step;
  advance(a, batch);
  a.scales = scales_of_batch(a.scales, batch, a.m, a.n);
  return a;
}
template <typename Arguments>
static __device__ inline Arguments of_batch(const Arguments& all) {
  return of_batch(all, [](Arguments& a, long long batch) { a.y += batch * a.y_batch_step; });
}
