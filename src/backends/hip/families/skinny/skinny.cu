// y[m, n] = sum over k of x[m, k] * w[n, k] for few rows of x, without MFMA: waves stream the weight. See README.md.
//
// The host defines: ROWS (rows of x: 1, 2, 4, 8, 16), RN (weight rows of a lane), WAVES (that divide k), UNROLL (16 bytes of each row in
// flight), SHUFFLED (1: the weight has the layout aiter16x16), ELEMENT, OUTPUT, SCALES, BATCHED (1: the blocks along z have a batch each).
//
// A block computes RN rows of the weight, of a shuffled one 16 RN: its waves take turns along k, the lanes of a wave have 16 bytes of k each
// (of a shuffled weight 16 lanes have rows, 4 have k). The order of the sums is fixed.
using gemmtune::hip::SkinnyArguments;

#define ROW_LANES (SHUFFLED ? 16 : 1)
#define K_LANES (64 / ROW_LANES)
#define BLOCK_ROWS (RN * ROW_LANES)

#if ELEMENT == 4 && SCALES != 3
typedef int sum;
#else
typedef float sum;
#endif
typedef unsigned unit_words __attribute__((vector_size(16)));
typedef unit_words unit_anywhere __attribute__((aligned(1)));
typedef _Float16 half_pair __attribute__((vector_size(4)));
typedef float float_pair __attribute__((vector_size(8)));

// Adds the products of 16 bytes.
static __device__ inline sum dot(unit_words w, unit_words x, sum value) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if ELEMENT == 4
    value += (sum)__builtin_amdgcn_sdot4((int)w[i], (int)x[i], 0, false);
#elif ELEMENT == 1
    value = __builtin_amdgcn_fdot2(__builtin_bit_cast(half_pair, w[i]), __builtin_bit_cast(half_pair, x[i]), value, false);
#elif ELEMENT == 2
    value = fmaf(__uint_as_float(w[i] << 16), __uint_as_float(x[i] << 16), value);
    value = fmaf(__uint_as_float(w[i] & 0xffff0000u), __uint_as_float(x[i] & 0xffff0000u), value);
#else
    const float_pair w_low = __builtin_amdgcn_cvt_pk_f32_fp8((int)w[i], false);
    const float_pair w_high = __builtin_amdgcn_cvt_pk_f32_fp8((int)w[i], true);
    const float_pair x_low = __builtin_amdgcn_cvt_pk_f32_fp8((int)x[i], false);
    const float_pair x_high = __builtin_amdgcn_cvt_pk_f32_fp8((int)x[i], true);
    value = fmaf(w_low[0], x_low[0], value);
    value = fmaf(w_low[1], x_low[1], value);
    value = fmaf(w_high[0], x_high[0], value);
    value = fmaf(w_high[1], x_high[1], value);
#endif
  }
  return value;
}

// 16 bytes of k, of which `left` are there: read so that they end where the row does, moved to the front; the others are zero.
static __device__ inline unit_words load_unit(const unsigned char* from, long long left) {
  if (left >= 16) return *(const unit_anywhere*)from;
  const unit_words zero = {0, 0, 0, 0};
  if (left <= 0) return zero;
  typedef unsigned __int128 bits;
  return __builtin_bit_cast(unit_words, __builtin_bit_cast(bits, *(const unit_anywhere*)(from + left - 16)) >> ((16 - left) * 8));
}

static __device__ inline const unsigned char* weight_at(const SkinnyArguments& a, int row, long long byte) {
#if SHUFFLED
  return a.w + (long long)(row / 16 * 16) * a.k_bytes + byte * 16 + row % 16 * 16;
#else
  return a.w + row * a.k_bytes + byte;
#endif
}

// The arguments of this block's batch.
static __device__ inline SkinnyArguments of_batch(SkinnyArguments a) {
#if BATCHED
  const long long batch = blockIdx.z;
  a.x += batch * a.x_batch_bytes;
  a.w += batch * a.w_batch_bytes;
  a.y += batch * a.y_batch_step;
  a.scales = scales_of_batch(a.scales, batch, a.m, a.n);
#endif
  return a;
}

static __device__ inline sum from_lane(sum value, int lane) {
  return __builtin_bit_cast(sum, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, value)));
}

extern "C" __global__ void __launch_bounds__(64 * WAVES) skinny(const SkinnyArguments all) {
  const SkinnyArguments a = of_batch(all);
  __shared__ sum partials[WAVES][BLOCK_ROWS][ROWS];
  const int wave = threadIdx.x / 64;
  const int lane = threadIdx.x % 64;
  const int first = (int)blockIdx.x * BLOCK_ROWS + lane % ROW_LANES;
  int rows[RN];
#pragma unroll
  for (int r = 0; r < RN; ++r) rows[r] = first + r * ROW_LANES < a.n ? first + r * ROW_LANES : a.n - 1;

  sum sums[RN][ROWS] = {};
  for (long long base = 0; base < a.k_bytes; base += 16LL * K_LANES * WAVES * UNROLL) {
    unit_words w[UNROLL][RN];
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const long long byte = base + ((u * WAVES + wave) * K_LANES + lane / ROW_LANES) * 16LL;
#pragma unroll
      for (int r = 0; r < RN; ++r) w[u][r] = load_unit(weight_at(a, rows[r], byte), a.k_bytes - byte);
    }
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const long long byte = base + ((u * WAVES + wave) * K_LANES + lane / ROW_LANES) * 16LL;
#pragma unroll
      for (int m = 0; m < ROWS; ++m) {
        const int row = m < a.m ? m : a.m - 1;
        const unit_words x = load_unit(a.x + row * a.x_line_bytes + byte, a.k_bytes - byte);
#if SCALES == 3
        // 16 bytes belong to one block of 128 elements; of what lies past the end the scale is not read.
        const long long k = byte < a.k_bytes ? byte / (long long)sizeof(element) : 0;
        const float x_scale = x_scale_at(a.scales, row, k);
#pragma unroll
        for (int r = 0; r < RN; ++r) sums[r][m] += dot(w[u][r], x, 0) * (x_scale * w_scale_at(a.scales, rows[r], k));
#else
#pragma unroll
        for (int r = 0; r < RN; ++r) sums[r][m] = dot(w[u][r], x, sums[r][m]);
#endif
      }
    }
  }

#pragma unroll
  for (int r = 0; r < RN; ++r) {
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
#pragma unroll
      for (int apart = ROW_LANES; apart < 64; apart *= 2) sums[r][m] += from_lane(sums[r][m], lane ^ apart);
    }
  }
  if (lane < ROW_LANES) {
#pragma unroll
    for (int r = 0; r < RN; ++r) {
#pragma unroll
      for (int m = 0; m < ROWS; ++m) partials[wave][r * ROW_LANES + lane][m] = sums[r][m];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < BLOCK_ROWS * ROWS; i += 64 * WAVES) {
    const int row = i / BLOCK_ROWS;
    const int at = i % BLOCK_ROWS;
    const int column = (int)blockIdx.x * BLOCK_ROWS + at;
    if (row < a.m && column < a.n) {
      sum value = 0;
#pragma unroll
      for (int from = 0; from < WAVES; ++from) value += partials[from][at][row];
      const float scale = SCALES == 1 || SCALES == 2 ? x_scale_at(a.scales, row, 0) * w_scale_at(a.scales, column, 0) : 1.0f;
      a.y[row * a.ldy + column] = round_output((float)value * scale + (a.bias ? read_output(a.bias[column]) : 0.0f));
    }
  }
}
