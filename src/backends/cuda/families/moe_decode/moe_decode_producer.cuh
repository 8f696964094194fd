// What moe_decode's blocks know of the routing and of their shares, the thread that loads, and how blocks learn that the hidden layer may be read.
#pragma once

#include "backends/cuda/device/e2m1_strip.cuh"
#include "backends/cuda/device/grid_barrier.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/pipeline.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/moe_decode/moe_decode_arguments.h"
#include "backends/gpu/device/numbers.cuh"

using gemmtune::cuda::MoeDecodeArguments;

using gemmtune::cuda::WeightFormat;

static __device__ constexpr gemmtune::cuda::MoeDecodeConfig config() { return CONFIG; }

#include "backends/cuda/families/weight_format.cuh"

// Bytes of the scales and of the zero points of `row_bytes` bytes of a row.
static __device__ constexpr int scale_bytes(int row_bytes) { return row_bytes * 2 / SCALE_K * (is_int4() ? 2 : 1); }
static __device__ constexpr int zero_bytes(int row_bytes) { return config().zero_points ? row_bytes * 2 / SCALE_K : 0; }

enum : int {
  MAX_TOKENS = 8,
  MAX_PAIRS = 128,
  WARPS = config().warps,
  TEAMS = config().teams,
  TEAM_WARPS = WARPS / TEAMS,
  HIDDEN_TEAMS = config().hidden_teams,
  HIDDEN_TEAM_WARPS = WARPS / HIDDEN_TEAMS,
  ROW_BYTES = config().row_bytes,
  SLAB = config().slab,
  HIDDEN_BYTES = config().hidden_bytes,
  HIDDEN_SLAB = config().hidden_slab,
  ENTRIES = config().entries,
  STAGE_BYTES = config().stage_bytes,
  SLOTS = config().slots,
  TILES = config().tiles,
  GRID = config().grid,
  CONSUMER_THREADS = WARPS * 32,
  // With 16 consumer warps a whole warp group, two warps of which have nothing to do: it gives registers to the others.
  GIVES_REGISTERS = WARPS == 16,
  THREADS = CONSUMER_THREADS + (GIVES_REGISTERS ? 128 : 64),
  W_ATOM_BYTES = config().strips ? 32 : 128,  // of a row of a weight, that a warp multiplies at once
  ATOMS = (ROW_BYTES + W_ATOM_BYTES - 1) / W_ATOM_BYTES,
  SLABS = (ATOMS + SLAB - 1) / SLAB,
  STEPS = SLAB / TEAM_WARPS,  // atoms of k of a stage that a warp has
  HIDDEN_ATOMS = (HIDDEN_BYTES + W_ATOM_BYTES - 1) / W_ATOM_BYTES,
  HIDDEN_SLABS = (HIDDEN_ATOMS + HIDDEN_SLAB - 1) / HIDDEN_SLAB,
  HIDDEN_STEPS = (ENTRIES * HIDDEN_SLAB + HIDDEN_TEAM_WARPS - 1) / HIDDEN_TEAM_WARPS,
  WHOLE_ROWS = HIDDEN_SLABS == 1,  // rows of w2 of a tile are one copy
  // Of rows in shared memory.
  PITCH = config().strips ? config().pitch : SLAB * 128 + 16,
  HIDDEN_PITCH = config().strips ? config().hidden_pitch
                 : WHOLE_ROWS    ? HIDDEN_BYTES
                                 : HIDDEN_SLAB * 128 + 16,
  // Of a team's warps of the first product, of all warps of the second.
  SUM_BYTES = (TILES * WARPS > SLOTS * TEAM_WARPS ? TILES * WARPS : SLOTS * TEAM_WARPS) * 512,
  BIAS_BYTES = config().bias ? TILES * 512 : 0,  // of the second product
  HAS_GLOBALS = config().weight == WeightFormat::nvfp4,
  GLOBAL_BYTES = HAS_GLOBALS ? 2 * MAX_PAIRS * 4 : 0,
  UNIT_FEATURES = GATED ? 8 : 16,  // of the hidden layer, of a unit of the first product
};
static_assert(TEAM_WARPS * TEAMS == WARPS && HIDDEN_TEAM_WARPS * HIDDEN_TEAMS == WARPS && HIDDEN_TEAMS % TEAMS == 0,
              "a warp's team of w2 is of its team of w1");
