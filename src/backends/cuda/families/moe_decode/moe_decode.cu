// moe_decode: a whole layer of a mixture of experts for at most 8 tokens, on Hopper, in one kernel. All blocks are resident. A thread of each block streams the block's share of w1 and, without a
// pause, of w2 through the pipeline in shared memory; the consumer warps multiply by mma.sync, the weight's 16 rows by 8 columns, which are all tokens. The hidden layer goes through memory; a block
// waits for the elements that it reads.
//
// The host defines: ELEMENT (x and w: 1, 2, 3), OUTPUT, HIDDEN (1: fp16, 2: bf16), SCALES (0: none, 1: one a matrix, 2: one a row, 3: one for 1 x 128 of x and 128 x 128 of w),
// WARPS (consumers), ROW_BYTES (of w1), SLAB (k of a row of w1 in a stage, in atoms: 128 bytes), HIDDEN_BYTES (of a row of w2), HIDDEN_SLAB (k of a row of w2 in a stage), ENTRIES (of
// w2 in a stage; with whole rows more than one), STAGE_BYTES, SLOTS (for the warps' sums of a unit of the first product), TILES (most tiles of 16 rows of w2 that a block has), GRID (blocks),
// HIDDEN_AHEAD (1: the hidden layer of the next w2 is loaded while this one's is multiplied), GATED, WEIGHTED (1: routing weights scale the first product), BIAS, ACTIVATION. FP4 (1: x is bf16, or with TOKENS_FP8 fp8 with a scale each, weights are MXFP4; a stage is a strip of whole rows and their scales, an atom 32 bytes)
// and with it PITCH, SCALE_PITCH, HIDDEN_PITCH, HIDDEN_SCALE_PITCH (of rows in shared memory).
//

#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/e2m1_strip.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/registers.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/moe_decode/moe_decode_arguments.h"
#include "backends/cuda/families/moe_decode/moe_decode_producer.cuh"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"

typedef float Sums[4];  // rows lane / 4 and that plus 8, tokens lane % 4 * 2 and the next

static __device__ __forceinline__ void multiply(Sums& d, unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                unsigned b0, unsigned b1) {
#if ELEMENT == 2
  mma_bf16(d, a0, a1, a2, a3, b0, b1);
#else
  mma_f16(d, a0, a1, a2, a3, b0, b1);
#endif
}

// fp8 is exact in fp16: 4 elements.
static __device__ __forceinline__ void widen(unsigned bits, unsigned& low, unsigned& high) {
  asm volatile(
      "{\n.reg .b16 first, second;\nmov.b32 {first, second}, %2;\ncvt.rn.f16x2.e4m3x2 %0, first;\ncvt.rn.f16x2.e4m3x2 %1, second;\n}"
      : "=r"(low), "=r"(high)
      : "r"(bits));
}

struct Rows {
  uint4 low[2], high[2];  // 32 bytes of row lane / 4, and of that plus 8
};
// Lane % 4 has 32 bytes of k, so that neighbouring rows are in other banks, or with whole rows of w2 two of them in the same. `left`: bytes of the row from there on; what lies behind
// is another row's.
template <bool TAIL>
static __device__ __forceinline__ Rows load_rows(unsigned from, int pitch, int left) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned row = from + (unsigned)(lane / 4 * pitch + lane % 4 * 32);
  Rows rows;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    rows.low[i] = load_shared_words(row + (unsigned)(i * 16));
    rows.high[i] = load_shared_words(row + (unsigned)(8 * pitch + i * 16));
    if (TAIL && lane % 4 * 32 + i * 16 >= left) rows.low[i] = rows.high[i] = make_uint4(0u, 0u, 0u, 0u);
  }
  return rows;
}
static __device__ __forceinline__ unsigned word_of(const uint4 (&v)[2], int i) {
  return i % 4 == 0 ? v[i / 4].x : i % 4 == 1 ? v[i / 4].y : i % 4 == 2 ? v[i / 4].z : v[i / 4].w;
}

// Sums of instructions by turns, which do not wait for each other.
static __device__ __forceinline__ void add(Sums& d, const Sums& other) {
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] += other[i];
}

