// Loads and stores of shared memory by address. They keep their order among each other and beside barriers.
#pragma once

static __device__ __forceinline__ uint4 load_shared_words(unsigned from) {
  uint4 value;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "r"(from)
               : "memory");
  return value;
}
static __device__ __forceinline__ uint2 load_shared_two_words(unsigned from) {
  uint2 value;
  asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(value.x), "=r"(value.y) : "r"(from) : "memory");
  return value;
}
static __device__ __forceinline__ unsigned load_shared_word(unsigned from) {
  unsigned value;
  asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
static __device__ __forceinline__ unsigned load_shared_half_word(unsigned from) {
  unsigned half;
  asm volatile("ld.shared.u16 %0, [%1];" : "=r"(half) : "r"(from) : "memory");
  return half;
}
static __device__ __forceinline__ unsigned load_shared_byte(unsigned from) {
  unsigned value;
  asm volatile("ld.shared.u8 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
static __device__ __forceinline__ int load_shared_int(unsigned from) {
  int value;
  asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(from) : "memory");
  return value;
}
static __device__ __forceinline__ float load_shared_float(unsigned from) {
  float value;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(value) : "r"(from) : "memory");
  return value;
}
static __device__ __forceinline__ void load_shared_floats(unsigned from, float (&to)[2]) {
  asm volatile("ld.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(from) : "memory");
}
static __device__ __forceinline__ void load_shared_floats(unsigned from, float (&to)[4]) {
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(from)
               : "memory");
}
static __device__ __forceinline__ void store_shared_int(unsigned to, int value) {
  asm volatile("st.shared.s32 [%0], %1;" ::"r"(to), "r"(value) : "memory");
}
static __device__ __forceinline__ void store_shared_ints(unsigned to, int first, int second) {
  asm volatile("st.shared.v2.s32 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second) : "memory");
}
static __device__ __forceinline__ void store_shared_ints(unsigned to, int first, int second, int third, int fourth) {
  asm volatile("st.shared.v4.s32 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(first), "r"(second), "r"(third), "r"(fourth)
               : "memory");
}
static __device__ __forceinline__ void store_shared_float(unsigned to, float value) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(to), "f"(value) : "memory");
}
static __device__ __forceinline__ void store_shared_floats(unsigned to, float first, float second) {
  asm volatile("st.shared.v2.f32 [%0], {%1, %2};" ::"r"(to), "f"(first), "f"(second) : "memory");
}
static __device__ __forceinline__ void store_shared_floats(unsigned to, float first, float second, float third,
                                                           float fourth) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(first), "f"(second), "f"(third), "f"(fourth)
               : "memory");
}
