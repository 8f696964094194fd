// Few rows of bf16 or MXFP4 x times an MXFP4 weight on Hopper. The weight is read as a stream: a block, or a cluster whose blocks divide k, goes through neighbouring strips of 16
// rows. The warps of a block divide its k and keep their part of x in registers. Each warp has a pipeline of its own: a lane copies 16 bytes of a piece (16 rows x 64 of
// k) to shared memory by cp.async, with a packed weight those that it decodes itself, so that no warp waits for another one before sums are added. The warps take turns
// at that. A and B are swapped: A is the weight.
//
// The host defines: WARPS, UNITS (of 64 of k, of a warp), TAIL (1: some warp has fewer), GROUPS (of eight rows of x), PIECES (in the pipeline: a divisor of UNITS, or whole strips), SPLIT (1: a cluster
// divides k), X_FP4 (1: x is MXFP4 too), PACKED (1: the weight has the layout fragment64), SCALE_BYTES (of a row, that a load takes), L2_HINTS, ELEMENT, OUTPUT.

#include "backends/cuda/device/cluster.cuh"
#include "backends/cuda/device/copy.cuh"
#include "backends/cuda/device/dependent_launch.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_arguments.h"
#include "backends/gpu/device/numbers.cuh"

using gemmtune::cuda::Mxfp4SkinnyArguments;

#define PIECE_BYTES 512
#define GROUP_BYTES 512  // of 16 x 8 sums
#define SUM_BYTES (GROUPS * GROUP_BYTES)
#define SETS (GROUPS <= 2 ? 2 : 1)  // of sums, so that an instruction need not wait for the one before it
#define SLOTS 4                     // strips whose sums are not added yet
#define STRIPS_AHEAD \
  (PIECES < UNITS ? 1 : PIECES / UNITS)  // between a piece and the one that is copied over it, or none
#define STRIP_ROWS 16
#define X_GROUP_BYTES 1024  // of eight rows of x, 64 of k: a swizzle atom
#define X_UNIT_BYTES (GROUPS * X_GROUP_BYTES)
// Of a warp: sums, and before those its part of x.
#define X_BYTES (X_FP4 ? X_CHUNKS * 16 : UNITS * X_UNIT_BYTES)
#define X_CHUNKS (GROUPS * 8 * UNITS * 2)  // of MXFP4 elements, 16 bytes each
#define WARP_BYTES (X_BYTES > SLOTS * SUM_BYTES ? X_BYTES : SLOTS * SUM_BYTES)

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
    return !TAIL || first + u < a.units;
  }
};

// ---- the weight

// The lane's 16 bytes of the warp's first piece of a strip.
static __device__ __forceinline__ const unsigned char* own_weight(const Mxfp4SkinnyArguments& a, const OwnK& k,
                                                                  int strip) {
  const int lane = (int)threadIdx.x % 32;
#if PACKED
  return a.w + ((long long)(strip / 4) * a.units + k.first) * (4 * PIECE_BYTES) + strip % 4 * PIECE_BYTES + lane * 16;
#else
  return a.w + ((long long)strip * STRIP_ROWS + lane / 2) * a.units * 32 + k.first * 32 + lane % 2 * 16;
#endif
}
#define NEXT_UNIT (PACKED ? 4 * PIECE_BYTES : 32)  // bytes from a piece to that of the next unit

// Waits for the oldest piece of the pipeline.
static __device__ __forceinline__ void wait_for_piece() {
  wait_for_copies<PIECES - 1>();
  if (!PACKED) __syncwarp();  // other lanes copied a part of what this one reads
}