static_assert(TEAMS == 1 || (SLOTS % TEAMS == 0 && SLOTS >= 2 * TEAMS), "a team adds a unit while it has the next");

// Units follow each other through the stages, and behind them experts' w2. Every TEAMS-th, or HIDDEN_TEAMS-th, is a team's own. The number of stages is a
// multiple of HIDDEN_TEAMS: what was in a stage before is then a team's own too, so that the parity of a barrier's phase says enough.
static __device__ __forceinline__ int team() { return TEAMS > 1 ? (int)threadIdx.x / 32 % TEAMS : 0; }
static __device__ __forceinline__ int warp_of_team() { return (int)threadIdx.x / 32 / TEAMS; }
static __device__ __forceinline__ int hidden_team() {
  return HIDDEN_TEAMS > 1 ? (int)threadIdx.x / 32 % HIDDEN_TEAMS : 0;
}
static __device__ __forceinline__ int warp_of_hidden_team() { return (int)threadIdx.x / 32 / HIDDEN_TEAMS; }

static __device__ __forceinline__ float not_a_number() { return __uint_as_float(0x7fc00000u); }

// Pairs of one expert, at most one of each token: their weight is read once. Pairs of a token that repeat an expert have entries of their own.
struct Tables {
  float weights[MAX_PAIRS][MAX_TOKENS];  // by entry
  int experts[MAX_PAIRS];
  unsigned masks[MAX_PAIRS];  // tokens of the entry
  int ids[MAX_PAIRS];
  int keys[MAX_PAIRS];
  unsigned first[MAX_PAIRS / 32];  // bits: pairs that begin an entry
  unsigned missing;                // tokens with an id that is no expert
  int count;                       // of entries
};

// Addresses in shared memory. From a multiple of 128 on:
//
//   pipeline      stage 0 | stage 1 | ... | stage num_stages - 1      a stage: rows of w1 or of w2 (PITCH, HIDDEN_PITCH), of strips then their scales and zero points
//   sums          SLOTS x TEAM_WARPS or TILES x WARPS, x 16 rows x 8 tokens
//   biases        TILES x 8 tokens x 16 rows
//   globals       2 x MAX_PAIRS
//   tables
//   barriers      full 0 ... | empty 0 ... | cleared | grid | bias | done 0 ... | added 0 ...
struct Shared {
  unsigned pipeline;
  unsigned full_barriers;
  unsigned empty_barriers;
  unsigned cleared_barrier;  // this block's hidden layer is cleared, and globals are there
  unsigned grid_barrier;     // everybody's is
  unsigned done_barriers;    // of the slots for sums: all warps' are there; they were added
  unsigned added_barriers;
  unsigned bias_barrier;  // biases are there
  float* sums;            // [SLOTS][TEAM_WARPS][16][8], then [TILES][WARPS][16][8]
  float* biases;          // as y's elements of the block, [TILES][8][16] (bias)
  float* globals;         // what sums are multiplied by, [w1, w2][entry] (HAS_GLOBALS)
  Tables* tables;
};

// Of the consumers; of all threads, until the producer may read the entries.
enum NamedBarrier { consumers_barrier = 1, entries_barrier = 2 };

// ---- entries

static __device__ __forceinline__ int entries_before(const Tables& t, int pair) {
  int count = 0;
#pragma unroll
  for (int i = 0; i < MAX_PAIRS / 32; ++i) {
    const int bits = pair - i * 32;
    const unsigned mask = bits >= 32 ? 0xffffffffu : bits <= 0 ? 0u : (1u << bits) - 1u;
    count += __popc(t.first[i] & mask);
  }
  return count;
}

