// y[m, n] = sum over k of x[m, k] * w[n, k] for few rows of x, without MFMA: waves stream the weight. See README.md.
//
// SkinnyConfig is what the host compiles it for. The blocks along z have a batch each.
//
// 16 bytes of an fp4 weight are 32 elements, a block of its scales.
//
// A block computes RN rows of the weight, of a shuffled or column-major one 16 RN: its waves take turns along k, the lanes of a wave have 16 bytes of
// k each (of these weights 16 lanes have rows, 4 have k). Of a column-major weight a lane reads RN adjacent elements of a line for each k, and
// transposes them. The order of the sums is fixed.

#include "backends/gpu/device/batch.cuh"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/device/scales.cuh"
#include "backends/hip/device/e2m1.cuh"
#include "backends/hip/device/fp8.cuh"
#include "backends/hip/device/registers.cuh"
#include "backends/hip/families/skinny/skinny_arguments.h"

using gemmtune::hip::SkinnyArguments;
static __device__ constexpr gemmtune::hip::SkinnyConfig config() { return CONFIG; }

enum : int {
  ROWS = config().rows,
  RN = config().weight_rows,
  WAVES = config().waves,
  UNROLL = config().unroll,
  ROW_LANES = config().shuffled || config().w_columns ? 16 : 1,
  K_LANES = 64 / ROW_LANES,
  BLOCK_ROWS = RN * ROW_LANES
};

template <bool INTEGERS>
struct SumOf {
  typedef float type;
};
template <>
struct SumOf<true> {
  typedef int type;
};
typedef SumOf<types().element == Element::int8 && types().scales != Scales::blocks>::type sum;
typedef unsigned unit_words __attribute__((vector_size(16)));
typedef unit_words unit_anywhere __attribute__((aligned(1)));

// ---- an MXFP4 weight

enum : int {
  X_FP8 = types().element == Element::e4m3 || types().element == Element::e4m3fnuz,
  // Of eight elements.
  X_BYTES = types().element == Element::e2m1 ? 4 : (X_FP8 ? 8 : 16),
  // fp16 holds all fp4 elements. Those of bf16 and fp8 are multiplied as float32.
  PAIRS = types().element == Element::f16 || types().element == Element::e2m1
};
typedef unsigned x_words __attribute__((vector_size(X_BYTES)));
typedef x_words x_anywhere __attribute__((aligned(1)));
template <bool AS_PAIRS>
struct DecodedOf {
  typedef float type[8];
};
template <>
struct DecodedOf<true> {
  typedef half_pair type[4];
};
typedef DecodedOf<PAIRS>::type decoded;

static __device__ inline void decode_x(half_pair (&to)[4], x_words from) {
  if constexpr (types().element == Element::e2m1) {
    decode_e2m1(to, from[0]);
  } else {
#pragma unroll
    for (int i = 0; i < 4; ++i) to[i] = __builtin_bit_cast(half_pair, (unsigned)from[i]);
  }
}
static __device__ inline void decode_x(float (&to)[8], x_words from) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (types().element == Element::bf16) {
      to[2 * i] = __uint_as_float(from[i] << 16);
      to[2 * i + 1] = __uint_as_float(from[i] & 0xffff0000u);
    } else {
      const float_pair pair = fp8_pair(from[i / 2], i % 2);
      to[2 * i] = pair[0];
      to[2 * i + 1] = pair[1];
    }
  }
}

// Adds the products of eight elements.
static __device__ inline float dot(const half_pair (&w)[4], const half_pair (&x)[4], float value) {
#pragma unroll
  for (int i = 0; i < 4; ++i) value = __builtin_amdgcn_fdot2(w[i], x[i], value, false);
  return value;
}
static __device__ inline float dot(const float (&w)[8], const float (&x)[8], float value) {
#pragma unroll
  for (int i = 0; i < 8; ++i) value = fmaf(w[i], x[i], value);
  return value;
}