// d += the rows times `b`: 32 bytes of k of token lane / 4, of fp8 as they are.
static __device__ __forceinline__ void multiply_rows(Sums& d, const Rows& rows, const unsigned (&b)[8]) {
#if FP8
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    unsigned a0, a1, a2, a3, b0, b1;
    widen(word_of(rows.low, i), a0, a2);
    widen(word_of(rows.high, i), a1, a3);
    unsigned of_token = b[i];
    if (SLABS * STEPS > 4) asm volatile("" : "+r"(of_token));  // widened here and not before the loop: registers
    widen(of_token, b0, b1);
    multiply(d, a0, a1, a2, a3, b0, b1);
  }
#else
  Sums second = {};
#pragma unroll
  for (int i = 0; i < 8; i += 2)
    multiply(i % 4 ? second : d, word_of(rows.low, i), word_of(rows.high, i), word_of(rows.low, i + 1),
             word_of(rows.high, i + 1), b[i], b[i + 1]);
  add(d, second);
#endif
}

#if FP4
typedef float PairOfSums[2][1][4];

// d += the warp's atoms of a row, one in WARPS, times `x`; COUNT: of all warps.
template <bool LARGE, bool EIGHT_ROWS, int COUNT, int HELD>
static __device__ __forceinline__ void multiply_atoms(PairOfSums& d, const unsigned (&x)[HELD][1][8],
                                                      const unsigned (&scales)[HELD][2], unsigned from,
                                                      unsigned second) {
#pragma unroll
  for (int i = 0; i < HELD; ++i) {
    if ((i + 1) * WARPS > COUNT && i * WARPS + (int)threadIdx.x / 32 >= COUNT) continue;
    OwnWords words;
    load_words<EIGHT_ROWS>(words, from + (unsigned)(i * WARPS * W_ATOM_BYTES), second);
    multiply_unit<LARGE, EIGHT_ROWS, 1>(d, x[i], scales[i], words);
  }
}

// The sums of a strip, or of its first eight rows; `x` as pair_x() makes it.
template <bool EIGHT_ROWS, int COUNT, int HELD>
static __device__ __forceinline__ void multiply_strip(Sums& d, const unsigned (&x)[HELD][1][8], unsigned strip,
                                                      unsigned strip_scales, int pitch, int scale_pitch) {
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  const unsigned from = strip + (unsigned)(lane / 4 * pitch + warp * W_ATOM_BYTES + lane % 4 * 8);
  const unsigned scales_from = strip_scales + (unsigned)(lane / 4 * scale_pitch + warp * 2 + lane % 4 / 2);
  unsigned scales[HELD][2];
  unsigned all = 0;
#pragma unroll
  for (int i = 0; i < HELD * 2; ++i) {
    unsigned& e = scales[i / 2][i % 2];
    if (EIGHT_ROWS && i % 2 == 1) continue;
    e = 0;  // behind the row's end is no scale
    if ((i / 2 + 1) * WARPS <= COUNT || i / 2 * WARPS + warp < COUNT)
      e = load_shared_byte(scales_from + (unsigned)(i % 2 * 8 * scale_pitch + i / 2 * WARPS * 2));
    all |= e;
  }
  PairOfSums p = {};
  if (__any_sync(0xffffffffu, (all & 0x80u) != 0u)) {
    multiply_atoms<true, EIGHT_ROWS, COUNT>(p, x, scales, from, 8u * (unsigned)pitch);
  } else {
    multiply_atoms<false, EIGHT_ROWS, COUNT>(p, x, scales, from, 8u * (unsigned)pitch);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) d[i] = (p[0][0][i] + p[1][0][i]) * E2M1_UNIT;
}
#endif

static __device__ __forceinline__ void consumers_wait() { sync_named<CONSUMER_THREADS>(consumers_barrier); }

static __device__ __forceinline__ uint4 load_vector(const void* from) {
  uint4 value;
  asm volatile("ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

static __device__ __forceinline__ uint4 load_current(const void* from) {
  uint4 value;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from)
               : "memory");
  return value;
}

