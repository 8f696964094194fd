// y[m, n] = sum over k of x[m, k] * w[n, k] for few rows of x, without MFMA: waves stream the weight. See README.md.
//
// The host defines: ROWS (rows of x: 1, 2, 4, 8, 16), RN (weight rows of a lane), WAVES (that divide k), UNROLL (16 bytes of each row in
// flight), SHUFFLED (1: the weight has the layout aiter16x16), W_COLUMNS (1: the weight is column-major), ELEMENT, OUTPUT, SCALES, W_SCALES,
// BATCHED (1: the blocks along z have a batch each).
//
// 16 bytes of an fp4 weight are 32 elements, a block of its scales.
//
// A block computes RN rows of the weight, of a shuffled or column-major one 16 RN: its waves take turns along k, the lanes of a wave have 16 bytes of
// k each (of these weights 16 lanes have rows, 4 have k). Of a column-major weight a lane reads RN adjacent elements of a line for each k, and
// transposes them. The order of the sums is fixed.

#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/device/scales.cuh"
#include "backends/hip/families/skinny/skinny_arguments.h"

using gemmtune::hip::SkinnyArguments;

#define ROW_LANES (SHUFFLED || W_COLUMNS ? 16 : 1)
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

#if W_SCALES == 4

#define X_BYTES (ELEMENT == 5 ? 4 : ELEMENT == 3 || ELEMENT == 6 ? 8 : 16)  // of eight elements
typedef unsigned x_words __attribute__((vector_size(X_BYTES)));
typedef x_words x_anywhere __attribute__((aligned(1)));
// fp16 holds all fp4 elements. Those of bf16 and fp8 are multiplied as float32.
#define PAIRS (ELEMENT == 1 || ELEMENT == 5)
#if PAIRS
typedef half_pair decoded[4];
#else
typedef float decoded[8];
#endif

// Eight elements without their scale. The bytes of their numbers come from tables of eight bytes, chosen by the magnitudes.
static __device__ inline void decode_fp4(decoded& to, unsigned word) {
  const unsigned even = word & 0x07070707u;
  const unsigned odd = word >> 4 & 0x07070707u;
#if PAIRS
  const unsigned evens = __builtin_amdgcn_perm(0x46444240u, 0x3e3c3800u, even) | (word & 0x08080808u) << 4;
  const unsigned odds = __builtin_amdgcn_perm(0x46444240u, 0x3e3c3800u, odd) | (word & 0x80808080u);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i)  // 0x0c: a zero
    to[i] =
        __builtin_bit_cast(half_pair, __builtin_amdgcn_perm(odds, evens, (4 + i) << 24 | 0x0c0000u | i << 8 | 0x0cu));
#else
  const unsigned even_high = __builtin_amdgcn_perm(0x40404040u, 0x3f3f3f00u, even) | (word & 0x08080808u) << 4;
  const unsigned odd_high = __builtin_amdgcn_perm(0x40404040u, 0x3f3f3f00u, odd) | (word & 0x80808080u);
  const unsigned even_low = __builtin_amdgcn_perm(0xc0804000u, 0xc0800000u, even);
  const unsigned odd_low = __builtin_amdgcn_perm(0xc0804000u, 0xc0800000u, odd);
#pragma unroll
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned bytes = (4 + i) << 24 | i << 16 | 0x0c0cu;
    to[2 * i] = __uint_as_float(__builtin_amdgcn_perm(even_high, even_low, bytes));
    to[2 * i + 1] = __uint_as_float(__builtin_amdgcn_perm(odd_high, odd_low, bytes));
  }
#endif
}