// Prefetches the beginning of the warp's first strip into L2, and of the block's scales. This is no read: later writes by the previous kernel remain visible to loads.
static __device__ __forceinline__ void prefetch_weight(const Mxfp4SkinnyArguments& a, const OwnK& k, int strip) {
  const int lane = (int)threadIdx.x % 32;
#if PACKED
  const int unit = lane / 4;  // of 128 bytes each
  const unsigned char* const from = own_weight(a, k, strip) - lane * 16 + unit * NEXT_UNIT + lane % 4 * 128;
#else
  const int unit = lane % 2 * 4;  // 128 bytes of a row
  const unsigned char* const from = own_weight(a, k, strip) - lane % 2 * 16 + unit * NEXT_UNIT;
#endif
  if (unit < a.prefetch_units && k.has(a, unit)) prefetch_sector(from);
}
static __device__ __forceinline__ void prefetch_scales(const Mxfp4SkinnyArguments& a, int first_unit, int begin,
                                                       int end, unsigned long long policy) {
#if SPLIT
  const int first = first_unit * 2;
  const int last = first + WARPS * UNITS * 2 < a.scale_columns ? first + WARPS * UNITS * 2 : a.scale_columns;
  const int sectors = (last - first + 31) / 32;
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < (end - begin) * STRIP_ROWS * sectors; i += WARPS * 32)
    prefetch_sector(a.scales + (long long)(begin * STRIP_ROWS + i / sectors) * a.scale_columns + first +
                    i % sectors * 32);
#else
  if (threadIdx.x == 0 && begin < end)
    bulk_prefetch(a.scales + (long long)begin * STRIP_ROWS * a.scale_columns,
                  (unsigned)((end - begin) * STRIP_ROWS * a.scale_columns), policy);
#endif
}

// ---- scales

// Of rows lane / 4 and that plus 8 of a strip, two bytes a unit.
typedef unsigned OwnScales[2][(UNITS + 1) / 2];

#if SPLIT
#define READ_SCALES "ld.global.nc"
typedef const unsigned char* ScaleAddress;
#define SCALE_OPERAND "l"
#else
#define READ_SCALES "ld.shared"
typedef unsigned ScaleAddress;
#define SCALE_OPERAND "r"
#endif

// `strip`: its scales. In shared memory they are volatile.
static __device__ __forceinline__ void load_scales(OwnScales& scales, const Mxfp4SkinnyArguments& a, const OwnK& k,
                                                   ScaleAddress strip) {
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const ScaleAddress from = strip + (unsigned)(((int)threadIdx.x % 32 / 4 + i * 8) * a.scale_columns + k.first * 2);
#pragma unroll
    for (int word = 0; word < (UNITS + 1) / 2; ++word) scales[i][word] = 0;
#pragma unroll
    for (int at = 0; at < UNITS * 2; at += SCALE_BYTES) {
      if (TAIL && k.first * 2 + at >= a.scale_columns) continue;
      unsigned* const to = &scales[i][at / 4];
#if SCALE_BYTES == 16
      asm volatile(READ_SCALES ".v4.u32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                   : SCALE_OPERAND(from + at)
                   : "memory");
#elif SCALE_BYTES == 8
      asm volatile(READ_SCALES ".v2.u32 {%0, %1}, [%2];"
                   : "=r"(to[0]), "=r"(to[1])
                   : SCALE_OPERAND(from + at)
                   : "memory");
#elif SCALE_BYTES == 4
      asm volatile(READ_SCALES ".u32 %0, [%1];" : "=r"(to[0]) : SCALE_OPERAND(from + at) : "memory");
#else
      unsigned half;
      asm volatile("{\n.reg .b16 half;\n" READ_SCALES ".b16 half, [%1];\ncvt.u32.u16 %0, half;\n}"
                   : "=r"(half)
                   : SCALE_OPERAND(from + at)
                   : "memory");
      to[0] |= half << (at % 4 * 8);
#endif
    }
  }
}

