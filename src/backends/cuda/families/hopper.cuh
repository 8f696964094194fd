// What kernels for Hopper share: barriers in shared memory, the copy engine's maps, the matrix unit's descriptors, clusters, dependent
// launches.
#define PIECE_BYTES 128  // of k, in one row: as wide as the swizzle
#define PIECE_ELEMENTS (PIECE_BYTES / (int)sizeof(element))

// Whether loads say how long the second-level cache should keep what they get. That pays where the weight is read once; else it
// costs a few percent.
#if HINTS
#define CACHE_HINT ".L2::cache_hint"
#define POLICY(operand) ", %" #operand
#else
#define CACHE_HINT
#define POLICY(operand)
#endif

struct alignas(128) TensorMap {
  unsigned long long opaque[16];
};

static __device__ inline unsigned shared_address(const void* pointer) { return (unsigned)__cvta_generic_to_shared(pointer); }
static __device__ inline void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
static __device__ inline void barrier_expect(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
static __device__ inline unsigned remote_address(unsigned address, int block) {
  unsigned remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(block));
  return remote;
}
// Says to a block of the cluster (`barrier`: a remote_address) that a place was read by the matrix unit, whose reads have ended.
// Ordinary writes are not released to the cluster: that would be a fence of the whole device, for each stage and warp.
static __device__ inline void barrier_arrive_at(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
static __device__ inline void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// For what the copy engine wrote and for places that were read.
static __device__ inline void barrier_wait(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// For what other blocks of the cluster wrote; it also empties the first-level cache.
static __device__ inline void barrier_wait_for_cluster(unsigned barrier, unsigned parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@done bra finished;\n"
      "bra again;\n"
      "finished:\n"
      "}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}
// Releases nothing: who initialized barriers has said so with fence.mbarrier_init. A release is a fence of the whole device.
static __device__ inline void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
// Of a launch without clusters each block is one.
static __device__ inline int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
static __device__ inline int cluster_index() {
  int index;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(index));
  return index;
}
static __device__ inline int clusters_of_grid() {
  int clusters;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(clusters));
  return clusters;
}
// One lane of a whole warp. (Where the compiler knows that one thread goes on alone, addresses need no loop over lanes.)
static __device__ inline bool elect_one() {
  unsigned elected;
  asm volatile("{\n.reg .pred one;\nelect.sync _|one, 0xffffffff;\nselp.u32 %0, 1, 0, one;\n}" : "=r"(elected));
  return elected != 0;
}
static __device__ inline void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// The next kernel of the stream may start, where it was launched as a dependent one.
static __device__ inline void release_dependents() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// Returns once the kernel in front has ended and what it wrote is visible; at once where there is nothing to wait for.
static __device__ inline void wait_for_predecessor() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
static __device__ inline void prefetch_map(const TensorMap* map) { asm volatile("prefetch.tensormap [%0];" ::"l"(map) : "memory"); }
// `policy`: how long the second-level cache should keep it.
static __device__ inline void copy_box(unsigned to, const TensorMap* map, int column, int row, unsigned barrier, unsigned long long policy) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes" CACHE_HINT
      " [%0], [%1, {%2, %3}], [%4]" POLICY(5) ";" ::"r"(to),
      "l"(map), "r"(column), "r"(row), "r"(barrier), "l"(policy)
      : "memory");
}

// Calls a box into the second-level cache. That is no read: what another kernel still writes there is seen.
static __device__ inline void call_box(const TensorMap* map, int column, int row, unsigned long long policy) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global.tile" CACHE_HINT " [%0, {%1, %2}]" POLICY(3) ";" ::"l"(map), "r"(column), "r"(row),
               "l"(policy)
               : "memory");
}
// `bytes` in one run. `blocks`: the blocks of the cluster that get it, each at the same place and told by its own
// barrier; 0: this one alone.
static __device__ inline void copy_run(unsigned to, const unsigned char* from, unsigned bytes, unsigned barrier, unsigned blocks,
                                       unsigned long long policy) {
  if (blocks == 0) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes" CACHE_HINT " [%0], [%1], %2, [%3]" POLICY(4) ";" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier), "l"(policy)
                 : "memory");
  } else {
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster" CACHE_HINT " [%0], [%1], %2, [%3], %4" POLICY(5)
        ";" ::"r"(to),
        "l"(from), "r"(bytes), "r"(barrier), "h"((unsigned short)blocks), "l"(policy)
        : "memory");
  }
}
// Calls `bytes` into the second-level cache, as call_box does.
static __device__ inline void call_run(const unsigned char* from, unsigned bytes, unsigned long long policy) {
  asm volatile("cp.async.bulk.prefetch.L2.global" CACHE_HINT " [%0], %1" POLICY(2) ";" ::"l"(from), "r"(bytes), "l"(policy) : "memory");
}
// What this thread wrote to shared memory is there for the copy engine.
static __device__ inline void show_copy_engine() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// A weight in tiles of 64 rows x 128 bytes, swizzled already (layout tile64x128).
struct PackedWeight {
  const unsigned char* data;
  int tiles;   // of 64 rows
  int pieces;  // of 128 bytes of k, in a row
};

// Rows of 128 bytes, swizzled in groups of 8 rows.
static __device__ inline unsigned long long matrix_descriptor(unsigned address) {
  return (unsigned long long)((address & 0x3ffffu) >> 4) | (1ull << 16) | (64ull << 32) | (1ull << 62);
}

// Two neighbours of y as they are stored, the first in the lower half.
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