#if SCALES
static __device__ __forceinline__ float weight_scale(const float* scales, long long matrix, int columns, int expert,
                                                     int row, int atom) {
#if SCALES == 1
  return __ldg(scales + expert * matrix);
#elif SCALES == 2
  return __ldg(scales + expert * matrix + row);
#else
  return __ldg(scales + expert * matrix + row / 128 * columns + atom);
#endif
}
#endif

static __device__ __forceinline__ void store_sums(const Shared& smem, int buffer, const Sums& d) {
  const int lane = (int)threadIdx.x % 32;
  float* const to = smem.sums + (buffer * WARPS + (int)threadIdx.x / 32) * 128 + lane / 4 * 8 + lane % 4 * 2;
  *(float2*)to = make_float2(d[0], d[1]);
  *(float2*)(to + 64) = make_float2(d[2], d[3]);
}
static __device__ __forceinline__ float sum_of_warps(const Shared& smem, int buffer, int at) {
  const float* const from = smem.sums + buffer * WARPS * 128 + at;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < WARPS; ++i) sum += from[i * 128];
  return sum;
}

// The first product's sums of a feature; `row`: the feature's in the unit.
static __device__ __forceinline__ float hidden_of(const MoeDecodeArguments& a, const Shared& smem, int buffer,
                                                  int entry, int feature, int row, int token) {
  float gate = sum_of_warps(smem, buffer, row * 8 + token);
  float up = GATED ? sum_of_warps(smem, buffer, 64 + row * 8 + token) : 0.0f;
#if TOKENS_FP8
  const float scale = __ldcg(a.x_scales + token * a.x_scale_columns);
  gate *= scale;
  up *= scale;
#endif
#if BIAS
  const float* const bias = a.bias + (long long)smem.tables->experts[entry] * a.features * (GATED ? 2 : 1);
  gate += __ldg(bias + feature);
  if (GATED) up += __ldg(bias + a.features + feature);
#endif
#if WEIGHTED
  gate *= smem.tables->weights[entry][token];
  up *= smem.tables->weights[entry][token];
#endif
  return activate(gate, up);
}

// By one warp: two features of a token a lane.
static __device__ __forceinline__ void store_hidden(const MoeDecodeArguments& a, const Shared& smem, int buffer,
                                                    int entry, int group) {
  const unsigned mask = smem.tables->masks[entry];
#pragma unroll 1
  for (int i = (int)threadIdx.x % 32; i < (GATED ? 32 : 64); i += 32) {
    const int token = i % 8;
    const int row = i / 8 * 2;
    const int feature = group * (GATED ? 8 : 16) + row;
    if (feature >= a.features || !(mask >> token & 1u)) continue;
    const float first = hidden_of(a, smem, buffer, entry, feature, row, token);
    const float second = hidden_of(a, smem, buffer, entry, feature + 1, row + 1, token);
    unsigned pair = HIDDEN == 1 ? float_to_half(first) | (unsigned)float_to_half(second) << 16
                                : float_to_bfloat(first) | (unsigned)float_to_bfloat(second) << 16;
    if (pair == NOT_WRITTEN) pair = 0x7fff7fffu;
    store_relaxed((unsigned*)(a.hidden + ((long long)entry * a.tokens + token) * a.features + feature), pair);
  }
}

// The atom of k that is a warp's j-th, and whether any warp has that many.
static __device__ __forceinline__ int atom_at(int j, int warp) { return j / STEPS * SLAB + j % STEPS * WARPS + warp; }
static __device__ constexpr bool has_atom(int j) { return j / STEPS * SLAB + j % STEPS * WARPS < ATOMS; }

// The tokens' k of a warp.
struct TokenPart {
#if FP4
  unsigned x[STEPS][1][8];
#else
  unsigned x[SLABS * STEPS][8];
#endif
};

#if TOKENS_FP8
// Eight elements as bf16, which is exact.
static __device__ __forceinline__ uint4 widen_to_bfloats(unsigned first, unsigned second) {
  unsigned halves[4];
  widen(first, halves[0], halves[1]);
  widen(second, halves[2], halves[3]);
#pragma unroll
  for (int i = 0; i < 4; ++i)
    asm("{\n.reg .b16 low, high;\n.reg .f32 first, second;\nmov.b32 {low, high}, %0;\ncvt.f32.f16 first, low;\ncvt.f32.f16 second, high;\ncvt.rn.bf16x2.f32 %0, second, first;\n}"
        : "+r"(halves[i]));
  return make_uint4(halves[0], halves[1], halves[2], halves[3]);
}
#endif

