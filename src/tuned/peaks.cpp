#include "tuned/peaks.h"

#include <algorithm>
#include <array>

#include "tuned/entry.h"

namespace gemmtune {
namespace {

/// Dense TFLOP/s of a whole device, without structured sparsity. A type that the device does not compute has
/// the peak of the next wider one that it does.
struct Peaks {
  std::string_view gfx;
  int cu_num;
  double bits32;
  double bits16;
  double bits8;
  double bits4;
};

constexpr std::array<Peaks, 6> devices{{
    // AMD Instinct MI300X data sheet (TF32 653.7, BF16 1307.4, FP8 and INT8 2614.9 at 2100 MHz); MI325X has
    // the same units, the 80 units of MI308X are taken at the same clock.
    {"gfx942", 304, 653.7, 1307.4, 2614.9, 2614.9},
    // AMD Instinct MI355X data sheet: FP32 157.3, FP16 2516.6, FP8 and INT8 5033.2, FP4 10066.3 at 2400 MHz.
    {"gfx950", 256, 157.3, 2516.6, 5033.2, 10066.3},
    // AMD's announcement of MI400 (June 2025): FP8 20000, FP4 40000; the wider types as halves.
    {"gfx1250", 256, 5000, 10000, 20000, 40000},
    // NVIDIA A100 data sheet: TF32 156, BF16 312, INT8 624, INT4 1248.
    {"sm_80", 108, 156, 312, 624, 1248},
    // NVIDIA H100 and H200 SXM data sheets, halved for sparsity: TF32 494.7, BF16 989.4, FP8 and INT8 1978.9.
    {"sm_90", 132, 494.7, 989.4, 1978.9, 1978.9},
    // NVIDIA B200 data sheet, halved for sparsity: TF32 1125, BF16 2250, FP8 4500, FP4 9000.
    {"sm_100", 148, 1125, 2250, 4500, 9000},
}};

double peak_of_bits(const Peaks& peaks, int width) {
  if (width <= 4) return peaks.bits4;
  if (width <= 8) return peaks.bits8;
  return width <= 16 ? peaks.bits16 : peaks.bits32;
}

/// What a core of a CPU computes in a cycle: twice the multiplications and additions of the widest units that are sold (two of
/// AVX-512, one of AMX). Libraries may run wider instructions than the level that the row names, below AVX-512.
struct CoreWidth {
  std::string_view gfx;
  double bits32;
  double bits16;
  double bits8;
};
constexpr std::array<CoreWidth, 5> core_widths{{{"x86-scalar", 128, 256, 512},
                                                {"x86-avx2", 128, 256, 512},
                                                {"x86-avx512", 128, 256, 512},
                                                {"x86-avx512bf16", 128, 256, 512},
                                                {"x86-amx", 1024, 2048, 4096}}};
constexpr double cycles_per_microsecond = 7e3;  // no core is clocked as high
constexpr int cores_of_unknown = 1024;
constexpr double core_bytes_per_cycle = 192;          // from the nearest cache
constexpr double max_cache_bytes = 4.0 * (1 << 30);   // of a whole machine
constexpr double memory_bytes_per_microsecond = 1e7;  // of a whole machine

double shortest_of_cores(const CoreWidth& width, int cores, const Problem& problem) {
  const double cycles = cycles_per_microsecond * (cores > 0 ? cores : cores_of_unknown);
  const int narrower = std::min(bits(problem.x_type), bits(problem.w_type));
  const double computed = narrower <= 8 ? width.bits8 : narrower <= 16 ? width.bits16 : width.bits32;
  const double computing = flops(problem) / (computed * cycles);
  if (traits(problem.operation).mixture) return computing;  // which experts are read depends on the routing
  const double read = bytes(problem);
  const double loading = read / (core_bytes_per_cycle * cycles);
  const double beyond_caches = std::max(0.0, read - max_cache_bytes) / memory_bytes_per_microsecond;
  return std::max({computing, loading, beyond_caches});
}

}  // namespace

double shortest_microseconds(std::string_view gfx, int cu_num, const Problem& problem) {
  for (const CoreWidth& width : core_widths)
    if (width.gfx == gfx) return shortest_of_cores(width, cu_num, problem);
  return flops(problem) / (1e6 * peak_tflops(gfx, cu_num, problem));
}

double peak_tflops(std::string_view gfx, int cu_num, const Problem& problem) {
  if (gfx.empty()) gfx = gfx_of_cu_num(cu_num);
  const auto device = std::ranges::find_if(devices, [&](const Peaks& known) { return known.gfx == gfx; });
  if (device == devices.end()) return unknown_device_peak;
  const double whole = peak_of_bits(*device, std::min(bits(problem.x_type), bits(problem.w_type)));
  return cu_num > 0 ? whole * cu_num / device->cu_num : whole;
}

}  // namespace gemmtune
