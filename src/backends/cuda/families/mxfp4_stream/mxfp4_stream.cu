// One stage of a mixture of experts with few tokens for each, bf16 or fp16 x times weights of 4 bits, on Hopper. The weight is read as a stream: a block goes through
// slabs of one or a few strips of 16 rows that follow each other in memory, which one warp loads. Each other warp has a part of k and keeps its part of x in registers, so that
// shared memory holds nothing but the weight and sums; the warps of a team take turns to add those of a slab. A and B are swapped: A is the weight.
// Mxfp4StreamConfig is what the host compiles it for; GATED and ACTIVATION are of moe_activation.cuh.

#include "backends/cuda/device/convert.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/e2m1_strip.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/moe_sort.cuh"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_arguments.h"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"

using gemmtune::cuda::Mxfp4StreamArguments;
using gemmtune::cuda::WeightFormat;

static __device__ constexpr gemmtune::cuda::Mxfp4StreamConfig config() { return CONFIG; }
static __device__ constexpr Element group_scale_type() { return config().scale_type; }
static __device__ constexpr bool wide_atoms() { return config().wide; }

#include "backends/cuda/families/weight_strip.cuh"

enum : int {
  INTERLEAVED = config().stage == 1 && GATED,  // half of a slab's rows are of the gate, and the same of the up half
  ADDS_BIAS = config().bias && config().stage == 1,
  HAS_GLOBALS = config().weight == WeightFormat::nvfp4,
  TELLS_EXPERT = ADDS_BIAS || HAS_GLOBALS,
  TEAMS = config().teams,
  TEAM_WARPS = config().warps / TEAMS,
  STRIPS = config().strips,
  SLAB_ROWS = 16 * STRIPS,
  // Strip s of a slab is eight rows from 8 * s on, and eight as many rows further.
  SECOND_ROWS = 8 * STRIPS,
  SLAB_FEATURES = INTERLEAVED ? SECOND_ROWS : SLAB_ROWS,
  STRIPS_AT_ONCE = config().stage == 1 ? 1 : STRIPS,  // activations of several take registers
  THREADS = (config().warps + 1) * 32,
  GROUP_BYTES = 512,  // of 16 x 8 sums
  SUM_BYTES = config().groups * GROUP_BYTES,
  SETS = config().groups == 1 ? 2 : 1,  // of sums, so that an instruction need not wait for the one before it
  ALONE = TEAM_WARPS == 1,              // a warp has all of k: its sums go from registers to memory
  SLOT_BYTES = ALONE ? 0 : TEAM_WARPS * STRIPS * SUM_BYTES,
};
static_assert(TEAM_WARPS * TEAMS == config().warps, "teams of equal size");
static_assert(sizeof(output) == 2, "pairs are rounded at once");

// Addresses in shared memory.
struct SharedLayout {
  unsigned stages;  // a slab each, then its scales and zero points
  unsigned sums;    // of each warp of a team, num_slots slabs
  unsigned strips;  // num_slots Slabs
  unsigned full;    // barriers of the stages: loaded; read, its sums written
  unsigned done;
  unsigned added;  // of the slots
  unsigned begun;  // the first Slab of each team is there
};

// What the other warps know of a slab: from the warp that loads, in shared memory, then the rows of x of its tile if it begins a run.
struct Slab {
  int first;  // position
  int count;
  int slab;
  int begins;  // another tile than the team's slab before; with TELLS_EXPERT and 2 * expert
};
enum : int { ABOUT_BYTES = 16 + config().groups * 8 * 4 };

static __device__ __forceinline__ Slab read_slab(unsigned from) {
  const uint4 words = load_shared_words(from);
  return {(int)words.x, (int)words.y, (int)words.z, (int)words.w};
}
static __device__ __forceinline__ bool begins_run(const Slab& slab) {
  return (TELLS_EXPERT ? slab.begins & 1 : slab.begins) != 0;
}

// Tiles of tokens of one expert.
struct Routes {
  const int* pair_of;
  const MoeTile* tiles;      // of the kernel that sorted,
  const int* tiles_of;       // by expert; or
  const SortedTile* sorted;  // of the block
};