struct Pair {
  int token, id;  // id −1: an empty slot, which adds nothing; −2: no expert
  float weight;
};
static __device__ __forceinline__ Pair load_pair(const MoeDecodeArguments& a, int pair) {
  const int routed = a.topk - a.shared;
  Pair found = {0, -1, 1.0f};
  if (pair >= a.tokens * a.topk) return found;
  found.token = pair / a.topk;
  const int slot = pair - found.token * a.topk;
  if (slot >= routed) {
    found.id = a.experts - a.shared + slot - routed;
    return found;
  }
  found.id = __ldcg(a.ids + found.token * routed + slot);
  found.weight = __ldcg(a.weights + found.token * routed + slot);
  if (found.id < -1 || found.id >= a.experts - a.shared) found.id = -2;
  return found;
}

static __device__ __forceinline__ void store_pair(Tables& t, const Pair& pair, int entry, bool first) {
  if (first) t.experts[entry] = pair.id;
  t.weights[entry][pair.token] = pair.weight;
  atomicOr(&t.masks[entry], 1u << pair.token);
}

// Of at most 32 pairs, by one warp.
static __device__ __forceinline__ void make_entries_of_few(const MoeDecodeArguments& a, Tables& t) {
  const int lane = (int)threadIdx.x % 32;
  const bool there = lane < a.tokens * a.topk;
  t.masks[lane] = 0u;
  __syncwarp();
  const Pair pair = load_pair(a, lane);
  const bool valid = pair.id >= 0;
  unsigned same = 0;  // pairs of the same expert
#pragma unroll 8
  for (int i = 0; i < a.tokens * a.topk; ++i) same |= (unsigned)(__shfl_sync(0xffffffffu, pair.id, i) == pair.id) << i;
  // Of a token's pairs that repeat an expert the second ones are together, and so on.
  const unsigned before = (1u << lane) - 1u;
  const int repeated = __popc(same & before & ~((1u << pair.token * a.topk) - 1u));
  unsigned left = 0xffffffffu;
#pragma unroll 1
  for (int i = 0; left != 0u; ++i) {
    const unsigned now = __ballot_sync(0xffffffffu, repeated == i);
    if (repeated == i) same &= now;
    left &= ~now;
  }
  const int first = valid ? __ffs((int)same) - 1 : lane;
  const unsigned begins = __ballot_sync(0xffffffffu, valid && first == lane);
  unsigned missing = there && pair.id < -1 ? 1u << pair.token : 0u;
#pragma unroll
  for (int i = 16; i > 0; i /= 2) missing |= __shfl_xor_sync(0xffffffffu, missing, i);
  if (lane == 0) t.missing = missing;
  if (lane == 0) t.count = __popc(begins);
  if (valid) store_pair(t, pair, __popc(begins & ((1u << first) - 1u)), first == lane);
  __syncwarp();
}

// By all threads of the block.
static __device__ __forceinline__ void make_entries_of_many(const MoeDecodeArguments& a, Tables& t) {
  const int at = (int)threadIdx.x;
  const int pairs = a.tokens * a.topk;
  const Pair pair = load_pair(a, at);
  if (at < pairs) t.ids[at] = pair.id;
  for (int i = at; i < pairs; i += THREADS) t.masks[i] = 0u;
  if (at < MAX_PAIRS / 32) t.first[at] = 0u;
  if (at == 0) t.missing = 0u;
  __syncthreads();
  if (at < pairs) {
    int repeated = 0;
    for (int i = pair.token * a.topk; i < at; ++i) repeated += t.ids[i] == pair.id;
    t.keys[at] = pair.id * 256 + repeated;
  }
  __syncthreads();
  int first = at;
  if (at < pairs) {
    const int key = t.keys[at];
    for (int i = at - 1; i >= 0; --i)
      if (t.keys[i] == key) first = i;
    if (pair.id < -1) atomicOr(&t.missing, 1u << pair.token);
    if (pair.id >= 0 && first == at) atomicOr(&t.first[at / 32], 1u << at % 32);
  }
  __syncthreads();
  if (at < pairs && pair.id >= 0) store_pair(t, pair, entries_before(t, first), first == at);
  if (at == 0) t.count = entries_before(t, MAX_PAIRS);
}

// ---- the work of a block

