// What an AMD GPU's architecture gives a kernel, as far as launch configs and the performance model need it.
#pragma once

#include <cstdint>
#include <string_view>

#include "backends/gpu/driver.h"
#include "numbers/data_type.h"

namespace gemmtune::hip {

constexpr std::int64_t wave_lanes = 64;
constexpr std::int64_t simds_per_unit = 4;
constexpr std::int64_t lds_bytes_per_clock = 128;  // 32 banks of 4 bytes
constexpr std::int64_t registers_per_lane =
    512;  // vector and accumulation registers of a SIMD's waves together
constexpr std::int64_t max_waves_per_simd = 8;

/// Rates of one device; figures of AMD's data sheets for the largest device of the architecture.
struct ComputeUnit {
  std::int64_t units = 0;
  double clock_megahertz = 0;
  double flops_per_clock = 0;  // of one SIMD, with operands of 16 bits
  double flops_per_clock_8bit = 0;
  double memory_bytes_per_microsecond = 0;
  std::int64_t xcds = 1;  // dies that blocks are dealt to in turn
};

/// Requires an architecture that has_mfma().
ComputeUnit compute_unit(std::string_view architecture, const gpu::Limits& limits);

/// gfx90a, gfx942: those that kernels are compiled and checked for.
bool has_mfma(std::string_view architecture);
/// fp8 of the instructions: e4m3fnuz on gfx942, none on gfx90a.
bool has_fp8(std::string_view architecture);

}  // namespace gemmtune::hip
