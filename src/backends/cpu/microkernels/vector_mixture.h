// What mixtures of experts do beside multiplying, for every vector instruction set: the activations silu and swiglu, and
// weighted sums. Requires a vector header.
#pragma once

#include "backends/cpu/microkernels/decode.h"

namespace gemmtune::cpu {
namespace {

/// The first `count` < lanes floats, then zeros.
inline Vec load_part(const float* from, long count) {
  Vec v{};
  __builtin_memcpy(&v, from, static_cast<unsigned long>(count) * sizeof(float));
  return v;
}
inline void store_part(float* to, long count, Vec v) {
  __builtin_memcpy(to, &v, static_cast<unsigned long>(count) * sizeof(float));
}

/// e^v for v within ±87, to three units in the last place: v = n · ln 2 + r with |r| ≤ ln 2 / 2, where e^r is
/// its Taylor polynomial of degree 7.
inline Vec exponential(Vec v) {
  constexpr float to_integer = 0x1.8p23F;  // float32 of this size have a spacing of 1
  const Vec shifted = v * 0x1.715476p0F + to_integer;
  const Vec n = shifted - to_integer;
  // ln 2 in two parts, the first with so few bits that n · part is exact.
  const Vec r = (v - n * 0x1.62e4p-1F) - n * 0x1.7f7d1cp-20F;
  Vec power = Vec{} + 1.0F / 5040;
  power = fma(power, r, Vec{} + 1.0F / 720);
  power = fma(power, r, Vec{} + 1.0F / 120);
  power = fma(power, r, Vec{} + 1.0F / 24);
  power = fma(power, r, Vec{} + 1.0F / 6);
  power = fma(power, r, Vec{} + 0.5F);
  power = fma(power, r, Vec{} + 1.0F);
  power = fma(power, r, Vec{} + 1.0F);
  // The low bits of `shifted` are n: into the exponent with them.
  return reinterpret_cast<Vec>(reinterpret_cast<UVec>(power) + (reinterpret_cast<UVec>(shifted) << 23));
}

inline Vec at_most(Vec v, float bound) { return v > bound ? Vec{} + bound : v; }
inline Vec at_least(Vec v, float bound) { return v < bound ? Vec{} + bound : v; }

/// v / (1 + e^(−slope · v)), which is −0 far below zero, and NaN of −∞.
inline Vec silu(Vec v, float slope) {
  constexpr float bound = 87;
  const Vec power = v * -slope;
  return power > bound ? v * 0.0F : v / (1.0F + exponential(at_least(power, -bound)));
}

struct SiluGated {
  static Vec of(Vec gate, Vec up, const ActivateArgs& args) {
    const Vec value = silu(gate * args.weight, 1);
    return args.up == nullptr ? value : value * (up * args.weight);
  }
};

struct SwigluGated {
  static constexpr float limit = 7;
  static constexpr float alpha = 1.702F;
  static Vec of(Vec gate, Vec up, const ActivateArgs& args) {
    const Vec linear = at_least(at_most(up * args.weight, limit), -limit);
    return silu(at_most(gate * args.weight, limit), alpha) * (linear + 1.0F);
  }
};

template <typename Gated>
void activate_row(const ActivateArgs& args) {
  const float* up = args.up == nullptr ? args.gate : args.up;
  const long full = args.count / lanes * lanes;
  for (long i = 0; i < full; i += lanes)
    store_as(args.out + i, Gated::of(load_as<Vec>(args.gate + i), load_as<Vec>(up + i), args));
  if (const long rest = args.count - full; rest > 0)
    store_part(args.out + full, rest,
               Gated::of(load_part(args.gate + full, rest), load_part(up + full, rest), args));
}

void add_row(const AddRowArgs& args) {
  const Vec factor = Vec{} + args.factor;
  const long full = args.count / lanes * lanes;
  for (long i = 0; i < full; i += lanes) {
    const Vec product = load_as<Vec>(args.row + i) * factor;
    store_as(args.sum + i, args.add ? load_as<Vec>(args.sum + i) + product : product);
  }
  for (long i = full; i < args.count; ++i) {
    const float product = args.row[i] * args.factor;
    args.sum[i] = args.add ? args.sum[i] + product : product;
  }
}

}  // namespace
}  // namespace gemmtune::cpu
