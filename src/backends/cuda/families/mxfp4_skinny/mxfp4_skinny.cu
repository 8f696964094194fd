// Few rows of bf16 or MXFP4 x times a 4-bit weight on Hopper. The weight is read as a stream: a block, or a cluster whose blocks divide k, goes through neighbouring strips of 16
// rows. The warps of a block divide its k and keep their part of x in registers. Each warp has a pipeline of its own: a lane copies 16 bytes of a piece (16 rows x 64 of
// k) to shared memory by cp.async, with a packed weight those that it decodes itself, so that no warp waits for another one before sums are added. The warps take turns
// at that. A and B are swapped: A is the weight.
// Mxfp4SkinnyConfig is what the host compiles it for.

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/copy.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/int4.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/nvfp4.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_arguments.h"
#include "backends/gpu/device/numbers.cuh"

using gemmtune::cuda::Mxfp4SkinnyArguments;
using gemmtune::cuda::WeightFormat;

static __device__ constexpr gemmtune::cuda::Mxfp4SkinnyConfig config() { return CONFIG; }

#include "backends/cuda/families/weight_format.cuh"

enum : int {
  PIECE_BYTES = 512,
  GROUP_BYTES = 512,  // of 16 x 8 sums
  SUM_BYTES = config().groups * GROUP_BYTES,
  // Units of groups of 128, if a warp begins with one: its sums are multiplied once. Otherwise two units have the same scale.
  UNITS_PER_SCALE = SCALE_K > 64 && config().units % 2 == 0 ? 2 : 1,
  // Of sums, so that an instruction need not wait for the one before it. Two of a group are multiplied both, which in a cluster costs more than that wait, and take registers.
  SETS = config().groups > 2 || (UNITS_PER_SCALE == 2 && (config().split || config().units > 8)) ? 1 : 2,
  SLOTS = 4,  // strips whose sums are not added yet
  STRIPS_AHEAD = config().pieces < config().units
                     ? 1
                     : config().pieces / config().units,  // between a piece and the one that is copied over it, or none
  STRIP_ROWS = 16,
  X_GROUP_BYTES = 1024,  // of eight rows of x, 64 of k: a swizzle atom
  X_UNIT_BYTES = config().groups * X_GROUP_BYTES,
  X_CHUNKS = config().groups * 8 * config().units * 2,  // of MXFP4 elements, 16 bytes each
};
enum : int {
  SCALES_OF_UNIT = SCALE_K == 0   ? 0
                   : SCALE_K < 64 ? 64 / SCALE_K
                                  : 1,  // of a row
  // That are waited for, multiplied and copied together.
  UNITS_TOGETHER = UNITS_PER_SCALE == 2 && config().pieces % 2 == 0 ? 2 : 1,
  OWN_SCALES = config().units / UNITS_PER_SCALE * SCALES_OF_UNIT,     // of a warp and a row
  STEPS_PER_SCALE = SCALE_K == 0 || SCALE_K > 64 ? 4 : SCALE_K / 16,  // of 16 of k of a unit
  UNIT_SCALE_BYTES = SCALES_OF_UNIT * (is_int4() ? 2 : 1),
  OWN_SCALE_BYTES = config().units / UNITS_PER_SCALE * UNIT_SCALE_BYTES,
  SCALE_WORDS = (OWN_SCALE_BYTES + 3) / 4,
  ZERO_WORDS = !config().zero_points ? 0
               : SCALE_K == 0        ? 1
                                     : (OWN_SCALES + 3) / 4,
  WORDS = SCALE_WORDS + ZERO_WORDS > 0 ? SCALE_WORDS + ZERO_WORDS : 1,
  // Of a plain weight a lane's eight bytes of a unit are neighbours, or, so that a product has k of one group, four of each 32 of k.
  TWO_GROUPS = is_int4() && !config().packed && SCALE_K == 32,
};
// Of a warp: sums, and before those its part of x.
enum : int {
  X_BYTES = config().x_fp4 ? X_CHUNKS * 16 : config().units * X_UNIT_BYTES,
  WARP_BYTES = X_BYTES > SLOTS* SUM_BYTES ? X_BYTES : SLOTS* SUM_BYTES,
};

// Addresses in shared memory.
struct SharedLayout {
  unsigned warps;     // of each its part of x, which becomes registers, then its sums of SLOTS strips
  unsigned pieces;    // of each warp, PIECES
  unsigned exchange;  // of the strips that this block adds, the sums of each block of the cluster
  unsigned scales;    // without SPLIT, of the strips in the slots
  unsigned done;      // barriers of the slots: all warps' sums are there; they were added
  unsigned added;
  unsigned partials;     // all sums of `exchange` have arrived
  unsigned scales_full;  // of the slots: scales have arrived
  unsigned x_full;       // of the warps, without X_FP4: x has arrived
  unsigned x_scales;     // with X_FP4, of the block's k
};

