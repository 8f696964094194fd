#include "candidates/cost_model.h"

#include <algorithm>

#include "base/rounding.h"

namespace gemmtune {

std::int64_t waves(std::int64_t tiles, std::int64_t at_once) {
  return ceil_div(std::max<std::int64_t>(tiles, 1), std::max<std::int64_t>(at_once, 1));
}

double predicted_microseconds(const KernelWork& work, const MachineRates& machine) {
  const std::int64_t tiles = std::max<std::int64_t>(work.tiles, 1);
  const std::int64_t at_once = std::clamp<std::int64_t>(work.tiles_at_once, 1, tiles);
  const auto units = static_cast<double>(at_once);
  const std::int64_t busiest = work.busiest_tiles > 0 ? work.busiest_tiles : waves(tiles, at_once);
  const double uneven = static_cast<double>(busiest) * units / static_cast<double>(tiles);
  const double busy = (work.flops / (machine.flops_per_microsecond * work.efficiency) +
                       work.cache_bytes / machine.cache_bytes_per_microsecond) /
                      units * uneven;
  double rate = units * machine.memory_bytes_per_microsecond;
  if (machine.shared_bytes_per_microsecond > 0) rate = std::min(rate, machine.shared_bytes_per_microsecond);
  const double memory = work.memory_bytes / rate;
  return machine.start_microseconds + work.tail_microseconds + std::max(busy, memory) +
         work.exposed * std::min(busy, memory);
}

}  // namespace gemmtune
