// One stage of a mixture of experts with few tokens for each, bf16 x times MXFP4 weights, on Hopper. The weight is read as a stream: a block goes through
// strips of 16 rows that follow each other in memory, which one warp loads. Each other warp has a part of k and keeps its part of x in registers, so that shared memory
// holds nothing but the weight and sums; the warps take turns to add those of a strip. A and B are swapped: A is the weight.
// Mxfp4StreamConfig is what the host compiles it for; GATED and ACTIVATION are of moe_activation.cuh.

#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/e2m1_strip.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_arguments.h"
#include "backends/gpu/device/numbers.cuh"
#include "backends/gpu/moe/moe_activation.cuh"
#include "backends/gpu/moe/moe_route_arguments.h"
#include "backends/gpu/moe/moe_sort.cuh"

using gemmtune::cuda::Mxfp4StreamArguments;

static __device__ constexpr gemmtune::cuda::Mxfp4StreamConfig config() { return CONFIG; }

enum : int {
  INTERLEAVED = config().stage == 1 && GATED,  // a strip is of 8 rows of the gate and the same 8 of the up half
  ADDS_BIAS = config().bias && config().stage == 1,
  THREADS = (config().warps + 1) * 32,
  GROUP_BYTES = 512,  // of 16 x 8 sums
  SUM_BYTES = config().groups * GROUP_BYTES,
  SETS = config().groups == 1 ? 2 : 1,  // of sums, so that an instruction need not wait for the one before it
};

// Addresses in shared memory.
struct SharedLayout {
  unsigned stages;  // a strip each, then its scales
  unsigned sums;    // of each warp, num_slots strips
  unsigned strips;  // num_slots Strips
  unsigned full;    // barriers of the stages: loaded; read, its sums written
  unsigned done;
  unsigned added;  // of the slots
  unsigned begun;  // the first Strip is there
};

// What the other warps know of a strip: from the warp that loads, in shared memory, then the rows of x of its tile if it begins a run.
struct Strip {
  int first;  // position
  int count;
  int strip;
  int begins;  // another tile than the strip before; with ADDS_BIAS and 2 * expert
};
enum : int { STRIP_BYTES = 16 + config().groups * 8 * 4 };

static __device__ __forceinline__ Strip read_strip(unsigned from) {
  const uint4 words = load_shared_words(from);
  return {(int)words.x, (int)words.y, (int)words.z, (int)words.w};
}
static __device__ __forceinline__ bool begins_run(const Strip& strip) {
  return (ADDS_BIAS ? strip.begins & 1 : strip.begins) != 0;
}

// Tiles of tokens of one expert.
struct Routes {
  const int* pair_of;
  const MoeTile* tiles;
  const int* tiles_of;  // by expert; with SORT by tile
};

// Neighbouring strips of one tile. All tiles of an expert compute `chunk` strips, then the next ones, which are in L2 then.
struct Run {
  MoeTile tile;
  int strip;
  int count;
};

// Not through L1, which may hold what was there before the sort: stage 2 reads it before stage 1 has ended.
static __device__ __forceinline__ MoeTile load_tile(const MoeTile* from) {
  if (config().sort) return *from;
  const int4 bits = __ldcg((const int4*)from);
  return {bits.x, bits.y, bits.z, bits.w};
}

static __device__ __forceinline__ Run run_at(const Mxfp4StreamArguments& a, const Routes& routes, int index, int end) {
  Run run;
  const int any = index / a.strips;
  const MoeTile one = load_tile(routes.tiles + any);
  const int tiles = config().sort ? routes.tiles_of[any] : __ldcg(routes.tiles_of + one.expert);
  const int first = any - one.index;
  const int local = index - first * a.strips;
  const int chunk = tiles > 1 ? a.chunk : a.strips;
  const int before = local / (tiles * chunk) * chunk;
  const int size = a.strips - before < chunk ? a.strips - before : chunk;
  const int within = local - before * tiles;
  const int tile = within / size;
  run.tile = load_tile(routes.tiles + first + tile);
  run.strip = before + within - tile * size;
  run.count = before + size - run.strip;
  if (run.count > end - index) run.count = end - index;
  return run;
}

// Goes through the strips from `index` to `end`.
struct Walk {
  Run run;
  int next;  // strip behind the run
};
static __device__ __forceinline__ Walk walk_from(const Mxfp4StreamArguments& a, const Routes& routes, int index,
                                                 int end) {
  Walk walk;
  walk.run = run_at(a, routes, index, end);
  walk.next = index + walk.run.count;
  return walk;
}
// True if another run begins.
static __device__ __forceinline__ bool advance(const Mxfp4StreamArguments& a, const Routes& routes, Walk& walk,
                                               int end) {
  ++walk.run.strip;
  if (--walk.run.count > 0 || walk.next >= end) return false;
  walk = walk_from(a, routes, walk.next, end);
  return true;
}