static __device__ __forceinline__ unsigned own_x(const SharedLayout& smem, int warp) {
  return smem.warps + (unsigned)(warp * WARP_BYTES);
}
static __device__ __forceinline__ unsigned sums_of(const SharedLayout& smem, int warp, int slot) {
  return smem.warps + (unsigned)(warp * WARP_BYTES + slot * SUM_BYTES);
}

// The warp's part of k.
struct OwnK {
  int first;  // unit
  __device__ __forceinline__ bool has(const Mxfp4SkinnyArguments& a, int u) const {
    return !config().tail || first + u < a.units;
  }
};

// ---- the weight

// The lane's 16 bytes of the warp's first piece of a strip.
static __device__ __forceinline__ const unsigned char* own_weight(const Mxfp4SkinnyArguments& a, const OwnK& k,
                                                                  int strip) {
  const int lane = (int)threadIdx.x % 32;
  if constexpr (config().packed) {
    return a.w + ((long long)(strip / 4) * a.units + k.first) * (4 * PIECE_BYTES) + strip % 4 * PIECE_BYTES + lane * 16;
  } else {
    return a.w + ((long long)strip * STRIP_ROWS + lane / 2) * a.units * 32 + k.first * 32 + lane % 2 * 16;
  }
}
// The same of the strip behind `strip`.
static __device__ __forceinline__ const unsigned char* next_strip(const Mxfp4SkinnyArguments& a,
                                                                  const unsigned char* from, int strip) {
  if constexpr (config().packed) {
    return from + (strip % 4 == 3 ? ((long long)a.units * 4 - 3) * PIECE_BYTES : PIECE_BYTES);
  } else {
    return from + (long long)STRIP_ROWS * a.units * 32;
  }
}
enum : int {
  NEXT_UNIT = config().packed ? 4 * PIECE_BYTES : 32,  // bytes from a piece to that of the next unit
};

// Waits for the oldest pieces of the pipeline.
static __device__ __forceinline__ void wait_for_pieces() {
  wait_for_copies<config().pieces / UNITS_TOGETHER - 1>();
  if (!config().packed) __syncwarp();  // other lanes copied a part of what this one reads
}

// Prefetches the beginning of the warp's first strip into L2, and of the block's scales. This is no read: later writes by the previous kernel remain visible to loads.
static __device__ __forceinline__ void prefetch_weight(const Mxfp4SkinnyArguments& a, const OwnK& k, int strip) {
  const int lane = (int)threadIdx.x % 32;
  // Of 128 bytes each, or the first of 128 bytes of a row.
  const int unit = config().packed ? lane / 4 : lane % 2 * 4;
  const unsigned char* const from = config().packed
                                        ? own_weight(a, k, strip) - lane * 16 + unit * NEXT_UNIT + lane % 4 * 128
                                        : own_weight(a, k, strip) - lane % 2 * 16 + unit * NEXT_UNIT;
  if (unit < a.prefetch_units && k.has(a, unit)) prefetch_sector(from);
}
static __device__ __forceinline__ const unsigned char* zero_points_of(const Mxfp4SkinnyArguments& a) {
  return (const unsigned char*)a.format.zero_points;
}
// Bytes of the scales, and of the zero points, of a row in shared memory; of the scales of `units` units.
static __device__ __forceinline__ int slot_scale_row(const Mxfp4SkinnyArguments& a) {
  return SCALE_K == 0 ? 0 : a.scale_row;
}
static __device__ __forceinline__ int zero_row(const Mxfp4SkinnyArguments& a) {
  return config().zero_points ? a.scale_row / 2 : 0;
}
static __device__ __forceinline__ int scale_bytes_of(int units) {
  return SCALE_K == 0 ? 0 : units * 64 / (SCALE_K > 0 ? SCALE_K : 64) * (is_int4() ? 2 : 1);
}
static __device__ __forceinline__ void prefetch_scales(const Mxfp4SkinnyArguments& a, int first_unit, int begin,
                                                       int end, unsigned long long policy) {
  if constexpr (config().split) {
    const int first = scale_bytes_of(first_unit);
    const int whole = first + scale_bytes_of(config().warps * config().units);
    const int last = whole < a.scale_row ? whole : a.scale_row;
    const int sectors = (last - first + 31) / 32;
#pragma unroll 1
    for (int i = (int)threadIdx.x; i < (end - begin) * STRIP_ROWS * sectors; i += config().warps * 32) {
      const long long at = (long long)(begin * STRIP_ROWS + i / sectors) * a.scale_row + first + i % sectors * 32;
      prefetch_sector(a.scales + at);
      if constexpr (config().zero_points) prefetch_sector(zero_points_of(a) + at / 2);
    }
  } else {
    if (threadIdx.x == 0 && begin < end) {
      if constexpr (SCALE_K > 0)
        bulk_prefetch(a.scales + (long long)begin * STRIP_ROWS * a.scale_row,
                      (unsigned)((end - begin) * STRIP_ROWS * a.scale_row), policy);
      if constexpr (config().zero_points)
        bulk_prefetch(zero_points_of(a) + (long long)begin * STRIP_ROWS * zero_row(a),
                      (unsigned)((end - begin) * STRIP_ROWS * zero_row(a)), policy);
    }
  }
}

