// What the mma family's kernel says in PTX, for the host.
#pragma once

static inline unsigned __cvta_generic_to_shared(const void* address) {
  return gemmtune_emulation_calls.lds_offset(address);
}

namespace gemmtune::emulation {
struct MmaOperands {
  unsigned a[4];
  unsigned b[2];
  float c[4];
};
struct Four {
  unsigned word[4];
};
struct FourFloats {
  float value[4];
};
}  // namespace gemmtune::emulation

static inline void emulated_mma(gemmtune::emulation::Operation operation, float (&d)[4], unsigned a0,
                                unsigned a1, unsigned a2, unsigned a3, unsigned b0, unsigned b1) {
  using namespace gemmtune::emulation;
  const MmaOperands in{{a0, a1, a2, a3}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
  const FourFloats out = together<FourFloats>(operation, in);
  for (int i = 0; i < 4; ++i) d[i] = out.value[i];
}
static inline void mma_bf16(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                            unsigned b1) {
  emulated_mma(gemmtune::emulation::Operation::mma_m16n8k16_bf16, d, a0, a1, a2, a3, b0, b1);
}
static inline void mma_f16(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                           unsigned b1) {
  emulated_mma(gemmtune::emulation::Operation::mma_m16n8k16_f16, d, a0, a1, a2, a3, b0, b1);
}
static inline void mma_e4m3(float (&d)[4], unsigned a0, unsigned a1, unsigned a2, unsigned a3, unsigned b0,
                            unsigned b1) {
  emulated_mma(gemmtune::emulation::Operation::mma_m16n8k32_e4m3, d, a0, a1, a2, a3, b0, b1);
}
static inline void load_matrices(unsigned (&to)[4], unsigned address) {
  using namespace gemmtune::emulation;
  const Four four = together<Four>(Operation::ldmatrix_x4, address);
  for (int i = 0; i < 4; ++i) to[i] = four.word[i];
}
static inline void load_transposed(unsigned (&to)[4], unsigned address) {
  using namespace gemmtune::emulation;
  const Four four = together<Four>(Operation::ldmatrix_x4_trans, address);
  for (int i = 0; i < 4; ++i) to[i] = four.word[i];
}
static inline void copy_unit(unsigned to, const unsigned char* from, int bytes) {
  gemmtune_emulation_calls.copy_async(to, from, bytes);
}
static inline void commit_copies() { gemmtune_emulation_calls.commit(); }
template <int pending>
static inline void wait_for_copies() {
  gemmtune_emulation_calls.wait(pending);
}