#if SPLIT
static __device__ __forceinline__ ScaleAddress scales_of(const Mxfp4SkinnyArguments& a, const SharedLayout&, int strip,
                                                         int) {
  return a.scales + (long long)strip * STRIP_ROWS * a.scale_columns;
}
#else
// Those of a strip lie together: one thread copies them to the strip's slot.
static __device__ __forceinline__ ScaleAddress scales_of(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, int,
                                                         int slot) {
  return smem.scales + (unsigned)(slot * STRIP_ROWS * a.scale_columns);
}
static __device__ __forceinline__ void start_scales(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, int strip,
                                                    int slot, unsigned long long policy) {
  const unsigned bytes = (unsigned)(STRIP_ROWS * a.scale_columns);
  const unsigned barrier = smem.scales_full + 8u * (unsigned)slot;
  barrier_arrive_expect_tx(barrier, bytes);
  bulk_load(scales_of(a, smem, strip, slot), a.scales + (long long)strip * bytes, bytes, barrier, 0, policy);
}
#endif

// ---- x

// The thread's part of eight rows of x a group: of 64 of k 16 elements, in the pairs that the weight's are multiplied by.
typedef unsigned OwnX[UNITS][GROUPS][8];

#if !X_FP4
// Loads the warp's part of x into shared memory. What lies there of rows past the last one is multiplied, but not stored.
static __device__ __forceinline__ void start_x(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, const OwnK& k) {
  const int warp = (int)threadIdx.x / 32;
  const unsigned barrier = smem.x_full + 8u * (unsigned)warp;
  if (!elect_one()) return;
  const int left = a.units - k.first;
  barrier_arrive_expect_tx(barrier, (unsigned)((TAIL && left < UNITS ? (left > 0 ? left : 0) : UNITS) * a.rows * 128));
  const unsigned long long policy = evict_last();
#pragma unroll
  for (int u = 0; u < UNITS; ++u)
    if (k.has(a, u))
      tma_load(own_x(smem, warp) + (unsigned)(u * X_UNIT_BYTES), &a.x_map, (k.first + u) * 64, 0, barrier, policy);
}

static __device__ __forceinline__ void load_x(OwnX& x, const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                              const OwnK& k) {
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  barrier_wait(smem.x_full + 8u * (unsigned)warp, 0);
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
#pragma unroll
    for (int group = 0; group < GROUPS; ++group) {
      unsigned(&to)[8] = x[u][group];
      const unsigned from = own_x(smem, warp) + (unsigned)(u * X_UNIT_BYTES + group * X_GROUP_BYTES);
      // TMA's swizzle: 16 bytes at c of row r are at c ^ r.
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#if PACKED
        load_matrices(reinterpret_cast<unsigned(&)[4]>(to[i * 4]),
                      from + (unsigned)(lane % 8 * 128 + ((i * 4 + lane / 8) ^ lane % 8) * 16));
#else
        uint4 bits;
        bits = load_shared_words(from + (unsigned)(lane / 4 * 128 + ((lane % 4 * 2 + i) ^ lane / 4) * 16));
        pair_x(to, i, bits);
#endif
      }
      if (k.has(a, u)) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) to[i] = 0u;
    }
  }
  __syncwarp();  // the warp's sums take this place
}
#else
// Copies the warp's elements of x to shared memory, each once: all blocks want them from L2 at the same time. What lies past the last row, or the end of k, is zero.
static __device__ __forceinline__ void start_x(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, const OwnK& k) {
#pragma unroll
  for (int first = 0; first < X_CHUNKS; first += 32) {
    const int i = first + (int)threadIdx.x % 32;
    if (X_CHUNKS % 32 != 0 && i >= X_CHUNKS) break;
    const int row = i / (UNITS * 2);
    const int at = i % (UNITS * 2);
    const bool there = row < a.rows && k.has(a, at / 2);
    copy_unit(own_x(smem, (int)threadIdx.x / 32) + (unsigned)(i * 16),
              there ? a.x + row * a.x_row + (k.first * 2 + at) * 16 : a.x, there ? 16 : 0);
  }
  commit_copies();
}