// ---- scales

// Of rows lane / 4 and that plus 8 of a strip, unit by unit; then zero points.
typedef unsigned OwnScales[2][WORDS];

// Reads BYTES bytes of scales: from shared memory, and, volatile too, from global memory.
#define READ_SCALES(space, operand)                                                                            \
  if constexpr (BYTES == 16) {                                                                                 \
    asm volatile("ld." space ".v4.u32 {%0, %1, %2, %3}, [%4];"                                                 \
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])                                          \
                 : operand(from)                                                                               \
                 : "memory");                                                                                  \
  } else if constexpr (BYTES == 8) {                                                                           \
    asm volatile("ld." space ".v2.u32 {%0, %1}, [%2];" : "=r"(to[0]), "=r"(to[1]) : operand(from) : "memory"); \
  } else if constexpr (BYTES == 4) {                                                                           \
    asm volatile("ld." space ".u32 %0, [%1];" : "=r"(to[0]) : operand(from) : "memory");                       \
  } else {                                                                                                     \
    unsigned half;                                                                                             \
    asm volatile("{\n.reg .b16 half;\nld." space ".b16 half, [%1];\ncvt.u32.u16 %0, half;\n}"                  \
                 : "=r"(half)                                                                                  \
                 : operand(from)                                                                               \
                 : "memory");                                                                                  \
    to[0] |= half << shift;                                                                                    \
  }
template <int BYTES>
static __device__ __forceinline__ void read_scales(unsigned* to, unsigned from, int shift) {
  READ_SCALES("shared", "r")
}
template <int BYTES>
static __device__ __forceinline__ void read_scales(unsigned* to, const unsigned char* from, int shift) {
  READ_SCALES("global.nc", "l")
}

static __device__ __forceinline__ unsigned read_byte(unsigned from) { return load_shared_byte(from); }
static __device__ __forceinline__ unsigned read_byte(const unsigned char* from) { return load_scale_byte(from); }

// `strip`: where its scales are; `zeros`: where its zero points are.
template <typename Address>
static __device__ __forceinline__ void load_scales(OwnScales& scales, const Mxfp4SkinnyArguments& a, const OwnK& k,
                                                   Address strip, Address zeros) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = (int)threadIdx.x % 32 / 4 + i * 8;
#pragma unroll
    for (int word = 0; word < SCALE_WORDS + ZERO_WORDS; ++word)
      scales[i][word] = config().weight == WeightFormat::nvfp4 ? 0x38383838u : 0u;  // ones, as zeros are rare scales
    if constexpr (SCALE_K > 64 && UNITS_PER_SCALE == 1) {
#pragma unroll
      for (int u = 0; u < config().units; ++u)
        if (k.has(a, u))
          read_scales<2>(&scales[i][u / 2], strip + (unsigned)(row * a.scale_row + (k.first + u) / 2 * 2), u % 2 * 16);
    } else if constexpr (SCALE_K > 0) {
      const int first = k.first / UNITS_PER_SCALE * UNIT_SCALE_BYTES;
      const Address from = strip + (unsigned)(row * a.scale_row + first);
#pragma unroll
      for (int at = 0; at < OWN_SCALE_BYTES; at += config().scale_bytes) {
        if (config().tail && first + at >= a.scale_row) continue;
        unsigned* const to = &scales[i][at / 4];
        read_scales<config().scale_bytes>(to, from + at, at % 4 * 8);
      }
    }
    if constexpr (config().zero_points && SCALE_K == 0) {
      scales[i][SCALE_WORDS] = read_byte(zeros + (unsigned)row);
    } else if constexpr (config().zero_points) {
      const Address from = zeros + (unsigned)(row * (a.scale_row / 2));
#pragma unroll
      for (int u = 0; u < config().units; u += UNITS_PER_SCALE) {
        if (!k.has(a, u)) continue;
#pragma unroll
        for (int i_of_unit = 0; i_of_unit < SCALES_OF_UNIT; ++i_of_unit) {
          const int at = u / UNITS_PER_SCALE * SCALES_OF_UNIT + i_of_unit;
          const int column = SCALE_K > 64 ? (k.first + u) / 2 : k.first * SCALES_OF_UNIT + at;
          scales[i][SCALE_WORDS + at / 4] |= read_byte(from + (unsigned)column) << (at % 4 * 8);
        }
      }
    }
  }
}
static __device__ __forceinline__ void load_global_scales(OwnScales& scales, const Mxfp4SkinnyArguments& a,
                                                          const OwnK& k, int strip) {
  load_scales(scales, a, k, a.scales + (long long)strip * STRIP_ROWS * a.scale_row,
              zero_points_of(a) + (long long)strip * STRIP_ROWS * zero_row(a));
}