static __device__ inline void decode_x(decoded& to, x_words from) {
#if ELEMENT == 5
  decode_fp4(to, from[0]);
#else
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if ELEMENT == 1
    to[i] = __builtin_bit_cast(half_pair, (unsigned)from[i]);
#elif ELEMENT == 2
    to[2 * i] = __uint_as_float(from[i] << 16);
    to[2 * i + 1] = __uint_as_float(from[i] & 0xffff0000u);
#elif (ELEMENT == 6 && defined(__gfx942__)) || (ELEMENT == 3 && defined(__gfx950__))
    const float_pair pair = i % 2 ? __builtin_amdgcn_cvt_pk_f32_fp8((int)from[i / 2], true)
                                  : __builtin_amdgcn_cvt_pk_f32_fp8((int)from[i / 2], false);
    to[2 * i] = pair[0];
    to[2 * i + 1] = pair[1];
#else
    const unsigned both = from[i / 2] >> i % 2 * 16;
    to[2 * i] = read_element((element)(both & 255u));
    to[2 * i + 1] = read_element((element)(both >> 8 & 255u));
#endif
  }
#endif
}

// Adds the products of eight elements.
static __device__ inline float dot(const decoded& w, const decoded& x, float value) {
#if PAIRS
#pragma unroll
  for (int i = 0; i < 4; ++i) value = __builtin_amdgcn_fdot2(w[i], x[i], value, false);
#else
#pragma unroll
  for (int i = 0; i < 8; ++i) value = fmaf(w[i], x[i], value);
#endif
  return value;
}

// Adds the products of a block of 32 elements, at the weight's byte `byte`, to the sums.
static __device__ inline void add_block(float (&sums)[RN][ROWS], const SkinnyArguments& a, const unit_words (&w)[RN],
                                        const int (&rows)[RN], long long byte) {
  if (byte >= a.k_bytes) return;
  const long long block = byte / 16;
  float products[RN][ROWS] = {};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    decoded numbers[RN];
#pragma unroll
    for (int r = 0; r < RN; ++r) decode_fp4(numbers[r], w[r][word]);
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      const int row = m < a.m ? m : a.m - 1;
      decoded x;
      decode_x(x, *(const x_anywhere*)(a.x + row * a.x_line_bytes + (block * 4 + word) * X_BYTES));
#pragma unroll
      for (int r = 0; r < RN; ++r) products[r][m] = dot(numbers[r], x, products[r][m]);
    }
  }
#pragma unroll
  for (int r = 0; r < RN; ++r) {
    const float scale = w_scale_at(a.scales, rows[r], block * MX_BLOCK);
#pragma unroll
    for (int m = 0; m < ROWS; ++m) {
      const int row = m < a.m ? m : a.m - 1;
#if SCALES == 4
      // Both scales first, because a sum times one of them may be too large; products are multiples of a quarter.
      sums[r][m] += products[r][m] * 4.0f * (scale * 0.25f * x_scale_at(a.scales, row, block * MX_BLOCK));
#else
      sums[r][m] += products[r][m] * scale;
#endif
    }
  }
}

#else

// Adds the products of 16 bytes.
static __device__ inline sum dot(unit_words w, unit_words x, sum value) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
#if ELEMENT == 4
    value += (sum)__builtin_amdgcn_sdot4((int)w[i], (int)x[i], 0, false);
#elif ELEMENT == 1
    value =
        __builtin_amdgcn_fdot2(__builtin_bit_cast(half_pair, w[i]), __builtin_bit_cast(half_pair, x[i]), value, false);
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

#endif

// 16 bytes of k, of which `left` are there: read so that they end where the row does, moved to the front; the others are zero.
static __device__ inline unit_words load_unit(const unsigned char* from, long long left) {
  if (left >= 16) return *(const unit_anywhere*)from;
  const unit_words zero = {0, 0, 0, 0};
  if (left <= 0) return zero;
  typedef unsigned __int128 bits;
  return __builtin_bit_cast(unit_words,
                            __builtin_bit_cast(bits, *(const unit_anywhere*)(from + left - 16)) >> ((16 - left) * 8));
}

static __device__ inline const unsigned char* weight_at(const SkinnyArguments& a, int row, long long byte) {
#if SHUFFLED
  return a.w + (long long)(row / 16 * 16) * a.k_bytes + byte * 16 + row % 16 * 16;
#else
  return a.w + row * a.k_bytes + byte;
#endif
}

