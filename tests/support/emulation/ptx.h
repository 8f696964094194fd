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

#ifdef ELEMENT
static inline void multiply(float (&d)[4], const unsigned (&a)[4], unsigned b0, unsigned b1) {
  using namespace gemmtune::emulation;
  constexpr Operation operation = ELEMENT == 3   ? Operation::mma_m16n8k32_e4m3
                                  : ELEMENT == 2 ? Operation::mma_m16n8k16_bf16
                                                 : Operation::mma_m16n8k16_f16;
  const MmaOperands in{{a[0], a[1], a[2], a[3]}, {b0, b1}, {d[0], d[1], d[2], d[3]}};
  const FourFloats out = together<FourFloats>(operation, in);
  for (int i = 0; i < 4; ++i) d[i] = out.value[i];
}
#endif
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
static inline void copy_unit(unsigned to, const unsigned char* from, long long at, bool there) {
  gemmtune_emulation_calls.copy_async(to, there ? from + at : from, there ? 16 : 0);
}
static inline void commit_copies() { gemmtune_emulation_calls.commit(); }
template <int pending>
static inline void wait_for_copies() {
  gemmtune_emulation_calls.wait(pending);
}
