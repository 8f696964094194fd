// The products of moe_decode: what a consumer warp does with the weight's rows of a stage, of 4 bits, fp8 and elements of two bytes.
#pragma once

#include "backends/cuda/device/descriptor.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/named_barrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/families/moe_decode/moe_decode_arguments.h"
#include "backends/cuda/families/moe_decode/moe_decode_producer.cuh"
#include "backends/cuda/families/moe_decode/moe_decode_strips.cuh"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"

static __device__ constexpr bool has_scales() { return types().scales != Scales::none; }
static __device__ constexpr bool scales_blocks() { return types().scales == Scales::blocks; }
static __device__ constexpr bool is_fp8() { return types().element == Element::e4m3; }

enum : int {
  HIDDEN_VECTORS = is_fp8() ? 4 : 2
};  // of 16 bytes, of the hidden layer, that a thread has of an atom of k

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

static __device__ __forceinline__ float weight_scale(const float* scales, long long matrix, int columns, int expert,
                                                     int row, int atom) {
  if constexpr (types().scales == Scales::matrix)
    return __ldg(scales + expert * matrix);
  else if constexpr (types().scales == Scales::rows)
    return __ldg(scales + expert * matrix + row);
  else
    return __ldg(scales + expert * matrix + row / 128 * columns + atom);
}

// Of the `warp`-th of so many warps that divide k.
template <int COUNT>
static __device__ __forceinline__ void store_sums(const Shared& smem, int buffer, int warp, const Sums& d) {
  const int lane = (int)threadIdx.x % 32;
  float* const to = smem.sums + (buffer * COUNT + warp) * 128 + lane / 4 * 8 + lane % 4 * 2;
  *(float2*)to = make_float2(d[0], d[1]);
  *(float2*)(to + 64) = make_float2(d[2], d[3]);
}
template <int COUNT>
static __device__ __forceinline__ float sum_of_warps(const Shared& smem, int buffer, int at) {
  const float* const from = smem.sums + buffer * COUNT * 128 + at;
  float sum = 0.0f;
#pragma unroll
  for (int i = 0; i < COUNT; ++i) sum += from[i * 128];
  return sum;
}

// The first product's sums of a feature; `row`: the feature's in the unit.
static __device__ __forceinline__ float hidden_of(const MoeDecodeArguments& a, const Shared& smem, int buffer,
                                                  int entry, int feature, int row, int token) {
  float gate = sum_of_warps<TEAM_WARPS>(smem, buffer, row * 8 + token);
  float up = GATED ? sum_of_warps<TEAM_WARPS>(smem, buffer, 64 + row * 8 + token) : 0.0f;
  if constexpr (config().tokens_fp8) {
    const float scale = __ldcg(a.x_scales + token * a.x_scale_columns);
    gate *= scale;
    up *= scale;
  }
  if constexpr (HAS_GLOBALS) {
    gate *= smem.globals[entry];
    up *= smem.globals[entry];
  }
  if constexpr (config().bias) {
    const float* const bias = a.bias + (long long)smem.tables->experts[entry] * a.features * (GATED ? 2 : 1);
    gate += __ldg(bias + feature);
    if (GATED) up += __ldg(bias + a.features + feature);
  }
  if constexpr (config().weighted) {
    gate *= smem.tables->weights[entry][token];
    up *= smem.tables->weights[entry][token];
  }
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
    const int feature = group * UNIT_FEATURES + row;
    if (feature >= a.features || !(mask >> token & 1u)) continue;
    const float first = hidden_of(a, smem, buffer, entry, feature, row, token);
    const float second = hidden_of(a, smem, buffer, entry, feature + 1, row + 1, token);
    unsigned pair;
    if constexpr (config().hidden == Element::f16)
      pair = float_to_half(first) | (unsigned)float_to_half(second) << 16;
    else
      pair = float_to_bfloat(first) | (unsigned)float_to_bfloat(second) << 16;
    if (pair == NOT_WRITTEN) pair = 0x7fff7fffu;
    store_relaxed((unsigned*)(a.hidden + ((long long)entry * a.tokens + token) * a.features + feature), pair);
  }
}

// The atom of k that is the j-th of a team's warp, and whether any warp has that many.
static __device__ __forceinline__ int atom_at(int j, int warp) {
  return j / STEPS * SLAB + j % STEPS * TEAM_WARPS + warp;
}
static __device__ constexpr bool has_atom(int j) { return j / STEPS * SLAB + j % STEPS * TEAM_WARPS < ATOMS; }

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