// The scales of x of the block's k, two bytes for 64 of k, row by row.
static __device__ __forceinline__ void copy_x_scales(const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                                     int first_unit) {
#pragma unroll 1
  for (int i = (int)threadIdx.x; i < GROUPS * 8 * WARPS * UNITS; i += WARPS * 32) {
    const int row = i / (WARPS * UNITS);
    const int unit = first_unit + i % (WARPS * UNITS);
    const unsigned short two =
        row < a.rows && unit < a.units
            ? __ldcg((const unsigned short*)(a.x_scales + (long long)row * a.scale_columns) + unit)
            : (unsigned short)0;
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(smem.x_scales + (unsigned)(i * 2)), "h"(two) : "memory");
  }
}

static __device__ __forceinline__ void load_x(OwnX& x, const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                              const OwnK& k) {
  const int warp = (int)threadIdx.x / 32;
  const int own = (int)threadIdx.x % 4;
  if (a.dependent_launch) {
    wait_for_copies<0>();
  } else {
    wait_for_copies<PIECES>();  // of the weight, behind x
  }
  __syncthreads();  // the scales are there
#pragma unroll
  for (int group = 0; group < GROUPS; ++group) {
    const int row = group * 8 + (int)threadIdx.x % 32 / 4;
    const unsigned from = own_x(smem, warp) + (unsigned)(row * UNITS * 32);
    const unsigned scales = smem.x_scales + (unsigned)((row * WARPS + warp) * UNITS * 2);
#pragma unroll
    for (int u = 0; u < UNITS; ++u) {
      unsigned e;
      asm volatile("{\n.reg .b16 two;\nld.shared.b16 two, [%1];\ncvt.u32.u16 %0, two;\n}"
                   : "=r"(e)
                   : "r"(scales + (unsigned)(u * 2))
                   : "memory");
      unsigned bits[PACKED ? 8 : 2];
#pragma unroll
      for (int i = 0; i < (PACKED ? 8 : 2); i += 2) {
        const uint2 words = load_shared_two_words(from + (unsigned)(u * 32 + (PACKED ? i * 4 : own * 8)));
        bits[i] = words.x, bits[i + 1] = words.y;
      }
      const bool large = __any_sync(0xffffffffu, (e & 0x8080u) != 0u);
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // 32 of k, or, of a plain weight's order, eight
        const unsigned scale = __byte_perm(e, 0u, 0x4440u + (unsigned)(PACKED ? i : own / 2));
        const unsigned by = scale_factor(without_large(scale));
        unsigned four[4];
#if PACKED
        // The lane's pair of each eight elements.
        const unsigned select = (unsigned)(own * 0x11 + 0x40);
        const unsigned bytes = __byte_perm(__byte_perm(bits[i * 4], bits[i * 4 + 1], select),
                                           __byte_perm(bits[i * 4 + 2], bits[i * 4 + 3], select), 0x5410u);
#pragma unroll
        for (int j = 0; j < 4; ++j) four[j] = spread_byte(bytes, j);
#else
        spread_word(four, bits[i]);
#endif
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          unsigned& to = x[u][group][i * 4 + j];
          to = multiply(four[j], by);
          if (large) to = multiply(to, large_factor(scale));
        }
      }
    }
  }
  __syncwarp();  // the warp's sums take this place
}
#endif

// ---- products

typedef float Sums[SETS][GROUPS][4];

// Scale `block` of two of unit u, of row lane / 4 or that plus 8. With a plain weight a lane has elements of one block.
static __device__ __forceinline__ unsigned scale_at(const OwnScales& scales, int u, int i, int block) {
  const int at = u * 2 % 4 + (PACKED ? block : (int)threadIdx.x % 4 / 2);
  return __byte_perm(scales[i][u / 2], 0u, 0x4440u + (unsigned)at);
}

