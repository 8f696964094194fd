// What the devices of one machine share: its memory, and cores where their sets overlap.
#pragma once

#include <cstddef>

#include "backends/backend.h"

namespace gemmtune {

/// Bytes that can still be used on the host, by the machine or by this process's control groups.
std::size_t free_host_memory_bytes();

/// The first core that both devices run on; -1 where there is none, or one of them is not made of cores.
int shared_core(const DeviceInfo& first, const DeviceInfo& second);

}  // namespace gemmtune
