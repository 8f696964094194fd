// Device code of all Hopper families: mbarriers, TMA loads and prefetches, shared memory descriptors of wgmma, clusters, programmatic
// dependent launches.
#pragma once

#include "backends/cuda/families/hopper_arguments.h"
#include "backends/cuda/tensor_map_arguments.h"
#include "backends/gpu/families/numbers.cuh"

using gemmtune::cuda::PackedWeight;
using gemmtune::cuda::TensorMap;

// Operands lie in shared memory in 128-byte swizzle atoms. K-major: rows of 128 bytes of k. MN-major, of column-major operands of two
// bytes: rows of 64 elements along M or N, one for each k.
#define ATOM_BYTES 128
#define ATOM_ELEMENTS (ATOM_BYTES / (int)sizeof(element))

// BATCHED: tensor maps have a third dimension, the batch; its coordinate is operand `batch` of the instruction.
#ifndef BATCHED
#define BATCHED 0
#endif
#if BATCHED
#define TENSOR "3d"
#define BATCH(operand) ", %" #operand
#else
#define TENSOR "2d"
#define BATCH(operand)
#endif

// L2_HINTS: loads carry an L2 eviction policy. This is faster if the weight is read once; otherwise it costs a few percent.
#if L2_HINTS
#define CACHE_HINT ".L2::cache_hint"
#define POLICY(operand) ", %" #operand
#else
#define CACHE_HINT
#define POLICY(operand)
#endif

static __device__ inline unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}
static __device__ inline void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
static __device__ inline void barrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
static __device__ inline unsigned remote_address(unsigned address, int block) {
  unsigned remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(block));
  return remote;
}
// Arrives on a barrier of another block of the cluster (`barrier`: a remote_address) after the tensor cores have read a stage. Does
// not release ordinary writes to the cluster: that would be a device-wide fence for each stage and warp.
static __device__ inline void barrier_arrive_remote(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
static __device__ inline void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// Waits until the phase with parity `phase` has completed. Orders what TMA wrote, and stages that were read.
static __device__ inline void barrier_wait(unsigned barrier, unsigned phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
// Whether that phase has completed, without waiting.
static __device__ inline bool barrier_completed(unsigned barrier, unsigned phase) {
  unsigned completed;
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "mbarrier.test_wait.parity.shared::cta.b64 done, [%1], %2;\n"
      "selp.u32 %0, 1, 0, done;\n"
      "}"
      : "=r"(completed)
      : "r"(barrier), "r"(phase)
      : "memory");
  return completed != 0;
}
// Waits for it with acquire semantics at cluster scope, for what other blocks of the cluster wrote; it also invalidates L1.
static __device__ inline void barrier_wait_for_cluster(unsigned barrier, unsigned phase) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(phase)
      : "memory");
}
// Relaxed: the threads that initialize barriers execute fence.mbarrier_init. A release would be a device-wide fence.
static __device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
// Rank of this block in its cluster; 0 in a launch without clusters.
static __device__ inline int cluster_cta_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
static __device__ inline int cluster_index() {
  int index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
static __device__ inline int cluster_count() {
  int clusters;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(clusters));
  return clusters;
}
// True in one lane of a converged warp. The compiler then knows that one thread executes the branch and emits no loop over lanes for
// uniform operands.
static __device__ inline bool elect_one() {
  unsigned elected;
  asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(elected));
  return elected != 0;
}
static __device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// Allows the next kernel of the stream to start if it is a programmatic dependent launch.
static __device__ inline void launch_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Returns when the previous kernel has ended and its writes are visible; immediately if this is no dependent launch.
static __device__ inline void grid_dependency_wait() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
static __device__ inline void prefetch_tensor_map(const TensorMap* map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory");
}
// Loads the box at (column, row) of a batch of a tensor map to shared memory; completes on `barrier`. `policy`: an L2 eviction policy.
static __device__ inline void tma_load(unsigned to, const TensorMap* map, int column, int row, unsigned barrier,
                                       unsigned long long policy, int batch = 0) {
  asm volatile("cp.async.bulk.tensor." TENSOR ".shared::cluster.global.tile.mbarrier::complete_tx::bytes" CACHE_HINT
               " [%0], [%1, {%2, %3" BATCH(6) "}], [%4]" POLICY(5) ";" ::"r"(to),
               "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy), "r"(batch)
               : "memory");
}

// Prefetches a box into L2. This is no read: later writes by the previous kernel remain visible to loads.
static __device__ inline void tma_prefetch(const TensorMap* map, int column, int row, unsigned long long policy,
                                           int batch = 0) {
  asm volatile("cp.async.bulk.prefetch.tensor." TENSOR ".L2.global.tile" CACHE_HINT
               " [%0, {%1, %2" BATCH(4) "}]" POLICY(3) ";" ::"l"(map),
               "r"(column), "r"(row), "l"(policy), "r"(batch)
               : "memory");
}
// Loads `bytes` contiguous bytes (a bulk copy without a tensor map). `multicast`: mask of the cluster's blocks that receive them, each
// at the same address and with a completion on its own barrier; 0: this block alone.
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
// True if `own` is true of any thread of the warp group, whose threads wait for each other at the named barrier `barrier`.
static __device__ __forceinline__ bool any_of_warpgroup(bool own, int barrier) {
  unsigned some;
  asm volatile(
      "{\n"
      ".reg .pred own, any;\n"
      "setp.ne.u32 own, %1, 0;\n"
      "barrier.cta.red.or.aligned.pred any, %2, 128, own;\n"
      "selp.u32 %0, 1, 0, any;\n"
      "}"
      : "=r"(some)
      : "r"((unsigned)own), "r"(barrier)
      : "memory");
  return some != 0u;
}
// Makes this thread's writes to shared memory visible to the async proxy (TMA and wgmma).
static __device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Shared memory descriptor of a K-major operand in 128-byte swizzle atoms: a stride of 1024 bytes between groups of 8 rows.
static __device__ inline unsigned long long matrix_descriptor(unsigned address) {
  return (unsigned long long)((address & 0x3ffffu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

// The same of an MN-major operand: groups of 64 elements along M or N, of 64 k each (8192 bytes from group to group, the leading dimension);
// 1024 bytes between groups of 8 k. An instruction reads 16 k: 2048 bytes to the next one.
#define MN_GROUP 64
#define MN_GROUP_BYTES (ATOM_ELEMENTS * ATOM_BYTES)
static __device__ inline unsigned long long mn_major_descriptor(unsigned address) {
  return (unsigned long long)((address & 0x3ffffu) >> 4) | ((unsigned long long)(MN_GROUP_BYTES >> 4) << 16) |
         (64ull << 32) | (1ull << 62);
}

// Two adjacent elements of y, the first in the lower half.
#if OUTPUT != 0
static __device__ inline unsigned round_pair(float first, float second) {
  unsigned pair;
#if OUTPUT == 2
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#else
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
#endif
  return pair;
}
#endif