// An atom of k of an entry that a warp multiplies: its i-th of a stage.
struct Step {
  int entry, atom;
  int offset;  // in the stage
  bool there;
};
static __device__ __forceinline__ Step step_at(int first, int slab, int entries, int i) {
  const int at = i * HIDDEN_TEAM_WARPS + warp_of_hidden_team();
  Step step;
  if constexpr (ENTRIES == 1) {
    step.entry = entry_at(first, entries);
    step.atom = slab * HIDDEN_SLAB + at;
    step.offset = at * W_ATOM_BYTES;
    step.there = at < HIDDEN_SLAB && step.atom < HIDDEN_ATOMS;
  } else {
    const int of_stage = at / HIDDEN_SLAB;
    step.entry = first + of_stage;
    step.atom = slab * HIDDEN_SLAB + at % HIDDEN_SLAB;
    step.offset = of_stage * 16 * HIDDEN_PITCH + at % HIDDEN_SLAB * W_ATOM_BYTES;
    step.there = of_stage < ENTRIES && step.entry < entries && step.atom < HIDDEN_ATOMS;
    if (!step.there) step.entry = 0;
  }
  if (!step.there) step.atom = step.offset = 0;
  return step;
}
static __device__ __forceinline__ void load_hidden(const MoeDecodeArguments& a, const Tables& t, const Step& step,
                                                   uint4 (&bits)[HIDDEN_VECTORS]) {
  const int lane = (int)threadIdx.x % 32;
  const int token = lane / 4;
  const bool routed = step.there && (t.masks[step.entry] >> token & 1u);
  const int column = step.atom * ATOM_ELEMENTS + lane % 4 * (TWO_GROUPS ? 8 : ATOM_ELEMENTS / 4);
  const unsigned short* const from = a.hidden + ((step.entry * a.tokens + token) * a.features + column);
#pragma unroll
  for (int i = 0; i < HIDDEN_VECTORS; ++i) {
    constexpr int next = TWO_GROUPS ? 32 : 8;
    bits[i] = make_uint4(0u, 0u, 0u, 0u);
    if (routed && column + i * next < a.features) bits[i] = load_current(from + i * next);
  }
}
static __device__ __forceinline__ bool is_written(const uint4 (&bits)[HIDDEN_VECTORS]) {
  unsigned most = 0;
#pragma unroll
  for (int i = 0; i < HIDDEN_VECTORS; ++i) most = max(max(max(most, bits[i].x), max(bits[i].y, bits[i].z)), bits[i].w);
  return most != NOT_WRITTEN;
}

// What the second product knows of a stage: the warp's atoms of k, their hidden layer's factors by token, and the weight's scales.
struct SecondStage {
  Step steps[HIDDEN_STEPS];
  float factors[HIDDEN_STEPS][2];
  bool routed[HIDDEN_STEPS][2];
  float w_scales[HIDDEN_STEPS][TILES][2];
};

// A stage that a team of one in so many has read; as if the others had too.
template <int OF_TEAMS>
static __device__ __forceinline__ void release(const Shared& smem, PipelineState& state, int num_stages, int lane) {
  __syncwarp();
  if constexpr (OF_TEAMS == 1) {
    if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)state.stage);
    next_stage(state, num_stages);
  } else {
    if (lane == 0) barrier_arrive(smem.empty_barriers + 8u * (unsigned)state.stage, OF_TEAMS);
    skip_stages(state, OF_TEAMS, num_stages);
  }
}

static __device__ __forceinline__ void set_words(unsigned* to, const uint4& bits) {
  to[0] = bits.x;
  to[1] = bits.y;
  to[2] = bits.z;
  to[3] = bits.w;
}

// Of three kinds of weights. Each has:
//   Tokens, load_atom()          the tokens' k of a warp, and how its j-th atom is loaded
//   Hidden, convert()            the hidden layer's k of a warp's atom, and its factor by token
//   multiply_unit()              first product: the sums of a unit of w1's rows
//   pass_sums(), pass_last()     first product: adds the warps' sums and stores the hidden layer
//   multiply_tiles()             second product: adds a stage to the sums of the block's tiles

// Weights of 4 bits: a stage is a strip of whole rows, their scales and zero points.
struct StripProduct {
  struct Tokens {
    unsigned x[STEPS][1][8];
  };
  typedef unsigned Hidden[1][8];