static __device__ __forceinline__ void load_tokens(const MoeDecodeArguments& a, TokenPart& part) {
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int j = 0; j < SLABS * STEPS; ++j) {
    if (!has_atom(j)) continue;
#if TOKENS_FP8
    const int at = atom_at(j, warp) * 64 + lane % 4 * 16;
    uint4 bits = make_uint4(0u, 0u, 0u, 0u);
    if (lane / 4 < a.tokens && at < ROW_BYTES * 2) bits = load_vector(a.x + lane / 4 * a.x_row_bytes + at);
    pair_x(part.x[j][0], 0, widen_to_bfloats(bits.x, bits.y));
    pair_x(part.x[j][0], 1, widen_to_bfloats(bits.z, bits.w));
#else
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = atom_at(j, warp) * 128 + lane % 4 * 32 + i * 16;
      uint4 bits = make_uint4(0u, 0u, 0u, 0u);
      if (lane / 4 < a.tokens && at < ROW_BYTES * (FP4 ? 4 : 1))
        bits = load_vector(a.x + lane / 4 * a.x_row_bytes + at);
#if FP4
      pair_x(part.x[j][0], i, bits);
#else
      part.x[j][i * 4] = bits.x;
      part.x[j][i * 4 + 1] = bits.y;
      part.x[j][i * 4 + 2] = bits.z;
      part.x[j][i * 4 + 3] = bits.w;
#endif
    }
#endif
  }
}

#if FP4
// By one warp, another each time, which has begun the next unit then: the warps' sums of a unit are added and stored.
static __device__ __forceinline__ void finish_unit(const MoeDecodeArguments& a, const Shared& smem, const Share& units,
                                                   int unit) {
  const int slot = (unit - units.begin) % SLOTS;
  barrier_wait(smem.done_barriers + 8u * (unsigned)slot, (unsigned)((unit - units.begin) / SLOTS % 2));
  barrier_wait(smem.cleared_barrier, 0u);
  store_hidden(a, smem, slot, unit / a.groups, unit % a.groups);
  __syncwarp();
  if ((int)threadIdx.x % 32 == 0) barrier_arrive(smem.added_barriers + 8u * (unsigned)slot);
}
#endif

static __device__ __forceinline__ void first_product(const MoeDecodeArguments& a, const Shared& smem, int entries,
                                                     const TokenPart& part, PipelineState& state) {
  const Tables& t = *smem.tables;
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  const Share units = share_of(entries * a.groups);
  int entry = units.begin / a.groups;
  int group = units.begin - entry * a.groups;
  int slot = 0;
  unsigned slot_phase = 0;
#pragma unroll 1
  for (int unit = units.begin; unit < units.end; ++unit) {
#if SCALES
    const int expert = t.experts[entry];
#endif
    Sums d = {};
#if FP4
    barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
    const unsigned strip = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
    multiply_strip<false, ATOMS>(d, part.x, strip, strip + 16u * PITCH, PITCH, SCALE_PITCH);
    __syncwarp();
    if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)state.stage);
    next_stage(state, a.num_stages);
#else
#pragma unroll
    for (int slab = 0; slab < SLABS; ++slab) {
#if SCALES == 3
      float w_scales[STEPS][2];
      float x_scales[STEPS][2];
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        if (!has_atom(slab * STEPS + i)) continue;
        const int own = atom_at(slab * STEPS + i, warp);
        const int atom = own < ATOMS ? own : 0;
        const int row = group * (GATED ? 8 : 16);
        w_scales[i][0] = weight_scale(a.w_scales, a.w_scale_matrix, a.w_scale_columns, expert, row, atom);
        w_scales[i][1] =
            GATED ? weight_scale(a.w_scales, a.w_scale_matrix, a.w_scale_columns, expert, a.features + row, atom)
                  : w_scales[i][0];
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int token = lane % 4 * 2 + e;
          x_scales[i][e] = a.x_scales[(token < a.tokens ? token : 0) * a.x_scale_columns + atom];
        }
      }