struct Share {
  int begin, end;
};
static __device__ __forceinline__ Share share_of(int total) {
  return {(int)((long long)total * blockIdx.x / GRID), (int)((long long)total * (blockIdx.x + 1) / GRID)};
}

// The i-th entry whose w2 the block multiplies. Of strips, whose w2 is short beside the hidden layer, blocks begin with different ones: all of them read the hidden layer of each.
static __device__ __forceinline__ int entry_at(int i, int entries) {
  if constexpr (!config().strips) return i;
  const int entry = i + (int)(blockIdx.x * (unsigned)entries / GRID);
  return entry < entries ? entry : entry - entries;
}

// ---- producer

// A bias of w1 of a unit, or of both of its halves. It comes from memory, which the warp that adds it would wait for.
static __device__ __forceinline__ void prefetch_bias(const MoeDecodeArguments& a, int expert, int feature) {
  if constexpr (config().bias) {
    const float* const bias = a.bias + (long long)expert * a.features * (GATED ? 2 : 1) + feature;
    prefetch_sector(bias);
    prefetch_sector(bias + (GATED ? a.features : 8));
  }
}

// `rows` rows of w1 or (SECOND) w2 from `row` on, and their scales and zero points. SPLIT_ROWS: of 16 rows the second eight
// begin `second` rows behind the first. All lanes.
template <bool SECOND, bool SPLIT_ROWS>
static __device__ __forceinline__ void load_strip(const MoeDecodeArguments& a, const Shared& smem, PipelineState& state,
                                                  long long row, int second, int rows) {
  constexpr int row_bytes = SECOND ? HIDDEN_BYTES : ROW_BYTES;
  constexpr int pitch = SECOND ? HIDDEN_PITCH : PITCH;
  constexpr int scale_row = scale_bytes(row_bytes);
  constexpr int scale_pitch = SECOND ? config().hidden_scale_pitch : config().scale_pitch;
  constexpr int zero_row = zero_bytes(row_bytes);
  constexpr int zero_pitch = SECOND ? config().hidden_zero_pitch : config().zero_pitch;
  const unsigned full = smem.full_barriers + 8u * (unsigned)state.stage;
  const unsigned to = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
  barrier_wait(smem.empty_barriers + 8u * (unsigned)state.stage, state.phase);
  if ((int)threadIdx.x % 32 == 0) barrier_arrive_expect_tx(full, (unsigned)(rows * (row_bytes + scale_row + zero_row)));
  __syncwarp();
  copy_strip_rows<pitch != row_bytes, SPLIT_ROWS>(to, pitch, (SECOND ? a.w2 : a.w) + row * row_bytes, row_bytes, second,
                                                  rows, 0, full, 0ull);
  copy_strip_rows<scale_pitch != scale_row, SPLIT_ROWS>(
      to + (unsigned)(rows * pitch), scale_pitch,
      (const unsigned char*)(SECOND ? a.w2_scales : a.w_scales) + row * scale_row, scale_row, second, rows, 16, full,
      0ull);
  if constexpr (config().zero_points)
    copy_strip_rows<zero_pitch != zero_row, SPLIT_ROWS>(
        to + (unsigned)(rows * (pitch + scale_pitch)), zero_pitch,
        (const unsigned char*)(SECOND ? a.format2 : a.format).zero_points + row * zero_row, zero_row, second, rows, 0,
        full, 0ull);
  next_stage(state, a.num_stages);
}