// Multiplies a strip at `own`, whose pieces begin at `pieces`, and copies those of the strip at `following` in their places, behind what is left of its own; null: none.
// LARGE: a scale of the warp is above 2.
template <bool LARGE>
static __device__ __forceinline__ void multiply_strip(Sums& d, const OwnX& x, const OwnScales& scales,
                                                      const Mxfp4SkinnyArguments& a, const OwnK& k, unsigned pieces,
                                                      const unsigned char* own, const unsigned char* following,
                                                      unsigned long long policy) {
  const int lane = (int)threadIdx.x % 32;
#pragma unroll
  for (int u = 0; u < UNITS; ++u) {
    const unsigned piece = pieces + (unsigned)(u % PIECES * PIECE_BYTES);
    wait_for_piece();
    unsigned raw[4];
#if PACKED
    const uint4 words = load_shared_words(piece + (unsigned)(lane * 16));
    raw[0] = words.x, raw[1] = words.y, raw[2] = words.z, raw[3] = words.w;
#else
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint2 words = load_shared_two_words(piece + (unsigned)(i * (PIECE_BYTES / 2) + lane * 8));
      raw[i * 2] = words.x, raw[i * 2 + 1] = words.y;
    }
#endif
    unsigned by[2];
    unsigned more[2];
#if !PACKED
    unsigned pairs[2][4];
#endif
#pragma unroll
    for (int step = 0; step < 4; ++step) {  // 16 of k
      if (step == 0 || (PACKED && step == 2)) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          const unsigned e = scale_at(scales, u, i, step / 2);
          more[i] = LARGE ? large_factor(e) : 0u;
          by[i] = scale_factor(LARGE ? without_large(e) : e);
        }
      }
      unsigned fragment[4];
#if PACKED
      spread_fragment(fragment, raw[step]);
#else
      if (step % 2 == 0) {
#pragma unroll
        for (int i = 0; i < 2; ++i) spread_word(pairs[i], raw[i * 2 + step / 2]);
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) fragment[i] = pairs[i % 2][step % 2 * 2 + i / 2];
#endif
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (LARGE) fragment[i] = multiply(fragment[i], more[i % 2]);
        fragment[i] = multiply(fragment[i], by[i % 2]);
      }
#pragma unroll
      for (int group = 0; group < GROUPS; ++group)
        mma_bf16(d[step % SETS][group], fragment[0], fragment[1], fragment[2], fragment[3], x[u][group][step * 2],
                 x[u][group][step * 2 + 1]);
    }
    if (!PACKED) __syncwarp();  // other lanes have read what this one copies over
    const int next = (u + PIECES) % UNITS;
    const unsigned char* const from = u + PIECES < UNITS ? own : following;
    if (from && k.has(a, next)) copy_unit(piece + (unsigned)(lane * 16), from + next * NEXT_UNIT, policy);
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

#define SUM_UNIT (X_FP4 ? E2M1_UNIT * E2M1_UNIT : E2M1_UNIT)

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
    to[0] = round_output(fmaf(sum[i], SUM_UNIT, bias[0]));
    to[8] = round_output(fmaf(sum[2 + i], SUM_UNIT, bias[1]));
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
  for (int warp = 0; warp < WARPS; ++warp)
    add_sums(sum[warp % 2], sums_of(smem, warp, slot) + (unsigned)(group * GROUP_BYTES + lane * 16));
#pragma unroll
  for (int i = 0; i < 4; ++i) sum[0][i] += sum[1][i];
#if SPLIT
  const int owner = index % a.split_k;
  const unsigned to =
      smem.exchange + (unsigned)((index / a.split_k * a.split_k + rank) * SUM_BYTES + group * GROUP_BYTES + lane * 16);
  store_async(remote_address(to, owner), sum[0][0], sum[0][1], sum[0][2], sum[0][3],
              remote_address(smem.partials, owner));
#else
  store_sums(a, strip, group, sum[0]);
#endif
  __syncwarp();
  if (lane == 0) barrier_arrive(smem.added + 8u * (unsigned)slot);
}