  static __device__ __forceinline__ void load_atom(Tokens& part, int j, const MoeDecodeArguments& a, int warp,
                                                   int lane) {
    if constexpr (config().tokens_fp8) {
      const int at = atom_at(j, warp) * 64 + lane % 4 * 16;
      uint4 bits = make_uint4(0u, 0u, 0u, 0u);
      if (lane / 4 < a.tokens && at < ROW_BYTES * 2) bits = load_vector(a.x + lane / 4 * a.x_row_bytes + at);
      pair_x(part.x[j][0], 0, widen_to_bfloats(bits.x, bits.y));
      pair_x(part.x[j][0], 1, widen_to_bfloats(bits.z, bits.w));
    } else {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = atom_at(j, warp) * 128 + (TWO_GROUPS ? i * 64 + lane % 4 * 16 : lane % 4 * 32 + i * 16);
        uint4 bits = make_uint4(0u, 0u, 0u, 0u);
        if (lane / 4 < a.tokens && at < ROW_BYTES * 4) bits = load_vector(a.x + lane / 4 * a.x_row_bytes + at);
        pair_x(part.x[j][0], i, bits);
      }
    }
  }

  static __device__ __forceinline__ void convert(Hidden& b, float (&factors)[2], const uint4 (&bits)[HIDDEN_VECTORS],
                                                 int) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      factors[i] = 1.0f;
      pair_x(b[0], i, bits[i]);
    }
  }

  static __device__ __forceinline__ void multiply_unit(Sums& d, const MoeDecodeArguments& a, const Shared& smem,
                                                       const Tokens& part, int, int, PipelineState& state, int,
                                                       int lane) {
    barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
    multiply_strip<false, ATOMS, TEAM_WARPS>(
        d, part.x, strip_of<false>(smem.pipeline + (unsigned)state.stage * STAGE_BYTES, 16, 0), warp_of_team());
    release<TEAMS>(smem, state, a.num_stages, lane);
  }

  // By one warp of the team, another each time, which has begun the team's next unit then: the warps' sums of a unit are added and stored.
  static __device__ __forceinline__ void finish_unit(const MoeDecodeArguments& a, const Shared& smem,
                                                     const Share& units, int unit) {
    const int slot = (unit - units.begin) % SLOTS;
    barrier_wait(smem.done_barriers + 8u * (unsigned)slot, (unsigned)((unit - units.begin) / SLOTS % 2));
    barrier_wait(smem.cleared_barrier, 0u);
    store_hidden(a, smem, slot, unit / a.groups, unit % a.groups);
    __syncwarp();
    if ((int)threadIdx.x % 32 == 0) barrier_arrive(smem.added_barriers + 8u * (unsigned)slot);
  }

  static __device__ __forceinline__ void pass_sums(const Sums& d, const MoeDecodeArguments& a, const Shared& smem,
                                                   const Share& units, int unit, int, int, int slot,
                                                   unsigned slot_phase, int, int lane) {
    barrier_wait(smem.added_barriers + 8u * (unsigned)slot, slot_phase ^ 1u);
    store_sums<TEAM_WARPS>(smem, slot, warp_of_team(), d);
    __syncwarp();
    if (lane == 0) barrier_arrive(smem.done_barriers + 8u * (unsigned)slot);
    if (unit - TEAMS >= units.begin) finish_in_turn(a, smem, units, unit - TEAMS);
  }
  static __device__ __forceinline__ void pass_last(const MoeDecodeArguments& a, const Shared& smem, const Share& units,
                                                   int) {
    const int count = units.end - units.begin - team();
    if (count > 0) finish_in_turn(a, smem, units, units.end - 1 - (count - 1) % TEAMS);
  }
  static __device__ __forceinline__ void finish_in_turn(const MoeDecodeArguments& a, const Shared& smem,
                                                        const Share& units, int unit) {
    if (warp_of_team() == (unit - units.begin) / TEAMS % TEAM_WARPS) finish_unit(a, smem, units, unit);
  }

  // A stage has all rows that the block has.
  static __device__ __forceinline__ void multiply_tiles(Sums (&d)[TILES], const MoeDecodeArguments& a,
                                                        const Shared& smem, const Share& rows, int tiles,
                                                        const Hidden (&b)[HIDDEN_STEPS], const SecondStage& of,
                                                        PipelineState& state, int lane) {
    if (tiles == 0) return;
    barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      if (tile >= tiles) continue;
      const WeightStrip strip =
          strip_of<true>(smem.pipeline + (unsigned)state.stage * STAGE_BYTES, (rows.end - rows.begin) * 8, tile * 16);
      Sums p = {};
      if (rows.begin + tile * 2 + 1 < rows.end) {
        multiply_strip<false, HIDDEN_ATOMS, HIDDEN_TEAM_WARPS>(p, b, strip, warp_of_hidden_team());
      } else {
        multiply_strip<true, HIDDEN_ATOMS, HIDDEN_TEAM_WARPS>(p, b, strip, warp_of_hidden_team());
      }
#pragma unroll
      for (int i = 0; i < 4; ++i)
        if (of.routed[0][i % 2]) d[tile][i] = fmaf(p[i], of.factors[0][i % 2], d[tile][i]);
    }
    release<HIDDEN_TEAMS>(smem, state, a.num_stages, lane);
  }
};