// Of weights of 4 bits.
static __device__ __forceinline__ void load_strips(const MoeDecodeArguments& a, const Shared& smem, int entries) {
  const Tables& t = *smem.tables;
  PipelineState state = {0, 1u};
  const Share units = share_of(entries * a.groups);
  int entry = units.begin / a.groups;
  int group = units.begin - entry * a.groups;
#pragma unroll 1
  for (int unit = units.begin; unit < units.end; ++unit) {
    const int expert = t.experts[entry];
    const int feature = group * UNIT_FEATURES;
    load_strip<false, GATED>(a, smem, state, (long long)expert * a.features * (GATED ? 2 : 1) + feature, a.features,
                             16);
    prefetch_bias(a, expert, feature);
    if (++group == a.groups) {
      group = 0;
      ++entry;
    }
  }
  const Share groups = share_of((a.rows + 7) / 8);
#pragma unroll 1
  for (int i = 0; i < t.count; ++i) {  // read again: registers are few
    if (groups.begin < groups.end)
      load_strip<true, false>(a, smem, state, (long long)t.experts[entry_at(i, t.count)] * a.rows + groups.begin * 8, 8,
                              (groups.end - groups.begin) * 8);
  }
}
// Of other weights: by one thread.
static __device__ __forceinline__ void load_slabs(const MoeDecodeArguments& a, const Shared& smem, int entries) {
  const Tables& t = *smem.tables;
  const unsigned long long policy = evict_first();
  PipelineState state = {0, 1u};
  const Share units = share_of(entries * a.groups);
  int entry = units.begin / a.groups;
  int group = units.begin - entry * a.groups;
#pragma unroll 1
  for (int unit = units.begin; unit < units.end; ++unit) {
    const int first_row = group * UNIT_FEATURES;
    const unsigned char* const from =
        a.w + ((long long)t.experts[entry] * (a.features * (GATED ? 2 : 1)) + first_row) * ROW_BYTES;
    const int rows = GATED || a.features - first_row >= 16 ? 16 : a.features - first_row;
    const long long up = GATED ? (long long)(a.features - 8) * ROW_BYTES : 0;
#pragma unroll 1
    for (int slab = 0; slab < SLABS; ++slab) {
      const unsigned full = smem.full_barriers + 8u * (unsigned)state.stage;
      const unsigned to = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
      const unsigned bytes = slab + 1 < SLABS ? SLAB * 128u : (unsigned)(ROW_BYTES - (SLABS - 1) * SLAB * 128);
      barrier_wait(smem.empty_barriers + 8u * (unsigned)state.stage, state.phase);
      barrier_arrive_expect_tx(full, bytes * (unsigned)rows);
#pragma unroll 1
      for (int i = 0; i < rows; ++i)
        bulk_load(to + (unsigned)(i * PITCH), from + (long long)i * ROW_BYTES + (i >= 8 ? up : 0) + slab * (SLAB * 128),
                  bytes, full, 0, policy);
      next_stage(state, a.num_stages);
    }
    prefetch_bias(a, t.experts[entry], first_row);
    if (++group == a.groups) {
      group = 0;
      ++entry;
    }
  }
  const Share groups = share_of((a.rows + 7) / 8);
#pragma unroll 1
  for (int first = 0; first < entries; first += ENTRIES) {
    const int count = entries - first < ENTRIES ? entries - first : ENTRIES;
#pragma unroll 1
    for (int slab = 0; slab < HIDDEN_SLABS; ++slab) {
      const unsigned bytes = slab + 1 < HIDDEN_SLABS
                                 ? HIDDEN_SLAB * 128u
                                 : (unsigned)(HIDDEN_BYTES - (HIDDEN_SLABS - 1) * HIDDEN_SLAB * 128);
#pragma unroll 1
      for (int tile = groups.begin; tile < groups.end; tile += 2) {
        const unsigned rows = tile + 1 < groups.end ? 16u : 8u;
        const unsigned full = smem.full_barriers + 8u * (unsigned)state.stage;
        const unsigned to = smem.pipeline + (unsigned)state.stage * STAGE_BYTES;
        barrier_wait(smem.empty_barriers + 8u * (unsigned)state.stage, state.phase);
        barrier_arrive_expect_tx(full, bytes * rows * (unsigned)count);
#pragma unroll 1
        for (int i = 0; i < count; ++i) {
          const unsigned char* const from = a.w2 + ((long long)t.experts[first + i] * a.rows + tile * 8) * HIDDEN_BYTES;
          if (WHOLE_ROWS) {
            bulk_load(to + (unsigned)(i * 16 * HIDDEN_PITCH), from, bytes * rows, full, 0, policy);
          } else {
#pragma unroll 1
            for (unsigned row = 0; row < rows; ++row)
              bulk_load(to + row * HIDDEN_PITCH, from + (long long)row * HIDDEN_BYTES + slab * (HIDDEN_SLAB * 128),
                        bytes, full, 0, policy);
          }
        }
        next_stage(state, a.num_stages);
      }
    }
  }
}