#if SPLIT
// Adds the blocks' sums of the strips that this block owns, in the blocks' order.
static __device__ __forceinline__ void add_partials(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, int rank,
                                                    int begin, int end) {
  const int owned = owned_strips(a, end - begin, rank);
  if (owned == 0) return;
  barrier_wait_for_cluster(smem.partials, 0);
#pragma unroll 1
  for (int i = (int)threadIdx.x / 32; i < owned * GROUPS; i += WARPS) {
    float sum[4] = {};
    const unsigned from = smem.exchange + (unsigned)(i / GROUPS * a.split_k * SUM_BYTES + i % GROUPS * GROUP_BYTES +
                                                     (int)threadIdx.x % 32 * 16);
#pragma unroll
    for (int block = 0; block < 8; ++block)
      if (block < a.split_k) add_sums(sum, from + (unsigned)(block * SUM_BYTES));
    store_sums(a, begin + i / GROUPS * a.split_k + rank, i % GROUPS, sum);
  }
}
#endif

// ----

static __device__ __forceinline__ void multiply_strips(const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                                       int rank, int begin, int end) {
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  const OwnK k = {(rank * WARPS + warp) * UNITS};
  const unsigned pieces = smem.pieces + (unsigned)(warp * PIECES * PIECE_BYTES);
  const unsigned long long policy = evict_first();
  if (!a.dependent_launch) {
    prefetch_weight(a, k, begin);
    prefetch_scales(a, rank * WARPS * UNITS, begin, end, policy);
    grid_dependency_wait();
    start_x(a, smem, k);
  }
#if !SPLIT
  if (threadIdx.x == 0) {
#pragma unroll 1
    for (int i = 0; i < SLOTS && begin + i < end; ++i) start_scales(a, smem, begin + i, i, policy);
  }
#endif
#pragma unroll 1
  for (int i = 0; i < STRIPS_AHEAD; ++i) {
    const unsigned char* const from = own_weight(a, k, begin + i);
    const unsigned to = pieces + (unsigned)(i * UNITS * PIECE_BYTES + lane * 16);
#pragma unroll
    for (int u = 0; u < UNITS && u < PIECES; ++u) {
      if (begin + i < end && k.has(a, u)) copy_unit(to + (unsigned)(u * PIECE_BYTES), from + u * NEXT_UNIT, policy);
      commit_copies();
    }
  }
#if SPLIT
  OwnScales next;
  load_scales(next, a, k, scales_of(a, smem, begin, 0));
#endif
  if (a.dependent_launch) {
    grid_dependency_wait();
    start_x(a, smem, k);
  }
#if X_FP4
  copy_x_scales(a, smem, rank * WARPS * UNITS);
#endif
  OwnX x;
  load_x(x, a, smem, k);
#if SPLIT
  cluster_wait();  // the other blocks' barriers are initialized
#endif
  int ahead = 0;  // of the strips in the pipeline
  int slot = 0;
  int turn = warp;     // from a strip's first group to the one that this warp adds, counted by all warps in turn
  unsigned phase = 0;  // of the slots
#pragma unroll 1
  for (int strip = begin; strip <= end; ++strip) {
    if (strip < end) {
      OwnScales scales;
#if !SPLIT
      barrier_wait(smem.scales_full + 8u * (unsigned)slot, phase);
      load_scales(scales, a, k, scales_of(a, smem, strip, slot));
#endif
      unsigned all = 0;
#pragma unroll
      for (int i = 0; i < 2; ++i) {
#pragma unroll
        for (int word = 0; word < (UNITS + 1) / 2; ++word) {
#if SPLIT
          scales[i][word] = next[i][word];
#endif
          all |= scales[i][word];
        }
      }
#if SPLIT
      if (strip + 1 < end) load_scales(next, a, k, scales_of(a, smem, strip + 1, 0));
#endif
      const unsigned char* const following = strip + STRIPS_AHEAD < end ? own_weight(a, k, strip + STRIPS_AHEAD) : 0;
      const unsigned from = pieces + (unsigned)(ahead * UNITS * PIECE_BYTES);
      const unsigned char* const own = own_weight(a, k, strip);
      Sums d = {};
      if (__any_sync(0xffffffffu, (all & 0x80808080u) != 0u)) {
        multiply_strip<true>(d, x, scales, a, k, from, own, following, policy);
      } else {
        multiply_strip<false>(d, x, scales, a, k, from, own, following, policy);
      }
      barrier_wait(smem.added + 8u * (unsigned)slot, phase ^ 1u);
#pragma unroll
      for (int group = 0; group < GROUPS; ++group) {
        float(&sum)[4] = d[0][group];
#pragma unroll
        for (int i = 0; i < 4 && SETS > 1; ++i) sum[i] += d[SETS - 1][group][i];
        store_shared_floats(sums_of(smem, warp, slot) + (unsigned)(group * GROUP_BYTES + lane * 16), sum[0], sum[1],
                            sum[2], sum[3]);
      }
      __syncwarp();
      if (lane == 0) barrier_arrive(smem.done + 8u * (unsigned)slot);
    }
    if (strip > begin) {
      const int before = (slot > 0 ? slot : SLOTS) - 1;
#pragma unroll 1
      for (; turn < GROUPS; turn += WARPS) {
        barrier_wait(smem.done + 8u * (unsigned)before, slot > 0 ? phase : phase ^ 1u);
        finish_group(a, smem, rank, before, turn, strip - 1 - begin, strip - 1);
#if !SPLIT
        // All warps have read the scales that are there.
        if (turn == 0 && lane == 0 && strip - 1 + SLOTS < end) start_scales(a, smem, strip - 1 + SLOTS, before, policy);
#endif
      }
      turn -= GROUPS;
    }
    if (++ahead == STRIPS_AHEAD) ahead = 0;
    if (++slot == SLOTS) {
      slot = 0;
      phase ^= 1u;
    }
  }
#if SPLIT
  add_partials(a, smem, rank, begin, end);
#endif
}