// The bytes of k that a lane has of the u-th of the loads which begin at `base`.
static __device__ inline long long byte_of(long long base, int u) {
  const int wave = threadIdx.x / 64;
  const int lane = threadIdx.x % 64;
  return base + ((u * WAVES + wave) * K_LANES + lane / ROW_LANES) * 16LL;
}
#define STEP_BYTES (16LL * K_LANES * WAVES * UNROLL)  // of k, of a block

// What a lane has loaded of its rows: 16 bytes of k of each.
#if W_COLUMNS

#define ELEMENT_BYTES (ELEMENT == 1 || ELEMENT == 2 ? 2 : 1)
#define UNIT_LINES (16 / ELEMENT_BYTES)  // of memory, each an element of k
#define PART_BYTES (RN * ELEMENT_BYTES)  // that a lane reads of a line
template <int BYTES>
struct PartOf {
  typedef unsigned char type;
};
template <>
struct PartOf<2> {
  typedef unsigned short type;
};
template <>
struct PartOf<4> {
  typedef unsigned type;
};
template <>
struct PartOf<8> {
  typedef unsigned long long type;
};
typedef PartOf<PART_BYTES>::type part;
typedef part part_anywhere __attribute__((aligned(1)));
struct Loaded {
  part lines[UNIT_LINES];
};

// Keeps a value of the whole block in scalar registers, where the compiler would add it to addresses of lanes.
static __device__ inline long long in_scalar_registers(long long value) {
#ifndef GEMMTUNE_EMULATION
  asm volatile("" : "+s"(value));
#endif
  return value;
}

// Keeps what depends on it, addresses of lanes that are rarely used, from being computed before the loop and held in registers.
static __device__ inline int computed_here(int value) {
#ifndef GEMMTUNE_EMULATION
  asm volatile("" : "+v"(value));
#endif
  return value;
}

// The first row of lanes out of bounds is that of the last part; what is computed of such rows is not stored, so that a part may reach into the next
// line. Lanes' offsets have 31 bits.
static __device__ inline void load_weights(Loaded (&to)[UNROLL], const SkinnyArguments& a, const int (&rows)[RN],
                                           long long base) {
  const int line_bytes = a.n * ELEMENT_BYTES;
  const unsigned char* const from = a.w + base / ELEMENT_BYTES * line_bytes;
  const int first = (int)(byte_of(0, 0) / ELEMENT_BYTES);
  const int row_bytes = rows[0] * ELEMENT_BYTES;
  constexpr int apart = UNIT_LINES * K_LANES * WAVES;
  const unsigned begin = (unsigned)(first * line_bytes + row_bytes);
  const int lines = (int)((a.k_bytes - base) / ELEMENT_BYTES);
  const int lines_inside = lines - (a.n % RN == 0 ? 0 : RN);  // whose parts do not end behind the weight
  const long long last = lines * (long long)line_bytes - PART_BYTES;
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const int line = first + u * apart;
    if (line + UNIT_LINES <= lines_inside) {
      long long offset = in_scalar_registers(u * apart * (long long)line_bytes);  // of the j-th line
#pragma unroll
      for (int j = 0; j < UNIT_LINES; ++j) {
        to[u].lines[j] = *(const part_anywhere*)(from + offset + begin);
        offset = in_scalar_registers(offset + line_bytes);
      }
    } else {
      const int hidden = computed_here(line);
#pragma unroll
      for (int j = 0; j < UNIT_LINES; ++j) {
        to[u].lines[j] = 0;
        if (hidden + j < lines) {
          const long long at = (hidden + j) * (long long)line_bytes + row_bytes;
          const long long there = at < last ? at : last;
          to[u].lines[j] = (part)(*(const part_anywhere*)(from + there) >> (int)(at - there) * 8);
        }
      }
    }
  }
}