// The producer warp: loads the block's share of w1, then of w2.
static __device__ __forceinline__ void load(const MoeDecodeArguments& a, const Shared& smem, const Tables& t) {
  if constexpr (config().strips) {
    load_strips(a, smem, t.count);
  } else {
    if (elect_one()) load_slabs(a, smem, t.count);
  }
}

// What is not yet written of the hidden layer: two NaNs that no result is rounded to.
enum : unsigned { NOT_WRITTEN = 0xffffffffu };

// A warp of each block. Blocks wait for the hidden layer itself, which each block clears where it will write: they may read it when all are known to have done that, which they are
// long before the end of the first product.
static __device__ __forceinline__ void clear_hidden(const MoeDecodeArguments& a, const Shared& smem, int entries) {
  const int lane = (int)threadIdx.x % 32;
  const Share units = share_of(entries * a.groups);
#pragma unroll 1
  for (int i = lane; i < (units.end - units.begin) * a.tokens; i += 32) {
    const int unit = units.begin + i / a.tokens;
    const int entry = unit / a.groups;
    const int feature = (unit - entry * a.groups) * UNIT_FEATURES;
    unsigned short* const to = a.hidden + ((long long)entry * a.tokens + i % a.tokens) * a.features + feature;
    *(uint4*)to = make_uint4(NOT_WRITTEN, NOT_WRITTEN, NOT_WRITTEN, NOT_WRITTEN);
    if (!GATED && feature + 8 < a.features)
      *(uint4*)(to + 8) = make_uint4(NOT_WRITTEN, NOT_WRITTEN, NOT_WRITTEN, NOT_WRITTEN);
  }
  __threadfence();
  __syncwarp();
  if (lane == 0) barrier_arrive(smem.cleared_barrier);
}

// By the same warp, before it clears.
static __device__ __forceinline__ void load_globals(const MoeDecodeArguments& a, const Shared& smem, int entries) {
  const Tables& t = *smem.tables;
#pragma unroll 1
  for (int i = (int)threadIdx.x % 32; i < entries; i += 32) {
    smem.globals[i] = __ldg(a.format.w_global + t.experts[i]);
    smem.globals[MAX_PAIRS + i] = __ldg(a.format2.w_global + t.experts[i]);
  }
}

// Element `at` of the block's of y, in tiles of 16 rows of w2 by all tokens.
struct OutputElement {
  int token, row;
  bool there;
};
static __device__ __forceinline__ OutputElement element_at(const MoeDecodeArguments& a, const Share& rows, int at) {
  const int group = rows.begin + at / 128 * 2 + at % 16 / 8;
  const OutputElement element = {at % 128 / 16, group * 8 + at % 8, true};
  return {element.token, element.row, element.token < a.tokens && group < rows.end && element.row < a.rows};
}

// The biases of the second product, of a token's experts together; by the warp that has nothing else to do then.
static __device__ __forceinline__ void add_biases(const MoeDecodeArguments& a, const Shared& smem, int entries) {
  const Tables& t = *smem.tables;
  const Share rows = share_of((a.rows + 7) / 8);
#pragma unroll 1
  for (int i = (int)threadIdx.x % 32; i < TILES * 128; i += 32) {
    const OutputElement element = element_at(a, rows, i);
    if (!element.there) continue;
    float sum = 0.0f;
#pragma unroll 1
    for (int entry = 0; entry < entries; ++entry)
      if (t.masks[entry] >> element.token & 1u)
        sum = fmaf(config().weighted ? 1.0f : t.weights[entry][element.token],
                   __ldg(a.bias2 + (long long)t.experts[entry] * a.rows + element.row), sum);
    smem.biases[i] = sum;
  }
  __syncwarp();
  if ((int)threadIdx.x % 32 == 0) barrier_arrive(smem.bias_barrier);
}