extern "C" __global__ void __launch_bounds__(WARPS * 32, 1)
    mxfp4_skinny(const __grid_constant__ Mxfp4SkinnyArguments a) {
  extern __shared__ unsigned char memory[];
  SharedLayout smem;
  smem.warps = (shared_address(memory) + 1023u) & ~1023u;
  smem.pieces = smem.warps + (unsigned)(WARPS * WARP_BYTES);
  smem.exchange = smem.pieces + (unsigned)(WARPS * PIECES * PIECE_BYTES);
  smem.scales = smem.exchange;
  smem.done =
      smem.exchange + (unsigned)(SPLIT ? a.max_owned * a.split_k * SUM_BYTES : SLOTS * STRIP_ROWS * a.scale_columns);
  smem.added = smem.done + 8u * SLOTS;
  smem.partials = smem.added + 8u * SLOTS;
  smem.scales_full = smem.partials + 8u;
  smem.x_full = smem.scales_full + 8u * SLOTS;
  smem.x_scales = smem.x_full + 8u * WARPS;
  const int rank = SPLIT ? cluster_cta_rank() : 0;
  const int index = SPLIT ? cluster_index() : (int)blockIdx.x;
  const int count = SPLIT ? cluster_count() : (int)gridDim.x;
  const int begin = (int)((long long)a.strips * index / count);
  const int end = (int)((long long)a.strips * (index + 1) / count);
  if (threadIdx.x == 0) {
    if (!X_FP4) prefetch_tensor_map(&a.x_map);
#pragma unroll
    for (int i = 0; i < SLOTS; ++i) {
      barrier_init(smem.done + 8u * (unsigned)i, WARPS);
      barrier_init(smem.added + 8u * (unsigned)i, GROUPS);
      barrier_init(smem.scales_full + 8u * (unsigned)i, 1);
    }
    if (SPLIT) barrier_init(smem.partials, 1);
#pragma unroll 1
    for (int i = 0; i < (X_FP4 ? 0 : WARPS); ++i) barrier_init(smem.x_full + 8u * (unsigned)i, 1);
    fence_barrier_init();
    if (SPLIT)
      barrier_arrive_expect_tx(smem.partials, (unsigned)(owned_strips(a, end - begin, rank) * a.split_k * SUM_BYTES));
  }
  __syncthreads();
#if SPLIT
  cluster_arrive();
#endif
  launch_dependents();
  multiply_strips(a, smem, rank, begin, end);
}