#endif
      barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        const int j = slab * STEPS + i;
        if (!has_atom(j)) continue;
        if ((slab * SLAB + (i + 1) * WARPS > ATOMS) && atom_at(j, warp) >= ATOMS) continue;
        const Rows rows = load_rows<ROW_BYTES % 128 != 0>(
            smem.pipeline + (unsigned)state.stage * STAGE_BYTES + (unsigned)((i * WARPS + warp) * 128), PITCH,
            ROW_BYTES - atom_at(j, warp) * 128);
#if SCALES == 3
        Sums p = {};
        multiply_rows(p, rows, part.x[j]);
#pragma unroll
        for (int e = 0; e < 4; ++e) d[e] = fmaf(p[e], w_scales[i][e / 2] * x_scales[i][e % 2], d[e]);
#else
        multiply_rows(d, rows, part.x[j]);
#endif
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)state.stage);
      next_stage(state, a.num_stages);
    }
#endif
#if SCALES == 1 || SCALES == 2
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int token = lane % 4 * 2 + i % 2;
      int row = group * (GATED ? 8 : 16) + lane / 4 + i / 2 * (GATED ? a.features : 8);
      if (!GATED && row >= a.features) row = a.features - 1;
      d[i] *= weight_scale(a.w_scales, a.w_scale_matrix, 1, expert, row, 0) *
              (token < a.tokens ? __ldcg(a.x_scales + token * a.x_scale_columns) : 0.0f);
    }
#endif
#if FP4
    barrier_wait(smem.added_barriers + 8u * (unsigned)slot, slot_phase ^ 1u);
    store_sums(smem, slot, d);
    __syncwarp();
    if (lane == 0) barrier_arrive(smem.done_barriers + 8u * (unsigned)slot);
    if (unit > units.begin && warp == (unit - 1 - units.begin) % WARPS) finish_unit(a, smem, units, unit - 1);
#else
    store_sums(smem, slot, d);
    consumers_wait();
    // Another warp each time; the others go on.
    if (warp == (unit - units.begin) % WARPS) {
      barrier_wait(smem.cleared_barrier, 0u);
      store_hidden(a, smem, slot, entry, group);
    }
#endif
    if (++slot == SLOTS) {
      slot = 0;
      slot_phase ^= 1u;
    }
    if (++group == a.groups) {
      group = 0;
      ++entry;
    }
  }
#if FP4
  if (units.begin < units.end && warp == (units.end - 1 - units.begin) % WARPS)
    finish_unit(a, smem, units, units.end - 1);
#endif
}

#define HIDDEN_VECTORS (FP8 ? 4 : 2)

// An atom of k of an entry that a warp multiplies: its i-th of a stage.
struct Step {
  int entry, atom;
  int offset;  // in the stage
  bool there;
};
static __device__ __forceinline__ Step step_at(int first, int slab, int entries, int i) {
  const int at = i * WARPS + (int)threadIdx.x / 32;
  Step step;
#if ENTRIES == 1
  step.entry = entry_at(first, entries);
  step.atom = slab * HIDDEN_SLAB + at;
  step.offset = at * W_ATOM_BYTES;
  step.there = at < HIDDEN_SLAB && step.atom < HIDDEN_ATOMS;
#else
  const int of_stage = at / HIDDEN_SLAB;
  step.entry = first + of_stage;
  step.atom = slab * HIDDEN_SLAB + at % HIDDEN_SLAB;
  step.offset = of_stage * 16 * HIDDEN_PITCH + at % HIDDEN_SLAB * W_ATOM_BYTES;
  step.there = of_stage < ENTRIES && step.entry < entries && step.atom < HIDDEN_ATOMS;
  if (!step.there) step.entry = 0;
#endif
  if (!step.there) step.atom = step.offset = 0;
  return step;
}
static __device__ __forceinline__ void load_hidden(const MoeDecodeArguments& a, const Tables& t, const Step& step,
                                                   uint4 (&bits)[HIDDEN_VECTORS]) {
  const int lane = (int)threadIdx.x % 32;
  const int token = lane / 4;
  const bool routed = step.there && (t.masks[step.entry] >> token & 1u);
  const int column = step.atom * ATOM_ELEMENTS + lane % 4 * (ATOM_ELEMENTS / 4);
  const unsigned short* const from = a.hidden + ((step.entry * a.tokens + token) * a.features + column);
#pragma unroll
  for (int i = 0; i < HIDDEN_VECTORS; ++i) {
    bits[i] = make_uint4(0u, 0u, 0u, 0u);
    if (routed && column + i * 8 < a.features) bits[i] = load_current(from + i * 8);
  }
}
static __device__ __forceinline__ bool is_written(const uint4 (&bits)[HIDDEN_VECTORS]) {
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < HIDDEN_VECTORS; ++i) most = max(max(max(most, bits[i].x), max(bits[i].y, bits[i].z)), bits[i].w);
  return most != NOT_WRITTEN;
}

