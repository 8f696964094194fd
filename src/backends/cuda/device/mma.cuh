// The tensor core's instructions of a warp, and the matrices of 8 rows x 16 bytes that it reads and writes in shared
// memory.
#pragma once

#ifndef GEMMTUNE_EMULATION  // tests/support/emulation/ptx.h has these for the host

// d += A * B, with A of 16 rows and B of 8 columns of 32 bytes of k. A thread has rows lane / 4 and that plus 8 of d,
// of columns lane % 4 * 2 and the next; of A, in a0 to a3, those rows at bytes lane % 4 * 4 of k, then at 16 more; of
// B, in b0 and b1, column lane / 4 at the same bytes.
static __device__ __forceinline__ void mma_bf16(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void mma_f16(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                               unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}
static __device__ __forceinline__ void mma_e4m3(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3,
                                                unsigned b0, unsigned b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Loads four matrices of 8 rows x 16 bytes; lane l gives the address of row l % 8 of matrix l / 8. A thread gets of
// each its four bytes of row lane / 4.
static __device__ __forceinline__ void load_matrices(unsigned (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
// As load_matrices(), each matrix of 8 x 8 two-byte elements transposed.
static __device__ __forceinline__ void load_transposed(unsigned (&to)[4], unsigned address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

#endif

// Stores what load_matrices() loads.
static __device__ __forceinline__ void store_matrices(unsigned to, unsigned first, unsigned second, unsigned third,
                                                      unsigned fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(first), "r"(second),
               "r"(third), "r"(fourth)
               : "memory");
}
// As store_matrices(), each transposed.
static __device__ __forceinline__ void store_transposed(unsigned to, unsigned first, unsigned second, unsigned third,
                                                        unsigned fourth) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.trans.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(to), "r"(first),
               "r"(second), "r"(third), "r"(fourth)
               : "memory");
}
// Two of them, of whose rows lanes 0 to 15 give the addresses.
static __device__ __forceinline__ void store_two_transposed(unsigned to, unsigned first, unsigned second) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.trans.shared.b16 [%0], {%1, %2};" ::"r"(to), "r"(first), "r"(second)
               : "memory");
}
