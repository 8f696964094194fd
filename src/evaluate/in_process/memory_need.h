// The memory that measuring a problem takes, estimated before anything is allocated: a problem that cannot fit is
// refused with both figures, instead of after minutes or by the kernel's out-of-memory killer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/backend.h"
#include "base/status.h"
#include "measure/policy.h"

namespace gemmtune {

/// Bytes; the largest number where a sum overflows.
struct MemoryNeed {
  /// Operands twice (plain, and ending at an unreadable page), the packed weight, y in its placements, and one
  /// copy of everything that is timed. Without workspaces, which are each candidate's own.
  std::int64_t device = 0;
  /// The operands that the reference is computed from, two references, two copies of y.
  std::int64_t host = 0;
};

/// What is needed at the least for verifying a kernel of the problem and, with `timed`, for timing it.
/// Requires check(problem).ok().
MemoryNeed memory_need(const Problem& problem, CacheMode cache, bool timed);

/// Of the need, what is taken from this device's memory: on a CPU all of it.
std::int64_t bytes_on(const Device& device, const MemoryNeed& need);

/// `out_of_memory`, with what is needed and what is free, if the need cannot be met on the device; on a CPU
/// the host's part counts too. `host_limit`: bytes of host memory that this process may hold, 0: no limit.
Status check_device_memory(Device& device, const Problem& problem, const MemoryNeed& need,
                           std::size_t host_limit);
/// The same for the host's part of a GPU's problem, whose reference the device does not compute.
Status check_host_memory(const Problem& problem);

}  // namespace gemmtune
