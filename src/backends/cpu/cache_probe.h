// How much last-level cache a device really has: virtual machines report what the host has.
#pragma once

#include <cstddef>
#include <span>

#include "backends/cpu/affinity.h"

namespace gemmtune::cpu {

/// The rate at which one thread reads a set of `bytes`.
struct ReadRate {
  std::size_t bytes = 0;
  double bytes_per_second = 0;
};

/// The smallest measured set from which on reading is no faster than from the largest one (within a quarter):
/// what a cache has no part in any more. 0 where no such step is seen. Requires rising sizes.
std::size_t first_uncached_bytes(std::span<const ReadRate> rates);

/// Bytes from which on a working set of these cores cannot stay in the last-level cache, measured once a
/// process and list of cores by streaming reads over growing sets, in less than half a second. At most what
/// the operating system reports, where it reports anything; from 4 MiB to 512 MiB.
std::size_t effective_last_level_cache(const CoreList& cores);

}  // namespace gemmtune::cpu
