#include "backends/hip/families/compute_unit.h"

namespace gemmtune::hip {

bool has_mfma(std::string_view architecture) {
  return architecture == "gfx90a" || architecture == "gfx942" || architecture == "gfx950";
}

gpu::Fp8 fp8_of(std::string_view architecture) {
  return architecture == "gfx942" ? gpu::Fp8::fnuz : architecture == "gfx950" ? gpu::Fp8::fn : gpu::Fp8::none;
}

std::int64_t lds_banks(std::string_view architecture) { return architecture == "gfx950" ? 64 : 32; }

bool has_wide_mfma(std::string_view architecture) { return architecture == "gfx950"; }

ComputeUnit compute_unit(std::string_view architecture, const gpu::Limits& limits) {
  ComputeUnit unit;
  unit.units = limits.multiprocessors > 0 ? limits.multiprocessors : 1;
  const auto units = static_cast<double>(unit.units);
  if (limits.shared_bytes_per_multiprocessor > 0)
    unit.lds_bytes = static_cast<std::int64_t>(limits.shared_bytes_per_multiprocessor);
  if (architecture == "gfx90a") {
    // One die of an MI250X: 110 units, 191.5 TFLOP/s, 1.6 TB/s.
    unit.clock_megahertz = 1700;
    unit.flops_per_clock = unit.flops_per_clock_8bit = 256;
    unit.memory_bytes_per_microsecond = 1.6e6 * units / 110;
    return unit;
  }
  if (architecture == "gfx950") {
    // MI350X: 256 units on 8 dies, 2.3, 4.6 and 9.2 PFLOP/s, 8 TB/s; partitions have whole dies.
    unit.clock_megahertz = 2200;
    unit.flops_per_clock = 512;
    unit.flops_per_clock_8bit = 1024;
    unit.flops_per_clock_4bit = 4096;
    unit.xcds = unit.units / 32 > 1 ? unit.units / 32 : 1;
    unit.memory_bytes_per_microsecond = 8e6 * units / 256;
    return unit;
  }
  // MI300X: 304 units on 8 dies, 1307 TFLOP/s, 5.3 TB/s; MI300A: 228 on 6; partitions have whole dies; MI308X: 80 on 4
  // with all of the memory.
  unit.clock_megahertz = 2100;
  unit.flops_per_clock = 512;
  unit.flops_per_clock_8bit = 1024;
  unit.xcds = unit.units == 304     ? 8
              : unit.units == 228   ? 6
              : unit.units == 80    ? 4
              : unit.units / 38 > 1 ? unit.units / 38
                                    : 1;
  unit.memory_bytes_per_microsecond = 5.3e6 * (unit.units == 80 ? 1 : units / 304);
  return unit;
}

}  // namespace gemmtune::hip
