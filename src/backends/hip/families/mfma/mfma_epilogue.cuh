// What mfma and the reduction of its partial sums share: the arguments of a block's batch, and how sums become y.
#pragma once

#include "backends/gpu/device/batch.cuh"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/device/scales.cuh"
#include "backends/hip/families/mfma/mfma_arguments.h"

using gemmtune::hip::MfmaArguments;

template <Element TYPE>
struct SumOf {
  typedef float type;
};
template <>
struct SumOf<Element::int8> {
  typedef int type;
};
typedef SumOf<types().element>::type sum;

static __device__ inline MfmaArguments of_block(const MfmaArguments& all) {
  if constexpr (!types().batched) return all;
  return of_batch(all, [](MfmaArguments& a, long long batch) {
    a.y += batch * a.y_batch_step;
    a.partials = (sum*)a.partials + batch * a.split_k * a.m * a.n;
  });
}

// Scales that are the same for all of k. They are factors of a row and of a column.
static __device__ constexpr bool of_whole_k(Scales scales) {
  return scales == Scales::matrix || scales == Scales::rows;
}
static __device__ inline float row_scale(const MfmaArguments& a, int row) {
  return of_whole_k(types().scales) ? x_scale_at(a.scales, row, 0) : 1.0f;
}
struct Column {
  float scale, bias;
};
static __device__ inline Column column_at(const MfmaArguments& a, int column) {
  constexpr bool scaled = of_whole_k(types().scales) && types().w_scales == types().scales;
  return {scaled ? w_scale_at(a.scales, column, 0) : 1.0f, a.bias ? read_output(a.bias[column]) : 0.0f};
}
static __device__ inline output epilogue_value(sum value, float scale, const Column& column) {
  return round_output((float)value * (scale * column.scale) + column.bias);
}