// ---- the warp that loads

// Loads a strip and its scales; all lanes.
static __device__ __forceinline__ void load_strip(const Mxfp4StreamArguments& a, const SharedLayout& smem, int stage,
                                                  const Run& run) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned full = smem.full + 8u * (unsigned)stage;
  const unsigned to = smem.stages + (unsigned)(stage * a.stage_bytes);
  const unsigned scales_to = to + 16u * (unsigned)a.pitch;
  const int row = run.strip * (INTERLEAVED ? 8 : 16);
  const int second = INTERLEAVED ? a.features : 8;  // the second eight rows, from the first
  const unsigned char* const w = a.w + run.tile.expert * a.w_matrix + (long long)row * a.row_bytes;
  const unsigned char* const scales = a.scales + run.tile.expert * a.scale_matrix + (long long)row * a.scale_row;
  if constexpr (config().bias) {
    // Of the gate and of the up half, or of eight rows each.
    if (lane < 2) {
      const float* const bias =
          (const float*)a.bias + (long long)run.tile.expert * (INTERLEAVED ? 2 : 1) * a.features + row + lane * second;
      prefetch_sector(bias);
    }
  }
  copy_strip_rows<config().rows_apart, INTERLEAVED>(to, a.pitch, w, a.row_bytes, second, 16, 0, full, 0ull);
  copy_strip_rows<config().scales_apart, INTERLEAVED>(scales_to, a.scale_pitch, scales, a.scale_row, second, 16, 16,
                                                      full, 0ull);
}

// Tells the other warps of a strip, whose loads may have begun.
static __device__ __forceinline__ void tell_strip(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                  const Routes& routes, int stage, int slot, const Run& run,
                                                  bool begins) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned to = smem.strips + (unsigned)(slot * STRIP_BYTES);
  if (begins) {
#pragma unroll
    for (int i = lane; i < config().groups * 8; i += 32) {
      int row = run.tile.first + (i < run.tile.count ? i : 0);
      if constexpr (config().stage == 1) row = routes.pair_of[row] / a.topk;
      store_shared_int(to + 16u + (unsigned)(i * 4), row);
    }
  }
  if (lane == 0)
    store_shared_ints(to, run.tile.first, run.tile.count, run.strip,
                      (ADDS_BIAS ? 2 * run.tile.expert : 0) + (int)begins);
  __syncwarp();
  if (lane == 0)
    barrier_arrive_expect_tx(smem.full + 8u * (unsigned)stage, 16u * (unsigned)(a.row_bytes + a.scale_row));
}

