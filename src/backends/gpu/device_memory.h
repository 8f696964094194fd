// Device memory in each Placement.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/gpu/driver.h"

namespace gemmtune::gpu {

/// The driver must outlive the buffer. Data begins at a multiple of 256 bytes, but for page_end.
///
/// page_end: the last byte lies before addresses that are reserved and not mapped, so that a read or write
/// past the end is an illegal access, which ends the context (TMA reads outside of a tensor map's box are no
/// such access: they never happen). pool: as plain; drivers back large allocations with large pages.
Result<std::unique_ptr<Buffer>> allocate_memory(Driver& driver, std::size_t bytes, Placement placement);

inline constexpr std::size_t guard_bytes = 4096;

}  // namespace gemmtune::gpu