// Neighbouring slabs of one tile. All tiles of an expert compute `chunk` slabs, then the next ones, which are in L2 then.
struct Run {
  MoeTile tile;
  int slab;
  int count;
};

// Not through L1, which may hold what was there before the sort: stage 2 reads it before stage 1 has ended.
static __device__ __forceinline__ MoeTile load_tile(const Routes& routes, int index) {
  if constexpr (config().sort) return tile_of(routes.sorted[index]);
  const int4 bits = __ldcg((const int4*)(routes.tiles + index));
  return {bits.x, bits.y, bits.z, bits.w};
}

static __device__ __forceinline__ Run run_at(const Mxfp4StreamArguments& a, const Routes& routes, int index, int end) {
  Run run;
  const int any = index / a.slabs;
  const MoeTile one = load_tile(routes, any);
  const int tiles = config().sort ? routes.sorted[any].tiles : __ldcg(routes.tiles_of + one.expert);
  const int first = any - one.index;
  const int local = index - first * a.slabs;
  const int chunk = tiles > 1 ? a.chunk : a.slabs;
  const int before = local / (tiles * chunk) * chunk;
  const int size = a.slabs - before < chunk ? a.slabs - before : chunk;
  const int within = local - before * tiles;
  const int tile = within / size;
  run.tile = load_tile(routes, first + tile);
  run.slab = before + within - tile * size;
  run.count = before + size - run.slab;
  if (run.count > end - index) run.count = end - index;
  return run;
}

// Where a slab's rows, scales and zero points begin.
struct SlabSource {
  const unsigned char* rows;
  const unsigned char* scales;
  const unsigned char* zeros;
};
static __device__ __forceinline__ SlabSource source_of(const Mxfp4StreamArguments& a, const Run& run) {
  const long long row = run.slab * SLAB_FEATURES;
  SlabSource from = {};
  from.rows = a.w + run.tile.expert * a.w_matrix + row * a.row_bytes;
  from.scales = a.scales + run.tile.expert * a.scale_matrix + row * a.scale_row;
  if constexpr (config().zero_points)
    from.zeros = (const unsigned char*)a.format.zero_points + run.tile.expert * a.zero_matrix + row * a.zero_row;
  return from;
}

// Goes through the slabs from `index` to `end`.
struct Walk {
  Run run;
  int next;  // slab behind the run
  SlabSource from;
};
static __device__ __forceinline__ Walk walk_from(const Mxfp4StreamArguments& a, const Routes& routes, int index,
                                                 int end) {
  Walk walk;
  walk.run = run_at(a, routes, index, end);
  walk.next = index + walk.run.count;
  walk.from = source_of(a, walk.run);
  return walk;
}
// True if another run begins.
static __device__ __forceinline__ bool advance(const Mxfp4StreamArguments& a, const Routes& routes, Walk& walk,
                                               int end) {
  ++walk.run.slab;
  walk.from.rows += SLAB_FEATURES * a.row_bytes;
  walk.from.scales += SLAB_FEATURES * a.scale_row;
  if constexpr (config().zero_points) walk.from.zeros += SLAB_FEATURES * a.zero_row;
  if (--walk.run.count > 0 || walk.next >= end) return false;
  walk = walk_from(a, routes, walk.next, end);
  return true;
}

// ---- the warp that loads