// Adds the products of a block of 32 elements, at the weight's byte `byte`, to the sums.
static __device__ inline void add_block(sum (&sums)[RN][ROWS], const SkinnyArguments& a, const unit_words (&w)[RN],
                                        const int (&rows)[RN], long long byte) {
  if (byte >= a.k_bytes) return;
  const long long block = byte / 16;
  float products[RN][ROWS] = {};
#pragma unroll
  for (int word = 0; word < 4; ++word) {
    decoded numbers[RN];
#pragma unroll
    for (int r = 0; r < RN; ++r) decode_e2m1(numbers[r], w[r][word]);
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
      // Both scales first, because a sum times one of them may be too large; products are multiples of a quarter.
      if constexpr (types().scales == Scales::mx)
        sums[r][m] += products[r][m] * 4.0f * (scale * 0.25f * x_scale_at(a.scales, row, block * MX_BLOCK));
      else
        sums[r][m] += products[r][m] * scale;
    }
  }
}

// ---- other weights

// Adds the products of 16 bytes.
static __device__ inline sum dot(unit_words w, unit_words x, sum value) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if constexpr (types().element == Element::int8) {
      value += (sum)__builtin_amdgcn_sdot4((int)w[i], (int)x[i], 0, false);
    } else if constexpr (types().element == Element::f16) {
      value = __builtin_amdgcn_fdot2(__builtin_bit_cast(half_pair, w[i]), __builtin_bit_cast(half_pair, x[i]), value,
                                     false);
    } else if constexpr (types().element == Element::bf16) {
      value = fmaf(__uint_as_float(w[i] << 16), __uint_as_float(x[i] << 16), value);
      value = fmaf(__uint_as_float(w[i] & 0xffff0000u), __uint_as_float(x[i] & 0xffff0000u), value);
    } else {
      const float_pair w_low = fp8_pair(w[i], false);
      const float_pair w_high = fp8_pair(w[i], true);
      const float_pair x_low = fp8_pair(x[i], false);
      const float_pair x_high = fp8_pair(x[i], true);
      value = fmaf(w_low[0], x_low[0], value);
      value = fmaf(w_low[1], x_low[1], value);
      value = fmaf(w_high[0], x_high[0], value);
      value = fmaf(w_high[1], x_high[1], value);
    }
  }
  return value;
}

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
  if constexpr (config().shuffled) return a.w + (long long)(row / 16 * 16) * a.k_bytes + byte * 16 + row % 16 * 16;
  return a.w + row * a.k_bytes + byte;
}

// The bytes of k that a lane has of the u-th of the loads which begin at `base`.
static __device__ inline long long byte_of(long long base, int u) {
  const int wave = threadIdx.x / 64;
  const int lane = threadIdx.x % 64;
  return base + ((u * WAVES + wave) * K_LANES + lane / ROW_LANES) * 16LL;
}
enum : int { STEP_BYTES = 16 * K_LANES * WAVES * UNROLL };  // of k, of a block

// What a lane has loaded of its rows: 16 bytes of k of each.
template <bool COLUMNS>
struct LoadedOf {
  unit_words units[RN];
};
typedef LoadedOf<config().w_columns> Loaded;

static __device__ inline void load_weights(LoadedOf<false> (&to)[UNROLL], const SkinnyArguments& a,
                                           const int (&rows)[RN], long long base) {
#pragma unroll
  for (int u = 0; u < UNROLL; ++u) {
    const long long byte = byte_of(base, u);
#pragma unroll
    for (int r = 0; r < RN; ++r) to[u].units[r] = load_unit(weight_at(a, rows[r], byte), a.k_bytes - byte);
  }
}
static __device__ inline void units_of(unit_words (&to)[RN], const LoadedOf<false>& from) {
#pragma unroll
  for (int r = 0; r < RN; ++r) to[r] = from.units[r];
}

// ---- a column-major weight

enum : int {
  ELEMENT_BYTES = types().element == Element::f16 || types().element == Element::bf16 ? 2 : 1,
  UNIT_LINES = 16 / ELEMENT_BYTES,  // of memory, each an element of k
  PART_BYTES = RN * ELEMENT_BYTES   // that a lane reads of a line
};
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
template <>
struct LoadedOf<true> {
  part lines[UNIT_LINES];
};

