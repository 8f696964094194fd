// How a kernel reads a weight: one struct a (storage type, arithmetic) pair. Requires a vector header before
// it.
//   steps       broadcasts of x that one line of a panel needs; each covers k_per_line / steps elements of k
//   line_bytes  16 columns of a panel's step
//   load_line   one vector of columns of a line, one value a step
//   load_row    `lanes · row_factor` consecutive elements of a plain row; load_x is its partner in packed x
#pragma once

namespace gemmtune::cpu {
namespace {

struct F32Source {
  using V = Vec;
  static constexpr int steps = 1, k_per_line = 1, line_bytes = 64, x_bytes = 4, w_bytes = 4,
                       row_elements = lanes;
  static void load_line(const char* line, int vector, V out[steps]) {
    out[0] = load_as<Vec>(line + vector * static_cast<int>(sizeof(Vec)));
  }
  static V broadcast_x(const char* x) { return broadcast(x); }
  static V load_row(const char* w) { return load_as<Vec>(w); }
  static V load_x(const char* x) { return load_as<Vec>(x); }
  static Vec multiply(V x, V w, Vec sum) { return fma(x, w, sum); }
};

/// A line holds pairs: the even k in the low halves, the odd k in the high ones.
struct Bf16Source : F32Source {
  static constexpr int steps = 2, k_per_line = 2, w_bytes = 2;
  static void load_line(const char* line, int vector, V out[steps]) {
    const UVec pairs = load_as<UVec>(line + vector * static_cast<int>(sizeof(Vec)));
    out[0] = reinterpret_cast<Vec>(pairs << 16);
    out[1] = reinterpret_cast<Vec>(pairs & 0xffff0000U);
  }
  static V load_row(const char* w) { return load_bf16(w); }
};

struct F16Source : F32Source {
  static constexpr int line_bytes = 32, w_bytes = 2;
  static void load_line(const char* line, int vector, V out[steps]) {
    out[0] = load_f16(line + vector * static_cast<int>(sizeof(HVec)));
  }
  static V load_row(const char* w) { return load_f16(w); }
};

}  // namespace
}  // namespace gemmtune::cpu
