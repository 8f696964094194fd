// How much last-level cache a device really has: virtual machines report what the host has.
#pragma once

#include <cstddef>
#include <span>

#include "backends/cpu/machine/affinity.h"

namespace gemmtune::cpu {

/// The rate at which one thread reads a set of `bytes`.
struct ReadRate {
  std::size_t bytes = 0;
  double bytes_per_second = 0;
};

/// The smallest measured set from which on reading is no faster than from the largest one (within a quarter):
/// what a cache has no part in any more. 0 where no such step is seen. Requires rising sizes.
std::size_t first_uncached_bytes(std::span<const ReadRate> rates);

/// What is taken for the size of one last-level cache: `reported` by the operating system (0: unknown),
/// `seen` by a probe (0: no step). Neighbours that fill a shared cache while it is probed make it look small,
/// and they may leave a moment later; the weights of a pool for that size would then be warm. So a probe
/// corrects only reports above 64 MiB, and not to less than that.
std::size_t believable_cache_bytes(std::size_t reported, std::size_t seen);

/// Bytes from which on a working set of these cores cannot stay in the last-level cache, found once a process
/// and list of cores: believable_cache_bytes of what the operating system reports (a virtual machine reports
/// what it does not own) and, where that is large, of streaming reads over growing sets, which take less than
/// half a second. From 4 MiB to 512 MiB.
std::size_t effective_last_level_cache(const CoreList& cores);

}  // namespace gemmtune::cpu