// Without SPLIT those of a strip lie together: one thread copies them to the strip's slot, zero points behind them.
static __device__ __forceinline__ unsigned slot_scales(const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                                       int slot) {
  return smem.scales + (unsigned)(slot * STRIP_ROWS * (slot_scale_row(a) + zero_row(a)));
}
static __device__ __forceinline__ void load_slot_scales(OwnScales& scales, const Mxfp4SkinnyArguments& a,
                                                        const SharedLayout& smem, const OwnK& k, int slot) {
  const unsigned from = slot_scales(a, smem, slot);
  load_scales(scales, a, k, from, from + (unsigned)(STRIP_ROWS * slot_scale_row(a)));
}
static __device__ __forceinline__ void start_scales(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, int strip,
                                                    int slot, unsigned long long policy) {
  const unsigned bytes = (unsigned)(STRIP_ROWS * slot_scale_row(a));
  const unsigned zeros = (unsigned)(STRIP_ROWS * zero_row(a));
  const unsigned barrier = smem.scales_full + 8u * (unsigned)slot;
  const unsigned to = slot_scales(a, smem, slot);
  barrier_arrive_expect_tx(barrier, bytes + zeros);
  if constexpr (SCALE_K > 0) bulk_load(to, a.scales + (long long)strip * bytes, bytes, barrier, 0, policy);
  if constexpr (config().zero_points)
    bulk_load(to + bytes, zero_points_of(a) + (long long)strip * zeros, zeros, barrier, 0, policy);
}

#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_x.cuh"

// ---- products

typedef float Sums[SETS][config().groups][4];

// Scales of a byte, of which none is LARGE: both rows' factors are halves of a word.
template <bool LARGE>
static __device__ constexpr bool has_factor_pair() {
  return !is_int4() && !LARGE;
}
// Byte `block` of those of unit u from `word` on. With a plain weight a lane has elements of one block.
static __device__ __forceinline__ unsigned byte_of_unit(const unsigned* words, int u, int bytes, int block) {
  return __byte_perm(words[u * bytes / 4], 0u, 0x4440u + (unsigned)(u * bytes % 4 + block));
}

// Of 16 of k `step` of four of unit u: the factors of both rows.
static __device__ __forceinline__ unsigned factor_pair_of(const OwnScales& scales, int u, int step) {
  constexpr bool is_nvfp4 = config().weight == WeightFormat::nvfp4;
  constexpr int bytes = is_nvfp4 ? 4 : 2;  // of a unit
  const int own = (int)threadIdx.x % 4 / (is_nvfp4 ? 1 : 2);
  const int block = config().packed ? step / (is_nvfp4 ? 1 : 2) : own;
  const int word = u * bytes / 4;
  const unsigned pair = byte_pair(scales[0][word], scales[1][word], (unsigned)(u * bytes % 4 + block));
  return is_nvfp4 ? normal_e4m3_factor_pair(pair) : scale_factor_pair(pair);
}

// Of 16 of k `step` of four of unit u, and of a row: what elements are multiplied by, `more` where a scale of MXFP4 of the warp is above 2; of int4 what is subtracted.
static __device__ __forceinline__ void factor_of(unsigned& by, unsigned& more, const unsigned (&scales)[WORDS], int u,
                                                 int step) {
  const int own = (int)threadIdx.x % 4;
  more = 0u;
  if constexpr (config().weight == WeightFormat::mxfp4) {
    const unsigned e = byte_of_unit(scales, u, 2, config().packed ? step / 2 : own / 2);
    more = large_factor(e);
    by = scale_factor(without_large(e));
  } else if constexpr (config().weight == WeightFormat::nvfp4) {
    unsigned factors[2];
    e4m3_factors(factors, scales[u] >> (config().packed ? step / 2 * 16 : own * 8));
    by = factors[config().packed ? step % 2 : 0];
  } else if constexpr (!config().zero_points) {
    by = masked_offset(0);
  } else if constexpr (SCALE_K == 0) {
    by = masked_offset((signed char)scales[SCALE_WORDS]);
  } else {
    by = masked_offset(
        (signed char)byte_of_unit(scales + SCALE_WORDS, u / UNITS_PER_SCALE, SCALES_OF_UNIT, step / STEPS_PER_SCALE));
  }
}

