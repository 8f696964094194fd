// AMX's tile instructions as tile_kernels.h wants them. They are written as assembly: the compiler's own
// wrappers take literal tile numbers only, and in GCC 12 they do not say that they read or write memory.
#pragma once

namespace gemmtune::cpu {
namespace {

struct AmxTiles {
  template <int tile>
  static void zero() {
    __asm__ volatile("tilezero %%tmm%c0" ::"i"(tile));
  }
  template <int tile>
  static void load(const void* from, long stride) {
    __asm__ volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(stride), "i"(tile) : "memory");
  }
  template <int c, int a, int b>
  static void multiply() {
    __asm__ volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  template <int c, int a, int b>
  static void multiply_bytes() {
    __asm__ volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(c), "i"(a), "i"(b));
  }
  template <int tile>
  static void store(void* to, long stride) {
    __asm__ volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(stride), "i"(tile) : "memory");
  }
};

}  // namespace
}  // namespace gemmtune::cpu
