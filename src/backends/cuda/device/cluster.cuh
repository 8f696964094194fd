// Blocks of a cluster: who they are, and how they wait for each other.
#pragma once

static __device__ inline unsigned remote_address(unsigned address, int block) {
  unsigned remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(block));
  return remote;
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
static __device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The other way of arriving: this thread's writes to shared memory are visible to who waits.
static __device__ inline void cluster_release() {
  asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
}

// Stores four floats in the shared memory of a block of the cluster; its barrier `barrier` counts their 16 bytes. Both
// are remote_address()es.
static __device__ __forceinline__ void store_async(unsigned to, float first, float second, float third, float fourth,
                                                   unsigned barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
               "f"(first), "f"(second), "f"(third), "f"(fourth), "r"(barrier)
               : "memory");
}
static __device__ __forceinline__ void store_async(unsigned to, int value, unsigned barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(to), "r"(value),
               "r"(barrier)
               : "memory");
}