// Loads a slab, its scales and its zero points; all lanes.
static __device__ __forceinline__ void load_slab(const Mxfp4StreamArguments& a, const SharedLayout& smem, int stage,
                                                 const Run& run, const SlabSource& from) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned full = smem.full + 8u * (unsigned)stage;
  const unsigned to = smem.stages + (unsigned)(stage * a.stage_bytes);
  const unsigned scales_to = to + (unsigned)(SLAB_ROWS * a.pitch);
  const int second = INTERLEAVED ? a.features : SECOND_ROWS;  // the second half of the rows, from the first
  if constexpr (config().bias) {
    // Of the gate and of the up half, or of both halves.
    if (lane < 2 * STRIPS) {
      const float* const bias = (const float*)a.bias + (long long)run.tile.expert * (INTERLEAVED ? 2 : 1) * a.features +
                                run.slab * SLAB_FEATURES + lane % STRIPS * 8 + lane / STRIPS * second;
      prefetch_sector(bias);
    }
  }
  copy_strip_rows<config().rows_apart, INTERLEAVED>(to, a.pitch, from.rows, a.row_bytes, second, SLAB_ROWS, 0, full,
                                                    0ull);
  copy_strip_rows<config().scales_apart, INTERLEAVED>(scales_to, a.scale_pitch, from.scales, a.scale_row, second,
                                                      SLAB_ROWS, 16, full, 0ull);
  if constexpr (config().zero_points)
    copy_strip_rows<config().zeros_apart, INTERLEAVED>(scales_to + (unsigned)(SLAB_ROWS * a.scale_pitch), a.zero_pitch,
                                                       from.zeros, a.zero_row, second, SLAB_ROWS, 8, full, 0ull);
}

// Tells the other warps of a slab, whose loads may have begun.
static __device__ __forceinline__ void tell_slab(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                 const Routes& routes, int stage, int slot, const Run& run,
                                                 bool begins) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned to = smem.strips + (unsigned)(slot * ABOUT_BYTES);
  if (begins) {
#pragma unroll
    for (int i = lane; i < config().groups * 8; i += 32) {
      int row = run.tile.first + (i < run.tile.count ? i : 0);
      if constexpr (config().stage == 1) row = routes.pair_of[row] / a.topk;
      store_shared_int(to + 16u + (unsigned)(i * 4), row);
    }
  }
  if (lane == 0)
    store_shared_ints(to, run.tile.first, run.tile.count, run.slab,
                      (TELLS_EXPERT ? 2 * run.tile.expert : 0) + (int)begins);
  __syncwarp();
  if (lane == 0) {
    int row_bytes = a.row_bytes + a.scale_row;
    if constexpr (config().zero_points) row_bytes += a.zero_row;
    barrier_arrive_expect_tx(smem.full + 8u * (unsigned)stage, (unsigned)(SLAB_ROWS * row_bytes));
  }
}

// Loads slabs as stages become free, and the sums of the slab that had the same slot were added.
static __device__ __forceinline__ void load_slabs(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                  const Routes& routes, int begin, int end) {
  Walk walk = walk_from(a, routes, begin, end);
  const int first_of_teams = (end - begin < TEAMS ? end : begin + TEAMS) - 1;
  int stage = 0;
  int slot = 0;
  unsigned phase = 1;
  unsigned slot_phase = 1;
  int beginning = TEAMS;  // teams that have not begun the run
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    barrier_wait(smem.done + 8u * (unsigned)stage, phase);
    if constexpr (!ALONE) barrier_wait(smem.added + 8u * (unsigned)slot, slot_phase);
    load_slab(a, smem, stage, walk.run, walk.from);
    tell_slab(a, smem, routes, stage, slot, walk.run, beginning > 0);
    if (i == first_of_teams && threadIdx.x % 32 == 0) barrier_arrive(smem.begun);
    --beginning;
    if (advance(a, routes, walk, end)) beginning = TEAMS;
    if (++slot == a.num_slots) {
      slot = 0;
      slot_phase ^= 1u;
    }
    if (++stage == a.num_stages) {
      stage = 0;
      phase ^= 1u;
    }
  }
}

// The first of `slabs` that block `block` has.
static __device__ __forceinline__ int first_slab(int slabs, unsigned block) {
  const unsigned share = (unsigned)slabs / gridDim.x;
  const unsigned rest = (unsigned)slabs % gridDim.x;
  return (int)(share * block + rest * block / gridDim.x);
}

// ---- the warps that multiply

static __device__ __forceinline__ void add_sums(float (&sum)[4], unsigned from) {
  float value[4];
  load_shared_floats(from, value);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] += value[i];
}

