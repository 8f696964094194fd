// Barriers in shared memory that count arrivals and bytes (mbarrier), by their addresses. Each is of 8 bytes.
#pragma once

static __device__ inline unsigned shared_address(const void* pointer) {
  return (unsigned)__cvta_generic_to_shared(pointer);
}
static __device__ inline void barrier_init(unsigned barrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals));
}
static __device__ inline void barrier_arrive_expect_tx(unsigned barrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}
// Arrives on a barrier of another block of the cluster (`barrier`: a remote_address) after the tensor cores have read a
// stage. Does not release ordinary writes to the cluster: that would be a device-wide fence for each stage and warp.
static __device__ inline void barrier_arrive_remote(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}
static __device__ inline void barrier_arrive(unsigned barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}
// As `count` arrivals.
static __device__ inline void barrier_arrive(unsigned barrier, unsigned count) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
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
// Waits for it with acquire semantics at cluster scope, for what other blocks of the cluster wrote; it also invalidates
// L1.
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
// Makes initializations visible to the cluster and to TMA, which may complete on these barriers.
static __device__ inline void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
// Makes this thread's writes to shared memory visible to the async proxy (TMA and wgmma).
static __device__ inline void fence_async_proxy() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
