// What an AMD GPU's architecture gives a kernel, as far as launch configs and the performance model need it.
#pragma once

#include <cstdint>
#include <string_view>

#include "backends/gpu/driver.h"
#include "backends/gpu/families/element_code.h"
#include "numbers/data_type.h"

namespace gemmtune::hip {

inline int as_int(std::int64_t value) { return static_cast<int>(value); }

constexpr std::int64_t wave_lanes = 64;
constexpr std::int64_t simds_per_unit = 4;
constexpr std::int64_t registers_per_lane =
    512;  // vector and accumulation registers of a SIMD's waves together
constexpr std::int64_t max_waves_per_simd = 8;

/// Rates of one device; figures of AMD's data sheets for the largest device of the architecture. Wide instructions (has_wide_mfma()) have
/// twice the rate of their type.
struct ComputeUnit {
  std::int64_t units = 0;
  double clock_megahertz = 0;
  double flops_per_clock = 0;  // of one SIMD, with operands of 16 bits
  double flops_per_clock_8bit = 0;
  double flops_per_clock_4bit = 0;  // scaled instructions; 0: none
  std::int64_t lds_bytes = 65536;
  double memory_bytes_per_microsecond = 0;
  std::int64_t xcds = 1;  // dies that blocks are dealt to in turn
};

/// Requires an architecture that has_mfma().
ComputeUnit compute_unit(std::string_view architecture, const gpu::Limits& limits);

/// gfx90a, gfx942, gfx950: those that kernels are compiled and checked for.
bool has_mfma(std::string_view architecture);
/// fp8 of the instructions: e4m3fnuz on gfx942, e4m3fn (OCP) on gfx950, none on gfx90a.
gpu::Fp8 fp8_of(std::string_view architecture);
/// Of LDS, 4 bytes each: 64 on gfx950, else 32.
std::int64_t lds_banks(std::string_view architecture);
/// gfx950: instructions of 16 bytes a lane for 16-bit types and int8, of 32 for fp8, scaled ones for fp4.
bool has_wide_mfma(std::string_view architecture);

}  // namespace gemmtune::hip