#if FP8
static __device__ __forceinline__ unsigned scaled_halves(unsigned bits, float factor) {
  const float low = __uint_as_float(bits << 16) * factor;
  const float high = __uint_as_float(bits & 0xffff0000u) * factor;
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
static __device__ __forceinline__ float largest(unsigned bits) {
  return fmaxf(fabsf(__uint_as_float(bits << 16)), fabsf(__uint_as_float(bits & 0xffff0000u)));
}

// bf16 of a token's 128 as fp16, times a power of two; returns the power's inverse.
static __device__ __forceinline__ float to_halves(const uint4 (&bits)[HIDDEN_VECTORS], unsigned (&to)[16]) {
  float most = 0.0f;
#pragma unroll
  for (int i = 0; i < HIDDEN_VECTORS; ++i)
    most = fmaxf(fmaxf(fmaxf(most, largest(bits[i].x)), fmaxf(largest(bits[i].y), largest(bits[i].z))),
                 largest(bits[i].w));
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 1));
  most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
  unsigned exponent = __float_as_uint(most) >> 23;
  if (exponent < 15u) exponent = 15u;
  const float factor = __uint_as_float((268u - exponent) << 23);
#pragma unroll
  for (int i = 0; i < HIDDEN_VECTORS; ++i) {
    to[i * 4] = scaled_halves(bits[i].x, factor);
    to[i * 4 + 1] = scaled_halves(bits[i].y, factor);
    to[i * 4 + 2] = scaled_halves(bits[i].z, factor);
    to[i * 4 + 3] = scaled_halves(bits[i].w, factor);
  }
  return __uint_as_float((exponent - 14u) << 23);
}
#endif