// Rows of one or two bytes an element: a stage is a slab of k of 16 rows. Product multiplies the rows: multiply_rows() by tokens, multiply_hidden() by the hidden layer.
template <typename Product>
struct SlabProduct {
  struct Tokens {
    unsigned x[SLABS * STEPS][8];
  };

  static __device__ __forceinline__ void load_atom(Tokens& part, int j, const MoeDecodeArguments& a, int warp,
                                                   int lane) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int at = atom_at(j, warp) * 128 + lane % 4 * 32 + i * 16;
      uint4 bits = make_uint4(0u, 0u, 0u, 0u);
      if (lane / 4 < a.tokens && at < ROW_BYTES) bits = load_vector(a.x + lane / 4 * a.x_row_bytes + at);
      set_words(&part.x[j][i * 4], bits);
    }
  }

  // Scales of blocks of the warp's atoms of a slab: of the thread's two rows and of its two tokens.
  struct AtomScales {
    float w[STEPS][2];
    float x[STEPS][2];
  };
  static __device__ __forceinline__ AtomScales atom_scales(const MoeDecodeArguments& a, int slab, int expert, int group,
                                                           int warp, int lane) {
    AtomScales scales;
#pragma unroll
    for (int i = 0; i < STEPS; ++i) {
      if (!has_atom(slab * STEPS + i)) continue;
      const int own = atom_at(slab * STEPS + i, warp);
      const int atom = own < ATOMS ? own : 0;
      const int row = group * UNIT_FEATURES;
      scales.w[i][0] = weight_scale(a.w_scales, a.w_scale_matrix, a.w_scale_columns, expert, row, atom);
      scales.w[i][1] =
          GATED ? weight_scale(a.w_scales, a.w_scale_matrix, a.w_scale_columns, expert, a.features + row, atom)
                : scales.w[i][0];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        const int token = lane % 4 * 2 + e;
        scales.x[i][e] = a.x_scales[(token < a.tokens ? token : 0) * a.x_scale_columns + atom];
      }
    }
    return scales;
  }

  static __device__ __forceinline__ void multiply_unit(Sums& d, const MoeDecodeArguments& a, const Shared& smem,
                                                       const Tokens& part, int expert, int group, PipelineState& state,
                                                       int warp, int lane) {
#pragma unroll
    for (int slab = 0; slab < SLABS; ++slab) {
      AtomScales scales;
      if constexpr (scales_blocks()) scales = atom_scales(a, slab, expert, group, warp, lane);
      barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
#pragma unroll
      for (int i = 0; i < STEPS; ++i) {
        const int j = slab * STEPS + i;
        if (!has_atom(j)) continue;
        if ((slab * SLAB + (i + 1) * WARPS > ATOMS) && atom_at(j, warp) >= ATOMS) continue;
        const Rows rows = load_rows<ROW_BYTES % 128 != 0>(
            smem.pipeline + (unsigned)state.stage * STAGE_BYTES + (unsigned)((i * WARPS + warp) * 128), PITCH,
            ROW_BYTES - atom_at(j, warp) * 128);
        if constexpr (scales_blocks()) {
          Sums p = {};
          Product::multiply_rows(p, rows, part.x[j]);
#pragma unroll
          for (int e = 0; e < 4; ++e) d[e] = fmaf(p[e], scales.w[i][e / 2] * scales.x[i][e % 2], d[e]);
        } else {
          Product::multiply_rows(d, rows, part.x[j]);
        }
      }
      release<1>(smem, state, a.num_stages, lane);
    }
  }

  static __device__ __forceinline__ void pass_sums(const Sums& d, const MoeDecodeArguments& a, const Shared& smem,
                                                   const Share& units, int unit, int entry, int group, int slot,
                                                   unsigned, int warp, int) {
    store_sums<WARPS>(smem, slot, warp, d);
    consumers_wait();
    // Another warp each time; the others go on.
    if (warp == (unit - units.begin) % WARPS) {
      barrier_wait(smem.cleared_barrier, 0u);
      store_hidden(a, smem, slot, entry, group);
    }
  }
  static __device__ __forceinline__ void pass_last(const MoeDecodeArguments&, const Shared&, const Share&, int) {}

  template <typename Hidden>
  static __device__ __forceinline__ void multiply_tiles(Sums (&d)[TILES], const MoeDecodeArguments& a,
                                                        const Shared& smem, const Share&, int tiles,
                                                        const Hidden (&b)[HIDDEN_STEPS], const SecondStage& of,
                                                        PipelineState& state, int lane) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
      if (tile >= tiles) continue;
      barrier_wait(smem.full_barriers + 8u * (unsigned)state.stage, state.phase);