// Elements of the rows become a unit of each.
static __device__ inline void units_of(unit_words (&to)[RN], const Loaded& from) {
#pragma unroll
  for (int r = 0; r < RN; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#if ELEMENT == 1 || ELEMENT == 2
      constexpr int word = 32 % (8 * PART_BYTES);  // to the second one, where a part has two
      const part first = r < 2 ? from.lines[2 * i] : (part)(from.lines[2 * i] >> word);
      const part second = r < 2 ? from.lines[2 * i + 1] : (part)(from.lines[2 * i + 1] >> word);
      to[r][i] = __builtin_amdgcn_perm((unsigned)second, (unsigned)first, r % 2 ? 0x07060302u : 0x05040100u);
#else
      const unsigned bytes = 0x0c0c0000u | (4u + r) << 8 | (unsigned)r;  // 0x0c: a zero
      const unsigned low = __builtin_amdgcn_perm((unsigned)from.lines[4 * i + 1], (unsigned)from.lines[4 * i], bytes);
      const unsigned high =
          __builtin_amdgcn_perm((unsigned)from.lines[4 * i + 3], (unsigned)from.lines[4 * i + 2], bytes);
      to[r][i] = high << 16 | low;
#endif
    }
  }
}

#else

struct Loaded {
  unit_words units[RN];
};
static __device__ inline void load_weights(Loaded (&to)[UNROLL], const SkinnyArguments& a, const int (&rows)[RN],
                                           long long base) {
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const long long byte = byte_of(base, u);
#pragma unroll
    for (int r = 0; r < RN; ++r) to[u].units[r] = load_unit(weight_at(a, rows[r], byte), a.k_bytes - byte);
  }
}
static __device__ inline void units_of(unit_words (&to)[RN], const Loaded& from) {
#pragma unroll
  for (int r = 0; r < RN; ++r) to[r] = from.units[r];
}

#endif

// A lane's r-th row in the block.
static __device__ inline int row_in_block(int lane, int r) {
  return W_COLUMNS ? lane % ROW_LANES * RN + r : r * ROW_LANES + lane % ROW_LANES;
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
  int rows[RN];
  const int last_row = W_COLUMNS ? (a.n - 1) / RN * RN : a.n - 1;
#pragma unroll
  for (int r = 0; r < RN; ++r) {
    const int row = (int)blockIdx.x * BLOCK_ROWS + row_in_block(lane, r);
    rows[r] = row < last_row ? row : last_row;
  }

  sum sums[RN][ROWS] = {};
  for (long long base = 0; base < a.k_bytes; base += STEP_BYTES) {
    Loaded loaded[UNROLL];
    load_weights(loaded, a, rows, base);
#pragma unroll
    for (int u = 0; u < UNROLL; ++u) {
      const long long byte = byte_of(base, u);
      unit_words w[RN];
      units_of(w, loaded[u]);
#if W_SCALES == 4
      add_block(sums, a, w, rows, byte);
#else
#pragma unroll
      for (int m = 0; m < ROWS; ++m) {
        const int row = m < a.m ? m : a.m - 1;
        const unit_words x = load_unit(a.x + row * a.x_line_bytes + byte, a.k_bytes - byte);
#if SCALES == 3
        // 16 bytes belong to one block of 128 elements; of what lies past the end the scale is not read.
        const long long k = byte < a.k_bytes ? byte / (long long)sizeof(element) : 0;
        const float x_scale = x_scale_at(a.scales, row, k);
#pragma unroll
        for (int r = 0; r < RN; ++r) sums[r][m] += dot(w[r], x, 0) * (x_scale * w_scale_at(a.scales, rows[r], k));
#else
#pragma unroll
        for (int r = 0; r < RN; ++r) sums[r][m] = dot(w[r], x, sums[r][m]);
#endif
      }
#endif
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
      for (int m = 0; m < ROWS; ++m) partials[wave][row_in_block(lane, r)][m] = sums[r][m];
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
      const float x_scale = SCALES == 1 || SCALES == 2 ? x_scale_at(a.scales, row, 0) : 1.0f;
      const float scale =
          (SCALES == 1 || SCALES == 2) && W_SCALES == SCALES ? x_scale * w_scale_at(a.scales, column, 0) : x_scale;
      a.y[row * a.ldy + column] = round_output((float)value * scale + (a.bias ? read_output(a.bias[column]) : 0.0f));
    }
  }
}
