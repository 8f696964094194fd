// Where the four bits of an element stand in its half of a word of the layout fragment64 (numbers/weight_layout.h). IS_INT4: of int4 weights, not of e2m1 ones.
#pragma once

static __device__ inline int fragment_sign_at(int pair) {
  return pair == 0 ? 15 : pair == 1 ? 12 : pair == 2 ? 14 : 13;
}
static __device__ inline int fragment_magnitude_at(int pair) {
  return pair == 0 ? 6 : pair == 1 ? 3 : pair == 2 ? 0 : 9;
}

template <bool IS_INT4>
static __device__ inline unsigned spread_element(unsigned bits, int pair) {
  if constexpr (IS_INT4) return bits << (4 * pair);
  return (bits >> 3 & 1u) << fragment_sign_at(pair) | (bits & 7u) << fragment_magnitude_at(pair);
}
template <bool IS_INT4>
static __device__ inline unsigned gather_element(unsigned half, int pair) {
  if constexpr (IS_INT4) return half >> (4 * pair) & 15u;
  return (half >> fragment_sign_at(pair) & 1u) << 3 | (half >> fragment_magnitude_at(pair) & 7u);
}