// What is added to the sums of the thread's rows of a strip.
typedef float StripBias[2];
static __device__ __forceinline__ void load_bias(StripBias& bias, const Mxfp4StreamArguments& a, const Slab& slab,
                                                 int strip) {
  const float* const from = (const float*)a.bias + (long long)(slab.begins / 2) * (INTERLEAVED ? 2 : 1) * a.features +
                            slab.slab * SLAB_FEATURES + strip * 8 + (int)threadIdx.x % 32 / 4;
  bias[0] = __ldg(from);
  bias[1] = __ldg(from + (INTERLEAVED ? a.features : SECOND_ROWS));
}
static __device__ __forceinline__ float factor_of(const Mxfp4StreamArguments& a, const Slab& slab) {
  if constexpr (HAS_GLOBALS) return __ldg(a.format.w_global + slab.begins / 2);
  return config().weight == WeightFormat::mxfp4 ? E2M1_UNIT * config().token_unit : 1.0f;
}
static __device__ __forceinline__ void store_rows(output* to, float first, float second) {
  const unsigned pair = round_pair(first, second);
  to[0] = (output)pair;
  to[SECOND_ROWS] = (output)(pair >> 16);
}

// Stores 16 x 8 sums: of eight rows of x the thread has two, of row lane / 4 of both halves of the strip.
static __device__ __forceinline__ void store_sums(const Mxfp4StreamArguments& a, const Routes& routes, const Slab& slab,
                                                  int strip, int group, const StripBias& bias, const float (&sum)[4]) {
  const int lane = (int)threadIdx.x % 32;
  const int row = slab.slab * SLAB_FEATURES + strip * 8 + lane / 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = group * 8 + lane % 4 * 2 + i;
    if (token >= slab.count) continue;
    output* const to = a.to + (slab.first + token) * a.to_row + row;
    if constexpr (config().stage == 1) {
      const float factor = a.weights ? a.weights[routes.pair_of[slab.first + token]] : 1.0f;
      float first = sum[i];
      float second = sum[2 + i];
      if constexpr (config().token_scales) {
        const float scale = a.x_scales[routes.pair_of[slab.first + token] / a.topk * a.x_scale_step];
        first *= scale;
        second *= scale;
      }
      if constexpr (ADDS_BIAS) {
        first += bias[0];
        second += bias[1];
      }
      first *= factor;
      second *= factor;
      if constexpr (GATED) {
        to[0] = (output)round_pair(activate(first, second), 0.0f);
      } else {
        store_rows(to, activate(first, 1.0f), activate(second, 1.0f));
      }
    } else {
      store_rows(to, sum[i], sum[2 + i]);
    }
  }
}

