// TMA: copies of boxes of tensor maps, and bulk copies of contiguous bytes, between global and shared memory, and
// prefetches into L2.
#pragma once

#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/device/types.cuh"

using gemmtune::cuda::TensorMap;

// BATCHED: tensor maps have a third dimension, the batch; its coordinate is operand `batch` of the instruction.
#if BATCHED
#define TENSOR "3d"
#define BATCH(operand) ", %" #operand
#else
#define TENSOR "2d"
#define BATCH(operand)
#endif

// L2_HINTS: loads carry an L2 eviction policy. This is faster if the weight is read once; otherwise it costs a few
// percent.
#if L2_HINTS
#define CACHE_HINT ".L2::cache_hint"
#define POLICY(operand) ", %" #operand
#else
#define CACHE_HINT
#define POLICY(operand)
#endif

// L2 eviction policies: of what is read once, and of what others read too.
static __device__ __forceinline__ unsigned long long evict_first() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
static __device__ __forceinline__ unsigned long long evict_last() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}

static __device__ inline void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Loads the box at (column, row) of a batch of a tensor map to shared memory; completes on `barrier`. `policy`: an L2
// eviction policy.
static __device__ inline void tma_load(unsigned to, const TensorMap* map, int column, int row, unsigned barrier,
                                       unsigned long long policy, int batch = 0) {
  asm volatile("cp.async.bulk.tensor." TENSOR ".shared::cluster.global.tile.mbarrier::complete_tx::bytes" CACHE_HINT
               " [%0], [%1, {%2, %3" BATCH(6) "}], [%4]" POLICY(5) ";" ::"r"(to),
               "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy), "r"(batch)
               : "memory");
}

// `multicast`: mask of the cluster's blocks that receive the box, each at the same address and with a completion on its
// own barrier; 0: this block alone.
static __device__ inline void tma_load(unsigned to, const TensorMap* map, int column, int row, unsigned barrier,
                                       unsigned multicast, unsigned long long policy, int batch) {
  if (multicast == 0) {
    tma_load(to, map, column, row, barrier, policy, batch);
  } else {
    asm volatile("cp.async.bulk.tensor." TENSOR
                 ".shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster" CACHE_HINT
                 " [%0], [%1, {%2, %3" BATCH(7) "}], [%4], %5" POLICY(6) ";" ::"r"(to),
                 "l"(map), "r"(column), "r"(row), "r"(barrier), "h"((unsigned short)multicast), "l"(policy), "r"(batch)
                 : "memory");
  }
}

// Prefetches a box into L2. This is no read: later writes by the previous kernel remain visible to loads.
static __device__ inline void tma_prefetch(const TensorMap* map, int column, int row, unsigned long long policy,
                                           int batch = 0) {
  asm volatile("cp.async.bulk.prefetch.tensor." TENSOR ".L2.global.tile" CACHE_HINT
               " [%0, {%1, %2" BATCH(4) "}]" POLICY(3) ";" ::"l"(map),
               "r"(column), "r"(row), "l"(policy), "r"(batch)
               : "memory");
}
// Stores the box at (column, row) of a batch from shared memory.
// Waits until at most `pending` of this thread's groups of stores still read shared memory.
template <int pending>
static __device__ __forceinline__ void tma_store_wait() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(pending) : "memory");
}

static __device__ __forceinline__ void tma_store(const TensorMap* map, unsigned from, int column, int row, int batch) {
  asm volatile("cp.async.bulk.tensor." TENSOR
               ".global.shared::cta.bulk_group [%0, {%1, %2" BATCH(4) "}], [%3];" ::"l"(map),
               "r"(column), "r"(row), "r"(from), "r"(batch)
               : "memory");
}
static __device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }
// Loads `bytes` contiguous bytes (a bulk copy without a tensor map). `multicast`: mask of the cluster's blocks that
// receive them, each at the same address and with a completion on its own barrier; 0: this block alone.
static __device__ inline void bulk_load(unsigned to, const unsigned char* from, unsigned bytes, unsigned barrier,
                                        unsigned multicast, unsigned long long policy) {
  if (multicast == 0) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" CACHE_HINT
                 " [%0], [%1], %2, [%3]" POLICY(4) ";" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
  } else {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster" CACHE_HINT
                 " [%0], [%1], %2, [%3], %4" POLICY(5) ";" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "h"((unsigned short)multicast), "l"(policy)
                 : "memory");
  }
}
// Prefetches `bytes` contiguous bytes into L2.
static __device__ inline void bulk_prefetch(const unsigned char* from, unsigned bytes, unsigned long long policy) {
  asm volatile("cp.async.bulk.prefetch.L2.global" CACHE_HINT " [%0], %1" POLICY(2) ";" ::"l"(from), "r"(bytes),
               "l"(policy)
               : "memory");
}
// Prefetches the sector at `from` into L2. This is no read either.
static __device__ __forceinline__ void prefetch_sector(const void* from) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(from) : "memory");
}