// The first row of lanes out of bounds is that of the last part; what is computed of such rows is not stored, so that a part may reach into the next
// line. Lanes' offsets have 31 bits.
static __device__ inline void load_weights(LoadedOf<true> (&to)[UNROLL], const SkinnyArguments& a,
                                           const int (&rows)[RN], long long base) {
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
static __device__ inline void units_of(unit_words (&to)[RN], const LoadedOf<true>& from) {
#pragma unroll
  for (int r = 0; r < RN; ++r) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (ELEMENT_BYTES == 2) {
        constexpr int word = 32 % (8 * PART_BYTES);  // to the second one, where a part has two
        const part first = r < 2 ? from.lines[2 * i] : (part)(from.lines[2 * i] >> word);
        const part second = r < 2 ? from.lines[2 * i + 1] : (part)(from.lines[2 * i + 1] >> word);
        to[r][i] = __builtin_amdgcn_perm((unsigned)second, (unsigned)first, r % 2 ? 0x07060302u : 0x05040100u);
      } else {
        const unsigned bytes = 0x0c0c0000u | (4u + r) << 8 | (unsigned)r;  // 0x0c: a zero
        const unsigned low = __builtin_amdgcn_perm((unsigned)from.lines[4 * i + 1], (unsigned)from.lines[4 * i], bytes);
        const unsigned high =
            __builtin_amdgcn_perm((unsigned)from.lines[4 * i + 3], (unsigned)from.lines[4 * i + 2], bytes);
        to[r][i] = high << 16 | low;
      }
    }
  }
}

// A lane's r-th row in the block.
static __device__ inline int row_in_block(int lane, int r) {
  return config().w_columns ? lane % ROW_LANES * RN + r : r * ROW_LANES + lane % ROW_LANES;
}

static __device__ inline sum from_lane(sum value, int lane) {
  return __builtin_bit_cast(sum, __builtin_amdgcn_ds_bpermute(lane * 4, __builtin_bit_cast(int, value)));
}

// Adds the products of 16 bytes of k of each row, from byte `byte` on, to the sums.
static __device__ __forceinline__ void add_products(sum (&sums)[RN][ROWS], const SkinnyArguments& a,
                                                    const unit_words (&w)[RN], const int (&rows)[RN], long long byte) {
#pragma unroll
  for (int m = 0; m < ROWS; ++m) {
    const int row = m < a.m ? m : a.m - 1;
    const unit_words x = load_unit(a.x + row * a.x_line_bytes + byte, a.k_bytes - byte);
    if constexpr (types().scales == Scales::blocks) {
      // 16 bytes belong to one block of 128 elements; of what lies past the end the scale is not read.
      const long long k = byte < a.k_bytes ? byte / (long long)sizeof(element) : 0;
      const float x_scale = x_scale_at(a.scales, row, k);
#pragma unroll
      for (int r = 0; r < RN; ++r) sums[r][m] += dot(w[r], x, 0) * (x_scale * w_scale_at(a.scales, rows[r], k));
    } else {
#pragma unroll
      for (int r = 0; r < RN; ++r) sums[r][m] = dot(w[r], x, sums[r][m]);
    }
  }
}

extern "C" __global__ void __launch_bounds__(64 * WAVES) skinny(const SkinnyArguments all) {
  const SkinnyArguments a = types().batched ? of_batch(all) : all;
  __shared__ sum partials[WAVES][BLOCK_ROWS][ROWS];
  const int wave = threadIdx.x / 64;
  const int lane = threadIdx.x % 64;
  int rows[RN];
  const int last_row = config().w_columns ? (a.n - 1) / RN * RN : a.n - 1;
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
      if constexpr (types().w_scales == Scales::mx)
        add_block(sums, a, w, rows, byte);
      else
        add_products(sums, a, w, rows, byte);
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
      constexpr bool scaled = types().scales == Scales::matrix || types().scales == Scales::rows;
      const float x_scale = scaled ? x_scale_at(a.scales, row, 0) : 1.0f;
      const float scale =
          scaled && types().w_scales == types().scales ? x_scale * w_scale_at(a.scales, column, 0) : x_scale;
      a.y[row * a.ldy + column] = round_output((float)value * scale + (a.bias ? read_output(a.bias[column]) : 0.0f));
    }
  }
}