// Loads strips as stages become free, and the sums of the strip that had the same slot were added.
static __device__ __forceinline__ void load_strips(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                   const Routes& routes, int begin, int end) {
  Walk walk = walk_from(a, routes, begin, end);
  int stage = 0;
  int slot = 0;
  unsigned phase = 1;
  unsigned slot_phase = 1;
  bool begins = true;
#pragma unroll 1
  for (int i = begin; i < end; ++i) {
    barrier_wait(smem.done + 8u * (unsigned)stage, phase);
    barrier_wait(smem.added + 8u * (unsigned)slot, slot_phase);
    load_strip(a, smem, stage, walk.run);
    tell_strip(a, smem, routes, stage, slot, walk.run, begins);
    if (i == begin && threadIdx.x % 32 == 0) barrier_arrive(smem.begun);
    begins = advance(a, routes, walk, end);
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

// ---- the warps that multiply

static __device__ __forceinline__ void add_sums(float (&sum)[4], unsigned from) {
  float value[4];
  load_shared_floats(from, value);
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[i] += value[i];
}

// What is added to the sums of the thread's rows of a strip.
struct StripBias {
  float of[2];
};
static __device__ __forceinline__ StripBias load_bias(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                      int slot) {
  StripBias bias;
  const Strip strip = read_strip(smem.strips + (unsigned)(slot * STRIP_BYTES));
  const float* const from = (const float*)a.bias + (long long)(strip.begins / 2) * (INTERLEAVED ? 2 : 1) * a.features +
                            strip.strip * (INTERLEAVED ? 8 : 16) + (int)threadIdx.x % 32 / 4;
  bias.of[0] = __ldg(from);
  bias.of[1] = __ldg(from + (INTERLEAVED ? a.features : 8));
  return bias;
}

// Stores 16 x 8 sums: of eight rows of x the thread has two, of rows lane / 4 and that plus 8 of the strip.
static __device__ __forceinline__ void store_sums(const Mxfp4StreamArguments& a, const Routes& routes,
                                                  const Strip& strip, int group, const StripBias& bias,
                                                  const float (&sum)[4]) {
  const int lane = (int)threadIdx.x % 32;
  const int row = strip.strip * (INTERLEAVED ? 8 : 16) + lane / 4;
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const int token = group * 8 + lane % 4 * 2 + i;
    if (token >= strip.count) continue;
    output* const to = a.to + (strip.first + token) * a.to_row + row;
    if constexpr (config().stage == 1) {
      const float factor = a.weights ? a.weights[routes.pair_of[strip.first + token]] : 1.0f;
      float first = sum[i];
      float second = sum[2 + i];
      if constexpr (config().token_scales) {
        const float scale = a.x_scales[routes.pair_of[strip.first + token] / a.topk * a.x_scale_step];
        first *= scale;
        second *= scale;
      }
      if constexpr (ADDS_BIAS) {
        first += bias.of[0];
        second += bias.of[1];
      }
      first *= factor;
      second *= factor;
      if constexpr (GATED) {
        to[0] = round_output(activate(first, second));
      } else {
        to[0] = round_output(activate(first, 1.0f));
        to[8] = round_output(activate(second, 1.0f));
      }
    } else {
      to[0] = round_output(sum[i]);
      to[8] = round_output(sum[2 + i]);
    }
  }
}

// Adds the warps' sums of a strip and stores them.
static __device__ __forceinline__ void finish_strip(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                    const Routes& routes, int slot, const StripBias& bias) {
  const int lane = (int)threadIdx.x % 32;
  const Strip strip = read_strip(smem.strips + (unsigned)(slot * STRIP_BYTES));
  const unsigned from = smem.sums + (unsigned)(slot * config().warps * SUM_BYTES + lane * 16);
#pragma unroll 1
  for (int group = 0; group * 8 < strip.count; ++group) {
    float sum[2][4] = {};
#pragma unroll
    for (int warp = 0; warp < config().warps; ++warp)
      add_sums(sum[warp % 2], from + (unsigned)((warp * config().groups + group) * GROUP_BYTES));
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[0][i] = (sum[0][i] + sum[1][i]) * (E2M1_UNIT * config().token_unit);
    store_sums(a, routes, strip, group, bias, sum[0]);
  }
  __syncwarp();
  if (lane == 0) barrier_arrive(smem.added + 8u * (unsigned)slot);
}

// The thread's part of eight rows of x a group: of 64 of k the 16 elements from lane % 4 * 16 on, in pairs as spread_word() makes them.
typedef unsigned OwnX[config().units][config().groups][8];

static __device__ __forceinline__ void load_x(OwnX& x, const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                              int slot, int first_unit) {
  const int lane = (int)threadIdx.x % 32;
  const unsigned at = smem.strips + (unsigned)(slot * STRIP_BYTES);
  const int count = read_strip(at).count;
#pragma unroll
  for (int group = 0; group < config().groups; ++group) {
    const int token = group * 8 + lane / 4;
    const bool there = token < count;
    int row;
    row = load_shared_int(at + 16u + (unsigned)(token * 4));
    const uint4* const from = (const uint4*)(a.x + (long long)row * a.x_row) + first_unit * 8 + lane % 4 * 2;
#pragma unroll
    for (int u = 0; u < config().units; ++u) {
#pragma unroll
      for (int word = 0; word < 2; ++word) {
        uint4 bits = make_uint4(0, 0, 0, 0);
        if (there && (!config().tail || first_unit + u < a.units)) bits = __ldcg(from + u * 8 + word);
        pair_x(x[u][group], word, bits);
      }
    }
  }
}

typedef unsigned OwnScales[config().units][2];
typedef float Sums[SETS][config().groups][4];

// `from`: the thread's first eight bytes of its first row. LARGE: a scale of the warp is above 2. USED: groups that have rows.
template <bool LARGE, int USED>
static __device__ __forceinline__ void multiply_strip(Sums& d, const OwnX& x, const OwnScales& scales, unsigned from,
                                                      unsigned second) {
#pragma unroll
  for (int u = 0; u < config().units; ++u) {
    OwnWords words;
    load_words<false>(words, from + (unsigned)(u * 32), second);
    multiply_unit<LARGE, false, USED>(d, x[u], scales[u], words);
  }
}

static __device__ __forceinline__ void multiply_strips(const Mxfp4StreamArguments& a, const SharedLayout& smem,
                                                       const Routes& routes, int begin, int end) {
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  const int first_unit = warp * config().units;
  const unsigned own = (unsigned)(lane / 4 * a.pitch + first_unit * 32 + lane % 4 * 8);
  const unsigned own_scales = (unsigned)(16 * a.pitch + lane / 4 * a.scale_pitch + first_unit * 2 + lane % 4 / 2);
  OwnX x;
  int stage = 0;
  int slot = 0;
  int turn = warp + 1;  // strips until this warp adds the sums of the one before
  unsigned phase = 0;
#pragma unroll 1
  for (int i = begin; i <= end; ++i) {
    if (i < end) {
      const unsigned base = smem.stages + (unsigned)(stage * a.stage_bytes);
      const unsigned full = smem.full + 8u * (unsigned)stage;
      // The first rows of x are loaded beside the first strip.
      barrier_wait(i == begin ? smem.begun : full, phase);
      const Strip strip = read_strip(smem.strips + (unsigned)(slot * STRIP_BYTES));
      if (begins_run(strip)) load_x(x, a, smem, slot, first_unit);
      if (i == begin) barrier_wait(full, phase);
      OwnScales scales;
      unsigned all = 0;
#pragma unroll
      for (int j = 0; j < config().units * 2; ++j) {
        unsigned& e = scales[j / 2][j % 2];
        e = load_shared_byte(base + own_scales + (unsigned)(j % 2 * 8 * a.scale_pitch + j / 2 * 2));
        if (config().tail && first_unit + j / 2 >= a.units) e = 0;  // what is there is no scale; x is zero
        all |= e;
      }
      Sums d = {};
      if (__any_sync(0xffffffffu, (all & 0x80u) != 0u)) {
        multiply_strip<true, config().groups>(d, x, scales, base + own, 8u * (unsigned)a.pitch);
      } else if (config().groups > 1 && strip.count <= 8) {
        multiply_strip<false, 1>(d, x, scales, base + own, 8u * (unsigned)a.pitch);
      } else {
        multiply_strip<false, config().groups>(d, x, scales, base + own, 8u * (unsigned)a.pitch);
      }
#pragma unroll
      for (int group = 0; group < config().groups; ++group) {
        if (group > 0 && group * 8 >= strip.count) continue;
        float(&sum)[4] = d[0][group];
#pragma unroll
        for (int j = 0; j < 4 && SETS > 1; ++j) sum[j] += d[SETS - 1][group][j];
        store_shared_floats(smem.sums + (unsigned)(slot * config().warps * SUM_BYTES +
                                                   (warp * config().groups + group) * GROUP_BYTES + lane * 16),
                            sum[0], sum[1], sum[2], sum[3]);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(smem.done + 8u * (unsigned)stage);
    }
    if (turn-- == 0) {
      turn = config().warps - 1;
      StripBias bias = {};
      if constexpr (ADDS_BIAS) bias = load_bias(a, smem, (slot > 0 ? slot : a.num_slots) - 1);
      barrier_wait(smem.done + 8u * (unsigned)((stage > 0 ? stage : a.num_stages) - 1), stage > 0 ? phase : phase ^ 1u);
      finish_strip(a, smem, routes, (slot > 0 ? slot : a.num_slots) - 1, bias);
    }
    if (++slot == a.num_slots) slot = 0;
    if (++stage == a.num_stages) {
      stage = 0;
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
  smem.strips = smem.sums + (unsigned)(a.num_slots * config().warps * SUM_BYTES);
  smem.full = smem.strips + (unsigned)(a.num_slots * STRIP_BYTES);
  smem.done = smem.full + 8u * (unsigned)a.num_stages;
  smem.added = smem.done + 8u * (unsigned)a.num_stages;
  smem.begun = smem.added + 8u * (unsigned)a.num_slots;
  if (threadIdx.x == 0) {
    for (int i = 0; i < a.num_stages; ++i) {
      barrier_init(smem.full + 8u * (unsigned)i, 1);
      barrier_init(smem.done + 8u * (unsigned)i, config().warps);
    }
    for (int i = 0; i < a.num_slots; ++i) barrier_init(smem.added + 8u * (unsigned)i, 1);
    barrier_init(smem.begun, 1);
    fence_barrier_init();
  }
  __syncthreads();
  // Operands and the tiles are of the kernels before this one.
  if constexpr (config().stage == 1) grid_dependency_wait();
  // After the wait: what starts from here on, stage 2, finds the tiles in memory, and the weight that it loads early.
  launch_dependents();
  int tile_count;
  Routes routes;
  if constexpr (config().sort) {
    __shared__ Sorted sorted;
    tile_count =
        sort_pairs<config().groups * 8>(a.ids, a.pairs, a.experts, config().stage == 1 ? a.position_of : 0, sorted);
    routes = {sorted.pair_of, sorted.tiles, sorted.tiles_of};
  } else {
    tile_count = __ldcg(a.tile_count);
    routes = {a.pair_of, a.tiles, a.tiles_of};
  }
  const long long strips = (long long)tile_count * a.strips;
  const int begin = (int)(strips * blockIdx.x / gridDim.x);
  const int end = (int)(strips * (blockIdx.x + 1) / gridDim.x);
  if (begin < end) {
    if (threadIdx.x / 32 == config().warps) {
      load_strips(a, smem, routes, begin, end);
    } else {
      if constexpr (config().stage == 2) grid_dependency_wait();
      multiply_strips(a, smem, routes, begin, end);
    }
  }
}