static __device__ __forceinline__ void second_product(const MoeDecodeArguments& a, const Shared& smem, int entries,
                                                      PipelineState& state) {
  const Tables& t = *smem.tables;
  const int lane = (int)threadIdx.x % 32;
  const Share rows = share_of((a.rows + 7) / 8);
  const int tiles = (rows.end - rows.begin + 1) / 2;
  Sums d[TILES] = {};
  uint4 next[HIDDEN_STEPS][HIDDEN_VECTORS];
  int first = 0;
  int slab = 0;
#pragma unroll 1
  while (first < entries) {
    Step steps[HIDDEN_STEPS];
#pragma unroll
    for (int i = 0; i < HIDDEN_STEPS; ++i) steps[i] = step_at(first, slab, entries, i);
#if SCALES
    float w_scales[HIDDEN_STEPS][TILES][2];
#pragma unroll
    for (int s = 0; s < HIDDEN_STEPS; ++s) {
#pragma unroll
      for (int i = 0; i < TILES * 2; ++i) {
        int row = (rows.begin + i) * 8 + (SCALES == 2 ? lane / 4 : 0);
        if (row >= a.rows) row = a.rows - 1;
        w_scales[s][i / 2][i % 2] = weight_scale(a.w2_scales, a.w2_scale_matrix, a.w2_scale_columns,
                                                 t.experts[steps[s].entry], row, steps[s].atom);
      }
    }
#endif
    if (first == 0 && slab == 0) barrier_wait(smem.grid_barrier, 0u);
    if (!HIDDEN_AHEAD || (first == 0 && slab == 0)) {
#pragma unroll
      for (int i = 0; i < HIDDEN_STEPS; ++i) load_hidden(a, t, steps[i], next[i]);
    }
    float factors[HIDDEN_STEPS][2];
    bool routed[HIDDEN_STEPS][2];
#if FP4
    unsigned b[HIDDEN_STEPS][1][8];
#else
    unsigned b[HIDDEN_STEPS][FP8 ? 16 : 8];
#endif
#pragma unroll
    for (int s = 0; s < HIDDEN_STEPS; ++s) {
      while (!__all_sync(0xffffffffu, is_written(next[s]))) load_hidden(a, t, steps[s], next[s]);
#if FP8
      const float back = to_halves(next[s], b[s]);
#pragma unroll
      for (int i = 0; i < 2; ++i) factors[s][i] = __shfl_sync(0xffffffffu, back, (lane % 4 * 2 + i) * 4);
#else
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        factors[s][i] = 1.0f;
#if FP4
        pair_x(b[s][0], i, next[s][i]);
#else
        b[s][i * 4] = next[s][i].x;
        b[s][i * 4 + 1] = next[s][i].y;
        b[s][i * 4 + 2] = next[s][i].z;
        b[s][i * 4 + 3] = next[s][i].w;
#endif
      }
#endif
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        routed[s][i] = t.masks[steps[s].entry] >> (lane % 4 * 2 + i) & 1u;
        if (!WEIGHTED) factors[s][i] *= t.weights[steps[s].entry][lane % 4 * 2 + i];
      }
    }
    if (++slab == HIDDEN_SLABS) {
      slab = 0;
      first += ENTRIES;
    }
    if (HIDDEN_AHEAD && first < entries) {
#pragma unroll
      for (int i = 0; i < HIDDEN_STEPS; ++i) load_hidden(a, t, step_at(first, slab, entries, i), next[i]);
    }
#if FP4
    // A stage has all rows that the block has.
    if (tiles == 0) continue;
    barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      if (tile >= tiles) continue;
      const int row = tile * 16;
      const unsigned strip = smem.pipeline + (unsigned)state.stage * STAGE_BYTES + (unsigned)(row * HIDDEN_PITCH);
      const unsigned scales = smem.pipeline + (unsigned)state.stage * STAGE_BYTES +
                              (unsigned)((rows.end - rows.begin) * 8 * HIDDEN_PITCH + row * HIDDEN_SCALE_PITCH);
      Sums p = {};
      if (rows.begin + tile * 2 + 1 < rows.end) {
        multiply_strip<false, HIDDEN_ATOMS>(p, b, strip, scales, HIDDEN_PITCH, HIDDEN_SCALE_PITCH);
      } else {
        multiply_strip<true, HIDDEN_ATOMS>(p, b, strip, scales, HIDDEN_PITCH, HIDDEN_SCALE_PITCH);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (routed[0][i % 2]) d[tile][i] = fmaf(p[i], factors[0][i % 2], d[tile][i]);
    }
    __syncwarp();
    if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)state.stage);
    next_stage(state, a.num_stages);
#else
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      if (tile >= tiles) continue;
      barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
#pragma unroll
      for (int s = 0; s < HIDDEN_STEPS; ++s) {
        if (!steps[s].there) continue;
        const Rows own = load_rows<HIDDEN_BYTES % 128 != 0>(
            smem.pipeline + (unsigned)state.stage * STAGE_BYTES + (unsigned)steps[s].offset, HIDDEN_PITCH,
            HIDDEN_BYTES - steps[s].atom * 128);
        Sums p = {};
#if FP8
        Sums second = {};
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          unsigned a0, a1, a2, a3;
          widen(word_of(own.low, i), a0, a2);
          widen(word_of(own.high, i), a1, a3);
          multiply(i % 2 ? second : p, a0, a1, a2, a3, b[s][i * 2], b[s][i * 2 + 1]);
        }
        add(p, second);
#else
        multiply_rows(p, own, b[s]);