// Adds the sums of a group that ends with 16 of k `step` of unit u, times its scale.
static __device__ __forceinline__ void add_group(Sums& d, Sums& group, const OwnScales& scales, int u, int step) {
  const int at = u / UNITS_PER_SCALE * SCALES_OF_UNIT + step / STEPS_PER_SCALE;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const float scale = read_stored<types().output>((unsigned short)(scales[i][at / 2] >> (at % 2 * 16)));
#pragma unroll
    for (int sum = 0; sum < SETS * config().groups * 2; ++sum) {
      float(&part)[4] = group[sum / 2 / config().groups][sum / 2 % config().groups];
      float& to = d[0][sum / 2 % config().groups][i * 2 + sum % 2];
      to = fmaf(part[i * 2 + sum % 2], scale, to);
      part[i * 2 + sum % 2] = 0.0f;
    }
  }
}

// The lane's words of a piece.
static __device__ __forceinline__ void load_piece(unsigned (&raw)[4], unsigned piece) {
  const int lane = (int)threadIdx.x % 32;
  if constexpr (config().packed) {
    const uint4 words = load_shared_words(piece + (unsigned)(lane * 16));
    raw[0] = words.x, raw[1] = words.y, raw[2] = words.z, raw[3] = words.w;
  } else if constexpr (TWO_GROUPS) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      raw[i] =
          load_shared_word(piece + (unsigned)(i / 2 * (PIECE_BYTES / 2) + lane / 4 * 32 + i % 2 * 16 + lane % 4 * 4));
  } else {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint2 words = load_shared_two_words(piece + (unsigned)(i * (PIECE_BYTES / 2) + lane * 8));
      raw[i * 2] = words.x, raw[i * 2 + 1] = words.y;
    }
  }
}

// Multiplies unit u, whose words are `raw`.
template <bool LARGE>
static __device__ __forceinline__ void multiply_unit(Sums& d, Sums& group_sums, const OwnX& x, const OwnScales& scales,
                                                     const unsigned (&raw)[4], int u) {
  unsigned by[2];
  unsigned more[2];
  unsigned pairs[2][4];  // of a plain weight
#pragma unroll
  for (int step = 0; step < 4; ++step) {  // 16 of k
    if (step == 0 || ((config().packed || TWO_GROUPS) && step % STEPS_PER_SCALE == 0)) {
      if constexpr (has_factor_pair<LARGE>()) {
        by[0] = factor_pair_of(scales, u, step);
      } else {
#pragma unroll
        for (int i = 0; i < 2; ++i) factor_of(by[i], more[i], scales[i], u, step);
      }
    }
    unsigned fragment[4];
    if constexpr (config().packed && is_int4()) {
      mask_word(fragment, raw[step]);
    } else if constexpr (config().packed) {
      spread_fragment(fragment, raw[step]);
    } else {
      if (step % 2 == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if constexpr (is_int4()) {
            mask_word(pairs[i], raw[i * 2 + step / 2]);
          } else {
            spread_word(pairs[i], raw[i * 2 + step / 2]);
          }
        }
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) fragment[i] = pairs[i % 2][step % 2 * 2 + i / 2];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (is_int4()) {
        fragment[i] = scale_masked(fragment[i], config().packed ? i : i / 2, by[i % 2]);
      } else {
        if (LARGE && config().weight == WeightFormat::mxfp4) fragment[i] = multiply(fragment[i], more[i % 2]);
        fragment[i] = has_factor_pair<LARGE>() ? multiply(fragment[i], repeat_half(by[0], i % 2))
                                               : multiply(fragment[i], by[i % 2]);
      }
    }
#pragma unroll
    for (int group = 0; group < config().groups; ++group)
      mma_bf16((is_grouped() ? group_sums : d)[step % SETS][group], fragment[0], fragment[1], fragment[2], fragment[3],
               x[u][group][step * 2], x[u][group][step * 2 + 1]);
    if constexpr (is_grouped()) {
      if ((step + 1) % STEPS_PER_SCALE == 0 && (u + 1) % UNITS_PER_SCALE == 0)
        add_group(d, group_sums, scales, u, step);
    }
  }
}