#pragma unroll
      for (int s = 0; s < HIDDEN_STEPS; ++s) {
        if (!of.steps[s].there) continue;
        const Rows own = load_rows<HIDDEN_BYTES % 128 != 0>(
            smem.pipeline + (unsigned)state.stage * STAGE_BYTES + (unsigned)of.steps[s].offset, HIDDEN_PITCH,
            HIDDEN_BYTES - of.steps[s].atom * 128);
        Sums p = {};
        Product::multiply_hidden(p, own, b[s]);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          float factor = of.factors[s][i % 2];
          if constexpr (has_scales()) factor *= of.w_scales[s][tile][i / 2];
          if (of.routed[s][i % 2]) d[tile][i] = fmaf(p[i], factor, d[tile][i]);
        }
      }
      release<1>(smem, state, a.num_stages, lane);
    }
  }
};

// fp8 is multiplied as fp16, to which it is widened.
struct Fp8Product : SlabProduct<Fp8Product> {
  typedef unsigned Hidden[16];

  // `b`: 32 bytes of k of token lane / 4, as they are.
  static __device__ __forceinline__ void multiply_rows(Sums& d, const Rows& rows, const unsigned (&b)[8]) {
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
  }

  static __device__ __forceinline__ void multiply_hidden(Sums& p, const Rows& rows, const Hidden& b) {
    Sums second = {};
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      unsigned a0, a1, a2, a3;
      widen(word_of(rows.low, i), a0, a2);
      widen(word_of(rows.high, i), a1, a3);
      multiply(i % 2 ? second : p, a0, a1, a2, a3, b[i * 2], b[i * 2 + 1]);
    }
    add(p, second);
  }

  static __device__ __forceinline__ void convert(Hidden& b, float (&factors)[2], const uint4 (&bits)[HIDDEN_VECTORS],
                                                 int lane) {
    const float back = to_halves(bits, b);
#pragma unroll
    for (int i = 0; i < 2; ++i) factors[i] = __shfl_sync(0xffffffffu, back, (lane % 4 * 2 + i) * 4);
  }
};

// fp16 and bf16.
struct HalfProduct : SlabProduct<HalfProduct> {
  typedef unsigned Hidden[8];

  static __device__ __forceinline__ void multiply_rows(Sums& d, const Rows& rows, const unsigned (&b)[8]) {
    Sums second = {};
#pragma unroll
    for (int i = 0; i < 8; i += 2)
      multiply(i % 4 ? second : d, word_of(rows.low, i), word_of(rows.high, i), word_of(rows.low, i + 1),
               word_of(rows.high, i + 1), b[i], b[i + 1]);
    add(d, second);
  }

  static __device__ __forceinline__ void multiply_hidden(Sums& p, const Rows& rows, const Hidden& b) {
    multiply_rows(p, rows, b);
  }

  static __device__ __forceinline__ void convert(Hidden& b, float (&factors)[2], const uint4 (&bits)[HIDDEN_VECTORS],
                                                 int) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      factors[i] = 1.0f;
      set_words(&b[i * 4], bits[i]);
    }
  }
};

template <bool STRIPS, bool FP8>
struct ProductOf {
  typedef HalfProduct type;
};
template <bool FP8>
struct ProductOf<true, FP8> {
  typedef StripProduct type;
};
template <>
struct ProductOf<false, true> {
  typedef Fp8Product type;
};
typedef ProductOf<config().strips, is_fp8()>::type Product;