#endif
#pragma unroll
        for (int i = 0; i < 4; ++i) {
#if SCALES
          const float factor = factors[s][i % 2] * w_scales[s][tile][i / 2];
#else
          const float factor = factors[s][i % 2];
#endif
          if (routed[s][i % 2]) d[tile][i] = fmaf(p[i], factor, d[tile][i]);
        }
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)state.stage);
      next_stage(state, a.num_stages);
    }
#endif
  }
  consumers_wait();  // those of the first product are read
#pragma unroll
  for (int tile = 0; tile < TILES; ++tile)
    if (tile < tiles) store_sums(smem, tile, d[tile]);
  consumers_wait();
  if (BIAS) barrier_wait(smem.bias_barrier, 0u);
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < tiles * 128; i += CONSUMER_THREADS) {
    const OutputElement element = element_at(a, rows, i);
    if (!element.there) continue;
    float sum = sum_of_warps(smem, i / 128, i % 16 * 8 + element.token);
    if (BIAS) sum += smem.biases[i];
    a.y[element.token * a.ldy + element.row] = round_output(t.missing >> element.token & 1u ? NOT_A_NUMBER : sum);
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, 1) moe_decode(const __grid_constant__ MoeDecodeArguments a) {
  extern __shared__ unsigned char memory[];
  launch_dependents();
  Shared smem;
  smem.pipeline = (shared_address(memory) + 127u) & ~127u;
  unsigned char* const behind = memory + (smem.pipeline - shared_address(memory)) + a.num_stages * STAGE_BYTES;
  smem.sums = (float*)behind;
  smem.biases = (float*)(behind + BUFFERS * WARPS * 512);
  smem.tables = (Tables*)(behind + BUFFERS * WARPS * 512 + BIAS_BYTES);
  smem.full_barriers =
      shared_address(behind) + (unsigned)(BUFFERS * WARPS * 512 + BIAS_BYTES + ((int)sizeof(Tables) + 15) / 16 * 16);
  smem.empty_barriers = smem.full_barriers + 8u * (unsigned)a.num_stages;
  smem.cleared_barrier = smem.empty_barriers + 8u * (unsigned)a.num_stages;
  smem.grid_barrier = smem.cleared_barrier + 8u;
  smem.bias_barrier = smem.grid_barrier + 8u;
  smem.done_barriers = smem.bias_barrier + 8u;
  smem.added_barriers = smem.done_barriers + 8u * SLOTS;
  if (threadIdx.x == CONSUMER_THREADS) {
#pragma unroll 1
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full_barriers + 8u * (unsigned)i, 1);
      barrier_init(smem.empty_barriers + 8u * (unsigned)i, WARPS);
    }
    barrier_init(smem.cleared_barrier, 1);
    barrier_init(smem.grid_barrier, 1);
    barrier_init(smem.bias_barrier, 1);
#pragma unroll
    for (int i = 0; i < SLOTS; ++i) {
      barrier_init(smem.done_barriers + 8u * (unsigned)i, WARPS);
      barrier_init(smem.added_barriers + 8u * (unsigned)i, 1);
    }
    fence_async_proxy();
  }
  grid_dependency_wait();
  const int warp = (int)threadIdx.x / 32;
  Tables& t = *smem.tables;
  TokenPart part;
  if (warp < WARPS) load_tokens(a, part);
  // The producer begins as soon as it knows the experts.
  if (a.tokens * a.topk <= 32) {
    if (warp == WARPS) {
      make_entries_of_few(a, t);
      arrive_named<THREADS>(entries_barrier);
    } else {
      sync_named<THREADS>(entries_barrier);
    }
  } else {
    make_entries_of_many(a, t);
    __syncthreads();
  }
  if (warp >= WARPS) {
    // Of the 96 that a thread has.
    if constexpr (GIVES_REGISTERS) give_registers<32>();
    if (warp == WARPS) {
      if (FP4 || elect_one()) produce(a, smem, t.count);
    } else if (warp == WARPS + 1) {
      clear_hidden(a, smem, t.count);
      synchronize_grid(a, smem);
#if BIAS
      add_biases(a, smem, t.count);
#endif
    }
  } else {
    if constexpr (GIVES_REGISTERS) take_registers<112>();
    PipelineState state = {0, 0u};
    first_product(a, smem, t.count, part, state);
    second_product(a, smem, t.count, state);
  }
}