// Multiplies a strip at `own`, whose pieces begin at `pieces`, and if `more` copies those of the strip at `following` in their places, behind what is left of its own.
// LARGE: a scale of the warp is above 2, of NVFP4 no positive normal number.
template <bool LARGE>
static __device__ __forceinline__ void multiply_strip(Sums& d, const OwnX& x, const OwnScales& scales,
                                                      const Mxfp4SkinnyArguments& a, const OwnK& k, unsigned pieces,
                                                      const unsigned char* own, const unsigned char* following,
                                                      bool more, unsigned long long policy) {
  const int lane = (int)threadIdx.x % 32;
  Sums group_sums = {};
#pragma unroll
  for (int first = 0; first < config().units; first += UNITS_TOGETHER) {
    wait_for_pieces();
    unsigned raw[UNITS_TOGETHER][4];
#pragma unroll
    for (int i = 0; i < UNITS_TOGETHER; ++i)
      load_piece(raw[i], pieces + (unsigned)((first + i) % config().pieces * PIECE_BYTES));
#pragma unroll
    for (int i = 0; i < UNITS_TOGETHER; ++i) multiply_unit<LARGE>(d, group_sums, x, scales, raw[i], first + i);
    if (!config().packed) __syncwarp();  // other lanes have read what this one copies over
#pragma unroll
    for (int u = first; u < first + UNITS_TOGETHER; ++u) {
      const int next = (u + config().pieces) % config().units;
      const bool is_own = u + config().pieces < config().units;
      if ((is_own || more) && k.has(a, next))
        copy_unit(pieces + (unsigned)(u % config().pieces * PIECE_BYTES + lane * 16),
                  (is_own ? own : following) + next * NEXT_UNIT, policy);
    }
    commit_copies();
  }
}

// ---- sums

static __device__ __forceinline__ void add_sums(float (&sum)[4], unsigned from) {
  float value[4];
  load_shared_floats(from, value);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] += value[i];
}

// What the sums of a row of the weight are multiplied by: the units of decoded elements, and scales of all k.
static __device__ __forceinline__ float sum_unit(const Mxfp4SkinnyArguments& a, int row) {
  if constexpr (config().weight == WeightFormat::nvfp4) return NVFP4_UNIT * *a.format.w_global;
  if constexpr (is_grouped()) return 1.0f;
  if constexpr (is_int4()) return read_stored<types().output>(((const unsigned short*)a.scales)[row]);
  return config().x_fp4 ? E2M1_UNIT * E2M1_UNIT : E2M1_UNIT;
}

// Stores 16 x 8 sums: of eight rows of x the thread has two, of rows lane / 4 and that plus 8 of the strip.
static __device__ __forceinline__ void store_sums(const Mxfp4SkinnyArguments& a, int strip, int group,
                                                  const float (&sum)[4]) {
  const int lane = (int)threadIdx.x % 32;
  const int feature = strip * STRIP_ROWS + lane / 4;
  float bias[2] = {0.0f, 0.0f};
  if (a.bias) {
#pragma unroll
    for (int i = 0; i < 2; ++i) bias[i] = read_output(a.bias[feature + i * 8]);
  }
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int row = group * 8 + lane % 4 * 2 + i;
    if (row >= a.rows) continue;
    output* const to = a.y + row * a.y_row + feature;
    const float unit = is_int4() ? INT4_UNIT : 1.0f;  // apart from the scale, of which it could make an infinity
    to[0] = round_output(fmaf(sum[i] * unit, sum_unit(a, feature), bias[0]));
    to[8] = round_output(fmaf(sum[2 + i] * unit, sum_unit(a, feature + 8), bias[1]));
  }
}

// The strips of a cluster are added by its blocks in turn: how many of `count` by block `rank`.
static __device__ __forceinline__ int owned_strips(const Mxfp4SkinnyArguments& a, int count, int rank) {
  return (count + a.split_k - 1 - rank) / a.split_k;
}