// Adds the warps' sums of a slab and stores them.
static __device__ __forceinline__ void finish_slab(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                   const Routes& routes, int slot, float factor,
                                                   const StripBias& first_bias) {
  const int lane = (int)threadIdx.x % 32;
  const Slab slab = read_slab(smem.strips + (unsigned)(slot * ABOUT_BYTES));
  const unsigned from = smem.sums + (unsigned)(slot * SLOT_BYTES + lane * 16);
#pragma unroll 1
  for (int group = 0; group * 8 < slab.count; ++group) {
#pragma unroll STRIPS_AT_ONCE
    for (int strip = 0; strip < STRIPS; ++strip) {
      StripBias bias = {first_bias[0], first_bias[1]};
      if constexpr (ADDS_BIAS && STRIPS > 1) load_bias(bias, a, slab, strip);
      float sum[2][4] = {};
#pragma unroll
      for (int warp = 0; warp < TEAM_WARPS; ++warp)
        add_sums(sum[warp % 2], from + (unsigned)(((warp * STRIPS + strip) * config().groups + group) * GROUP_BYTES));
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[0][i] = (sum[0][i] + sum[1][i]) * factor;
      store_sums(a, routes, slab, strip, group, bias, sum[0]);
    }
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(smem.added + 8u * (unsigned)slot);
}

// The thread's part of eight rows of x a group: of 64 of k 16 elements, in pairs as spread_word() makes them.
typedef unsigned OwnX[config().units][config().groups][8];

// A warp has units of k that follow each other; of NVFP4 and int4 one atom in TEAM_WARPS.
enum : int { UNITS_FOLLOW = config().weight == WeightFormat::mxfp4 };
static __device__ __forceinline__ int unit_at(int first_unit, int u) {
  return first_unit + (UNITS_FOLLOW ? u : u / UNITS_OF_ATOM * UNITS_OF_ATOM * TEAM_WARPS + u % UNITS_OF_ATOM);
}
// Where the thread's eight elements of a unit are behind its first ones, in vectors of as many.
static __device__ constexpr int vector_at(int u, int word) {
  return UNITS_FOLLOW   ? u * 8 + word
         : wide_atoms() ? u / 2 * 2 * TEAM_WARPS * 8 + u % 2 * 2 + word
                        : u * TEAM_WARPS * 8 + word * (TWO_GROUPS ? 4 : 1);
}

static __device__ __forceinline__ void load_x(OwnX& x, const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                              int slot, int first_unit) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned at = smem.strips + (unsigned)(slot * ABOUT_BYTES);
  const int count = read_slab(at).count;
#pragma unroll
  for (int group = 0; group < config().groups; ++group) {
    const int token = group * 8 + lane / 4;
    const bool there = token < count;
    int row;
    row = load_shared_int(at + 16u + (unsigned)(token * 4));
    const uint4* const from = (const uint4*)(a.x + (long long)row * a.x_row) + first_unit * 8 +
                              lane % 4 * (TWO_GROUPS ? 1 : 2 * UNITS_OF_ATOM);
#pragma unroll
    for (int u = 0; u < config().units; ++u) {
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        uint4 bits = make_uint4(0, 0, 0, 0);
        if (there && (!config().tail || unit_at(first_unit, u) < a.units)) bits = __ldcg(from + vector_at(u, word));
        pair_x(x[u][group], word, bits);
      }
    }
  }
}

// The sums of a warp's part of a strip, which are 0 before. USED: groups that have rows.
typedef float WarpSums[config().groups][4];

typedef unsigned OwnScales[config().units][2];
typedef float Sums[SETS][config().groups][4];

// `from`: the thread's first eight bytes of its first row. LARGE: a scale of the warp is above 2.
template <bool LARGE, int USED>
static __device__ __forceinline__ void multiply_units(Sums& d, const OwnX& x, const OwnScales& scales, unsigned from,
                                                      unsigned second) {
#pragma unroll
  for (int u = 0; u < config().units; ++u) {
    OwnWords words;
    load_words<false>(words, from + (unsigned)(u * 32), second);
    multiply_unit<LARGE, false, USED>(d, x[u], scales[u], words);
  }
}

// Where the thread's part of a slab's first strip begins: of its first row, and of that row's scales.
struct OwnPart {
  unsigned rows;
  unsigned scales;
};

static __device__ __forceinline__ void multiply_mxfp4(WarpSums& sums, const Mxfp4StreamArguments& a, const OwnX& x,
                                                      const OwnPart& part, unsigned base, int strip, int count,
                                                      int first_unit) {
  const unsigned own = base + part.rows + (unsigned)(strip * 8 * a.pitch);
  const unsigned own_scales = base + part.scales + (unsigned)(strip * 8 * a.scale_pitch);
  OwnScales scales;
  unsigned all = 0;
#pragma unroll
  for (int j = 0; j < config().units * 2; ++j) {
    unsigned& e = scales[j / 2][j % 2];
    e = load_shared_byte(own_scales + (unsigned)(j % 2 * SECOND_ROWS * a.scale_pitch + j / 2 * 2));
    if (config().tail && first_unit + j / 2 >= a.units) e = 0;  // what is there is no scale; x is zero
    all |= e;
  }
  Sums d = {};
  if (__any_sync(0xffffffffu, (all & 0x80u) != 0u)) {
    multiply_units<true, config().groups>(d, x, scales, own, (unsigned)(SECOND_ROWS * a.pitch));
  } else if (config().groups > 1 && count <= 8) {
    multiply_units<false, 1>(d, x, scales, own, (unsigned)(SECOND_ROWS * a.pitch));
  } else {
    multiply_units<false, config().groups>(d, x, scales, own, (unsigned)(SECOND_ROWS * a.pitch));
  }
#pragma unroll
  for (int i = 0; i < config().groups * 4; ++i)
    sums[i / 4][i % 4] = SETS > 1 ? d[0][i / 4][i % 4] + d[SETS - 1][i / 4][i % 4] : d[0][i / 4][i % 4];
}

