#include "backends/hip/families/compute_unit.h"

namespace gemmtune::hip {

bool has_mfma(std::string_view architecture) { return architecture == "gfx90a" || architecture == "gfx942"; }

bool has_fp8(std::string_view architecture) { return architecture == "gfx942"; }

ComputeUnit compute_unit(std::string_view architecture, const gpu::Limits& limits) {
  ComputeUnit unit;
  unit.units = limits.multiprocessors > 0 ? limits.multiprocessors : 1;
  const auto units = static_cast<double>(unit.units);
  if (architecture == "gfx90a") {
    // One die of an MI250X: 110 units, 191.5 TFLOP/s, 1.6 TB/s.
    unit.clock_megahertz = 1700;
    unit.flops_per_clock = unit.flops_per_clock_8bit = 256;
    unit.memory_bytes_per_microsecond = 1.6e6 * units / 110;
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