// Adds the warps' sums of eight rows of x of the strip `index` of the cluster's; stores them, or sends them to the block that adds those of the cluster.
static __device__ __forceinline__ void finish_group(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, int rank,
                                                    int slot, int group, int index, int strip) {
  const int lane = (int)threadIdx.x % 32;
  float sum[2][4] = {};
#pragma unroll
  for (int warp = 0; warp < config().warps; ++warp)
    add_sums(sum[warp % 2], sums_of(smem, warp, slot) + (unsigned)(group * GROUP_BYTES + lane * 16));
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[0][i] += sum[1][i];
  if constexpr (config().split) {
    const int owner = index % a.split_k;
    const unsigned to = smem.exchange + (unsigned)((index / a.split_k * a.split_k + rank) * SUM_BYTES +
                                                   group * GROUP_BYTES + lane * 16);
    store_async(remote_address(to, owner), sum[0][0], sum[0][1], sum[0][2], sum[0][3],
                remote_address(smem.partials, owner));
  } else {
    store_sums(a, strip, group, sum[0]);
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(smem.added + 8u * (unsigned)slot);
}

// Adds the blocks' sums of the strips that this block owns, in the blocks' order.
static __device__ __forceinline__ void add_partials(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, int rank,
                                                    int begin, int end) {
  const int owned = owned_strips(a, end - begin, rank);
  if (owned == 0) return;
  barrier_wait_for_cluster(smem.partials, 0);
#pragma unroll 1
  for (int i = (int)threadIdx.x / 32; i < owned * config().groups; i += config().warps) {
    float sum[4] = {};
    const unsigned from = smem.exchange + (unsigned)(i / config().groups * a.split_k * SUM_BYTES +
                                                     i % config().groups * GROUP_BYTES + (int)threadIdx.x % 32 * 16);
#pragma unroll
    for (int block = 0; block < 8; ++block)
      if (block < a.split_k) add_sums(sum, from + (unsigned)(block * SUM_BYTES));
    store_sums(a, begin + i / config().groups * a.split_k + rank, i % config().groups, sum);
  }
}

// ----

static __device__ __forceinline__ void multiply_strips(const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                                       int rank, int begin, int end) {
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  const OwnK k = {(rank * config().warps + warp) * config().units};
  const unsigned pieces = smem.pieces + (unsigned)(warp * config().pieces * PIECE_BYTES);
  const unsigned long long policy = evict_first();
  if (!a.dependent_launch) {
    prefetch_weight(a, k, begin);
    prefetch_scales(a, rank * config().warps * config().units, begin, end, policy);
    grid_dependency_wait();
    start_x(a, smem, k);
  }
  if constexpr (!config().split) {
    if (threadIdx.x == 0) {
#pragma unroll 1
      for (int i = 0; i < SLOTS && begin + i < end; ++i) start_scales(a, smem, begin + i, i, policy);
    }
  }
#pragma unroll 1
  for (int i = 0; i < STRIPS_AHEAD; ++i) {
    const unsigned char* const from = own_weight(a, k, begin + i);
    const unsigned to = pieces + (unsigned)(i * config().units * PIECE_BYTES + lane * 16);
#pragma unroll
    for (int u = 0; u < config().units && u < config().pieces; ++u) {
      if (begin + i < end && k.has(a, u)) copy_unit(to + (unsigned)(u * PIECE_BYTES), from + u * NEXT_UNIT, policy);
      if ((u + 1) % UNITS_TOGETHER == 0) commit_copies();
    }
  }
  OwnScales next;  // with SPLIT
  if constexpr (config().split) load_global_scales(next, a, k, begin);
  if (a.dependent_launch) {
    grid_dependency_wait();
    start_x(a, smem, k);
  }
  if constexpr (config().x_fp4) {
    copy_x_scales(a, smem, rank * config().warps * config().units);
  }
  OwnX x;
  load_x(x, a, smem, k);
  if constexpr (config().split) {
    cluster_wait();  // the other blocks' barriers are initialized
  }
  const unsigned char* own = own_weight(a, k, begin);
  const unsigned char* following = own_weight(a, k, begin + STRIPS_AHEAD);
  int ahead = 0;  // of the strips in the pipeline
  int slot = 0;
  int turn = warp;     // from a strip's first group to the one that this warp adds, counted by all warps in turn
  unsigned phase = 0;  // of the slots
#pragma unroll 1
  for (int strip = begin; strip <= end; ++strip) {
    if (strip < end) {
      OwnScales scales;
      if constexpr (!config().split) {
        barrier_wait(smem.scales_full + 8u * (unsigned)slot, phase);
        load_slot_scales(scales, a, smem, k, slot);
      }
      unsigned all = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int word = 0; word < WORDS; ++word) {
          if constexpr (config().split) {
            scales[i][word] = next[i][word];
          }
          all |= config().weight == WeightFormat::nvfp4 ? rare_e4m3(scales[i][word]) : scales[i][word];
        }
      }
      if constexpr (config().split) {
        if (strip + 1 < end) load_global_scales(next, a, k, strip + 1);
      }
      const bool more = strip + STRIPS_AHEAD < end;
      const unsigned from = pieces + (unsigned)(ahead * config().units * PIECE_BYTES);
      Sums d = {};
      const bool rare = config().weight == WeightFormat::nvfp4 ? has_rare_e4m3(all) : (all & 0x80808080u) != 0u;
      // Of a plain weight of NVFP4 scales are converted always: its lanes pick their bytes by instructions of their own.
      constexpr bool converts = config().weight == WeightFormat::nvfp4 && !config().packed;
      if (!is_int4() && (converts || __any_sync(0xffffffffu, rare))) {
        multiply_strip<true>(d, x, scales, a, k, from, own, following, more, policy);
      } else {
        multiply_strip<false>(d, x, scales, a, k, from, own, following, more, policy);
      }
      own = next_strip(a, own, strip);
      following = next_strip(a, following, strip + STRIPS_AHEAD);
      barrier_wait(smem.added + 8u * (unsigned)slot, phase ^ 1u);
#pragma unroll
      for (int group = 0; group < config().groups; ++group) {
        float(&sum)[4] = d[0][group];
#pragma unroll
        for (int i = 0; i < 4 && SETS > 1 && !is_grouped(); ++i) sum[i] += d[SETS - 1][group][i];
        store_shared_floats(sums_of(smem, warp, slot) + (unsigned)(group * GROUP_BYTES + lane * 16), sum[0], sum[1],
                            sum[2], sum[3]);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(smem.done + 8u * (unsigned)slot);
    }
    if (strip > begin) {
      const int before = (slot > 0 ? slot : SLOTS) - 1;
#pragma unroll 1
      for (; turn < config().groups; turn += config().warps) {
        barrier_wait(smem.done + 8u * (unsigned)before, slot > 0 ? phase : phase ^ 1u);
        finish_group(a, smem, rank, before, turn, strip - 1 - begin, strip - 1);
        if constexpr (!config().split) {
          // All warps have read the scales that are there.
          if (turn == 0 && lane == 0 && strip - 1 + SLOTS < end)
            start_scales(a, smem, strip - 1 + SLOTS, before, policy);
        }
      }
      turn -= config().groups;
    }
    if (++ahead == STRIPS_AHEAD) ahead = 0;
    if (++slot == SLOTS) {
      slot = 0;
      phase ^= 1u;
    }
  }
  if constexpr (config().split) {
    add_partials(a, smem, rank, begin, end);
  }
}