static __device__ __forceinline__ void multiply_strip(WarpSums& sums, const Mxfp4StreamArguments& a, const OwnX& x,
                                                      const OwnPart& part, unsigned base, int strip, int count,
                                                      int first_unit) {
  if constexpr (config().weight == WeightFormat::mxfp4) {
    multiply_mxfp4(sums, a, x, part, base, strip, count, first_unit);
  } else {
    WeightStrip at;
    at.pitch = a.pitch;
    at.scale_pitch = a.scale_pitch;
    at.zero_pitch = a.zero_pitch;
    at.rows = base + (unsigned)(strip * 8 * a.pitch);
    at.scales = base + (unsigned)(SLAB_ROWS * a.pitch + strip * 8 * a.scale_pitch);
    at.zeros = base + (unsigned)(SLAB_ROWS * (a.pitch + a.scale_pitch) + strip * 8 * a.zero_pitch);
    constexpr int atoms = config().all_units / UNITS_OF_ATOM;
    const int first = first_unit / UNITS_OF_ATOM;
    if (config().groups > 1 && count <= 8) {
      multiply_formats<false, SECOND_ROWS, atoms, TEAM_WARPS, 1>(sums, x, at, first);
    } else {
      multiply_formats<false, SECOND_ROWS, atoms, TEAM_WARPS, config().groups>(sums, x, at, first);
    }
  }
}

