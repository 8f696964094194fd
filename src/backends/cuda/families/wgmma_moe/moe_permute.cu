// Permutes the columns of tokens within 128, as wgmma_moe needs it of an MXFP4 weight: column 32 t + 8 w + j + 4 i goes to 32 w + 8 j + 2 t + i (t, w, j < 4, i < 2).
// A thread has one w of a unit: 8 columns of each t.
using gemmtune::cuda::MoePermuteArguments;

#define THREADS 256

extern "C" __global__ void __launch_bounds__(THREADS) moe_permute(const MoePermuteArguments a) {
  wait_for_the_kernel_in_front();
  const long long item = (long long)blockIdx.x * THREADS + threadIdx.x;
  const int each = a.units * 4;
  const long long token = item / each;
  if (token >= a.tokens) return;
  const int unit = (int)(item % each) / 4;
  const int w = (int)(item % each) % 4;
  uint4 from[4];
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    const int column = unit * 128 + t * 32 + w * 8;
    from[t] = make_uint4(0, 0, 0, 0);
    if (column < a.columns) from[t] = *(const uint4*)(a.x + token * a.x_row_bytes + column * 2);
  }
  uint4* const to = (uint4*)(a.to + (token * a.units + unit) * 256 + w * 64);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    unsigned pairs[4];  // columns j and j + 4 of each t
#pragma unroll
    for (int t = 0; t < 4; ++t) pairs[t] = __byte_perm(j < 2 ? from[t].x : from[t].y, j < 2 ? from[t].z : from[t].w, j % 2 == 0 ? 0x5410 : 0x7632);
    to[j] = make_uint4(pairs[0], pairs[1], pairs[2], pairs[3]);
  }
}