extern "C" __global__ void __launch_bounds__(config().warps * 32, 1)
    mxfp4_skinny(const __grid_constant__ Mxfp4SkinnyArguments a) {
  extern __shared__ unsigned char memory[];
  SharedLayout smem;
  smem.warps = (shared_address(memory) + 1023u) & ~1023u;
  smem.pieces = smem.warps + (unsigned)(config().warps * WARP_BYTES);
  smem.exchange = smem.pieces + (unsigned)(config().warps * config().pieces * PIECE_BYTES);
  smem.scales = smem.exchange;
  smem.done = smem.exchange + (unsigned)(config().split ? a.max_owned * a.split_k * SUM_BYTES
                                                        : SLOTS * STRIP_ROWS * (slot_scale_row(a) + zero_row(a)));
  smem.added = smem.done + 8u * SLOTS;
  smem.partials = smem.added + 8u * SLOTS;
  smem.scales_full = smem.partials + 8u;
  smem.x_full = smem.scales_full + 8u * SLOTS;
  smem.x_scales = smem.x_full + 8u * config().warps;
  const int rank = config().split ? cluster_cta_rank() : 0;
  const int index = config().split ? cluster_index() : (int)blockIdx.x;
  const int count = config().split ? cluster_count() : (int)gridDim.x;
  const int begin = (int)((long long)a.strips * index / count);
  const int end = (int)((long long)a.strips * (index + 1) / count);
  if (threadIdx.x == 0) {
    if (!config().x_fp4) prefetch_tensor_map(&a.x_map);
#pragma unroll
    for (int i = 0; i < SLOTS; ++i) {
      barrier_init(smem.done + 8u * (unsigned)i, config().warps);
      barrier_init(smem.added + 8u * (unsigned)i, config().groups);
      barrier_init(smem.scales_full + 8u * (unsigned)i, 1);
    }
    if (config().split) barrier_init(smem.partials, 1);
#pragma unroll 1
    for (int i = 0; i < (config().x_fp4 ? 0 : config().warps); ++i) barrier_init(smem.x_full + 8u * (unsigned)i, 1);
    fence_barrier_init();
    if (config().split)
      barrier_arrive_expect_tx(smem.partials, (unsigned)(owned_strips(a, end - begin, rank) * a.split_k * SUM_BYTES));
  }
  __syncthreads();
  if constexpr (config().split) {
    cluster_arrive();
  }
  launch_dependents();
  multiply_strips(a, smem, rank, begin, end);
}