static __device__ __forceinline__ void multiply_slabs(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                      const Routes& routes, int begin, int end) {
  const int team = TEAMS > 1 ? (int)threadIdx.x / 32 % TEAMS : 0;
  const int warp = (int)threadIdx.x / 32 / TEAMS;
  const int lane = (int)threadIdx.x % 32;
  const int first_unit = warp * (UNITS_FOLLOW ? config().units : UNITS_OF_ATOM);
  const OwnPart part = {(unsigned)(lane / 4 * a.pitch + first_unit * 32 + lane % 4 * 8),
                        (unsigned)(SLAB_ROWS * a.pitch + lane / 4 * a.scale_pitch + first_unit * 2 + lane % 4 / 2)};
  OwnX x;
  int stage = team;
  int slot = team;
  const int first = begin + team;
  int turn = warp + 1;  // slabs until this warp adds the sums of the team's one before
  unsigned phase = 0;
#pragma unroll 1
  for (int i = first; i < (ALONE ? end : end + TEAMS); i += TEAMS) {
    if (i < end) {
      const unsigned base = smem.stages + (unsigned)(stage * a.stage_bytes);
      const unsigned full = smem.full + 8u * (unsigned)stage;
      // The first rows of x are loaded beside the first slab.
      barrier_wait(i == first ? smem.begun : full, phase);
      const Slab slab = read_slab(smem.strips + (unsigned)(slot * ABOUT_BYTES));
      if (begins_run(slab)) load_x(x, a, smem, slot, first_unit);
      const float factor = ALONE ? factor_of(a, slab) : 1.0f;
      if (i == first) barrier_wait(full, phase);
#pragma unroll 1
      for (int strip = 0; strip < STRIPS; ++strip) {
        WarpSums d = {};
        StripBias bias = {};
        if constexpr (ALONE && ADDS_BIAS) load_bias(bias, a, slab, strip);
        multiply_strip(d, a, x, part, base, strip, slab.count, first_unit);
#pragma unroll
        for (int group = 0; group < config().groups; ++group) {
          if (group > 0 && group * 8 >= slab.count) continue;
          if constexpr (ALONE) {
#pragma unroll
            for (int e = 0; e < 4; ++e) d[group][e] *= factor;
            store_sums(a, routes, slab, strip, group, bias, d[group]);
            continue;
          }
          store_shared_floats(
              smem.sums + (unsigned)(slot * SLOT_BYTES +
                                     ((warp * STRIPS + strip) * config().groups + group) * GROUP_BYTES + lane * 16),
              d[group][0], d[group][1], d[group][2], d[group][3]);
        }
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(smem.done + 8u * (unsigned)stage);
    }
    if (!ALONE && turn-- == 0) {
      turn = TEAM_WARPS - 1;
      const int before = slot - TEAMS + (slot < TEAMS ? a.num_slots : 0);
      // Before the wait: they come from memory.
      Slab slab = {};
      if constexpr (TELLS_EXPERT) slab = read_slab(smem.strips + (unsigned)(before * ABOUT_BYTES));
      const float factor = factor_of(a, slab);
      StripBias bias = {};
      if constexpr (ADDS_BIAS && STRIPS == 1) load_bias(bias, a, slab, 0);
      barrier_wait(smem.done + 8u * (unsigned)(stage - TEAMS + (stage < TEAMS ? a.num_stages : 0)),
                   stage < TEAMS ? phase ^ 1u : phase);
      finish_slab(a, smem, routes, before, factor, bias);
    }
    slot += TEAMS;
    if (slot >= a.num_slots) slot -= a.num_slots;
    stage += TEAMS;
    if (stage >= a.num_stages) {
      stage -= a.num_stages;
      phase ^= 1u;
    }
  }
}

extern "C" __global__ void __launch_bounds__(THREADS, config().blocks)
    mxfp4_stream(const __grid_constant__ Mxfp4StreamArguments a) {
  extern __shared__ unsigned char memory[];
  SharedLayout smem;
  smem.stages = (shared_address(memory) + 127u) & ~127u;
  smem.sums = smem.stages + (unsigned)(a.num_stages * a.stage_bytes);
  smem.strips = smem.sums + (unsigned)(a.num_slots * SLOT_BYTES);
  smem.full = smem.strips + (unsigned)(a.num_slots * ABOUT_BYTES);
  smem.done = smem.full + 8u * (unsigned)a.num_stages;
  smem.added = smem.done + 8u * (unsigned)a.num_stages;
  smem.begun = smem.added + 8u * (unsigned)a.num_slots;
  // A barrier or two by each thread, not all by one.
  for (int i = (int)threadIdx.x; i < a.num_stages; i += THREADS) {
    barrier_init(smem.full + 8u * (unsigned)i, 1);
    barrier_init(smem.done + 8u * (unsigned)i, TEAM_WARPS);
  }
  for (int i = (int)threadIdx.x; i < a.num_slots; i += THREADS) barrier_init(smem.added + 8u * (unsigned)i, 1);
  if (threadIdx.x == 0) barrier_init(smem.begun, 1);
  fence_barrier_init();
  __syncthreads();
  // Operands and the tiles are of the kernels before this one.
  if constexpr (config().stage == 1) grid_dependency_wait();
  // After the wait: what starts from here on, stage 2, finds the tiles in memory, and the weight that it loads early.
  launch_dependents();
  int tile_count;
  Routes routes;
  if constexpr (config().sort) {
    __shared__ Sorted sorted;
    // In the stages, which hold nothing yet.
    unsigned* const scratch = (unsigned*)(memory + (smem.stages - shared_address(memory)));
    tile_count = sort_pairs<config().groups * 8>(a.ids, a.pairs, a.experts, config().stage == 1 ? a.position_of : 0,
                                                 sorted, scratch);
    routes = {sorted.pair_of, 0, 0, sorted.tiles};
  } else {
    tile_count = __ldcg(a.tile_count);
    routes = {a.pair_of, a.tiles, a.tiles_of, 0};
  }
  const int begin = first_slab(tile_count * a.slabs, blockIdx.x);
  const int end = first_slab(tile_count * a.slabs, blockIdx.x + 1);
  if (begin < end) {
    if (threadIdx.x / 32 == config().warps) {
      load_slabs(a, smem, routes, begin, end);
    } else {
      if constexpr (config().stage == 2) grid_dependency_wait();
      multiply_slabs(a, smem, routes, begin, end);
    }
  }
}
