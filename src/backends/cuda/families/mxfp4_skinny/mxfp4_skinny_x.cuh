// x of the mxfp4_skinny kernel: each warp's part of it through shared memory to registers. It comes after the kernel's constants and SharedLayout.
#pragma once

#include "backends/cuda/device/copy.cuh"
#include "backends/cuda/device/e2m1.cuh"
#include "backends/cuda/device/mbarrier.cuh"
#include "backends/cuda/device/mma.cuh"
#include "backends/cuda/device/shared_memory.cuh"
#include "backends/cuda/device/tma.cuh"
#include "backends/cuda/device/warp.cuh"
#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_arguments.h"

// The thread's part of eight rows of x a group: of 64 of k 16 elements, in the pairs that the weight's are multiplied by.
typedef unsigned OwnX[config().units][config().groups][8];

// Loads the warp's part of x into shared memory. What lies there of rows past the last one is multiplied, but not stored.
static __device__ __forceinline__ void start_bf16_x(const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                                    const OwnK& k) {
  const int warp = (int)threadIdx.x / 32;
  const unsigned barrier = smem.x_full + 8u * (unsigned)warp;
  if (!elect_one()) return;
  const int left = a.units - k.first;
  barrier_arrive_expect_tx(
      barrier,
      (unsigned)((config().tail && left < config().units ? (left > 0 ? left : 0) : config().units) * a.rows * 128));
  const unsigned long long policy = evict_last();
#pragma unroll
  for (int u = 0; u < config().units; ++u)
    if (k.has(a, u))
      tma_load(own_x(smem, warp) + (unsigned)(u * X_UNIT_BYTES), &a.x_map, (k.first + u) * 64, 0, barrier, policy);
}

static __device__ __forceinline__ void load_bf16_x(OwnX& x, const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                                   const OwnK& k) {
  const int warp = (int)threadIdx.x / 32;
  const int lane = (int)threadIdx.x % 32;
  barrier_wait(smem.x_full + 8u * (unsigned)warp, 0);
#pragma unroll
  for (int u = 0; u < config().units; ++u) {
#pragma unroll
    for (int group = 0; group < config().groups; ++group) {
      unsigned(&to)[8] = x[u][group];
      const unsigned from = own_x(smem, warp) + (unsigned)(u * X_UNIT_BYTES + group * X_GROUP_BYTES);
      // TMA's swizzle: 16 bytes at c of row r are at c ^ r.
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        if constexpr (config().packed) {
          load_matrices(reinterpret_cast<unsigned(&)[4]>(to[i * 4]),
                        from + (unsigned)(lane % 8 * 128 + ((i * 4 + lane / 8) ^ lane % 8) * 16));
        } else {
          uint4 bits;
          const int chunk = TWO_GROUPS ? i * 4 + lane % 4 : lane % 4 * 2 + i;
          bits = load_shared_words(from + (unsigned)(lane / 4 * 128 + (chunk ^ lane / 4) * 16));
          pair_x(to, i, bits);
        }
      }
      if (k.has(a, u)) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i) to[i] = 0u;
    }
  }
  __syncwarp();  // the warp's sums take this place
}

// Copies the warp's elements of x to shared memory, each once: all blocks want them from L2 at the same time. What lies past the last row, or the end of k, is zero.
static __device__ __forceinline__ void start_fp4_x(const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                                   const OwnK& k) {
#pragma unroll
  for (int first = 0; first < X_CHUNKS; first += 32) {
    const int i = first + (int)threadIdx.x % 32;
    if (X_CHUNKS % 32 != 0 && i >= X_CHUNKS) break;
    const int row = i / (config().units * 2);
    const int at = i % (config().units * 2);
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
  for (int i = (int)threadIdx.x; i < config().groups * 8 * config().warps * config().units; i += config().warps * 32) {
    const int row = i / (config().warps * config().units);
    const int unit = first_unit + i % (config().warps * config().units);
    const unsigned short two = row < a.rows && unit < a.units
                                   ? __ldcg((const unsigned short*)(a.x_scales + (long long)row * a.scale_row) + unit)
                                   : (unsigned short)0;
    asm volatile("st.shared.u16 [%0], %1;" ::"r"(smem.x_scales + (unsigned)(i * 2)), "h"(two) : "memory");
  }
}

static __device__ __forceinline__ void load_fp4_x(OwnX& x, const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                                  const OwnK& k) {
  const int warp = (int)threadIdx.x / 32;
  const int own = (int)threadIdx.x % 4;
  if (a.dependent_launch) {
    wait_for_copies<0>();
  } else {
    wait_for_copies<config().pieces>();  // of the weight, behind x
  }
  __syncthreads();  // the scales are there
#pragma unroll
  for (int group = 0; group < config().groups; ++group) {
    const int row = group * 8 + (int)threadIdx.x % 32 / 4;
    const unsigned from = own_x(smem, warp) + (unsigned)(row * config().units * 32);
    const unsigned scales = smem.x_scales + (unsigned)((row * config().warps + warp) * config().units * 2);
#pragma unroll
    for (int u = 0; u < config().units; ++u) {
      unsigned e;
      asm volatile("{\n.reg .b16 two;\nld.shared.b16 two, [%1];\ncvt.u32.u16 %0, two;\n}"
                   : "=r"(e)
                   : "r"(scales + (unsigned)(u * 2))
                   : "memory");
      unsigned bits[config().packed ? 8 : 2];
#pragma unroll
      for (int i = 0; i < (config().packed ? 8 : 2); i += 2) {
        const uint2 words = load_shared_two_words(from + (unsigned)(u * 32 + (config().packed ? i * 4 : own * 8)));
        bits[i] = words.x, bits[i + 1] = words.y;
      }
      const bool large = __any_sync(0xffffffffu, (e & 0x8080u) != 0u);
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // 32 of k, or, of a plain weight's order, eight
        const unsigned scale = __byte_perm(e, 0u, 0x4440u + (unsigned)(config().packed ? i : own / 2));
        const unsigned by = scale_factor(without_large(scale));
        unsigned four[4];
        if constexpr (config().packed) {
          // The lane's pair of each eight elements.
          const unsigned select = (unsigned)(own * 0x11 + 0x40);
          const unsigned bytes = __byte_perm(__byte_perm(bits[i * 4], bits[i * 4 + 1], select),
                                             __byte_perm(bits[i * 4 + 2], bits[i * 4 + 3], select), 0x5410u);
#pragma unroll
          for (int j = 0; j < 4; ++j) four[j] = spread_byte(bytes, j);
        } else {
          spread_word(four, bits[i]);
        }
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

static __device__ __forceinline__ void start_x(const Mxfp4SkinnyArguments& a, const SharedLayout& smem, const OwnK& k) {
  if constexpr (config().x_fp4) {
    start_fp4_x(a, smem, k);
  } else {
    start_bf16_x(a, smem, k);
  }
}
static __device__ __forceinline__ void load_x(OwnX& x, const Mxfp4SkinnyArguments& a, const SharedLayout& smem,
                                              const OwnK& k) {
  if constexpr (config().x_fp4) {
    load_fp4_x(x, a, smem, k);
  } else {
    load_bf16_x(x, a, smem, k);
  }
}
