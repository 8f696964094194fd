// Device memory in each Placement.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/cuda/cuda_runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the buffer. Data begins at a multiple of 256 bytes, but for page_end.
///
/// page_end: the last byte lies before addresses that are reserved and not mapped, so that a read or write
/// past the end is an illegal access, which ends the context (the copy engine's reads outside of a tensor
/// map's box are no such access: they never happen). pool: as plain; the driver backs large allocations with
/// pages of 2 MiB.
Result<std::unique_ptr<Buffer>> allocate_memory(CudaRuntime& runtime, std::size_t bytes, Placement placement);

inline constexpr std::size_t guard_bytes = 4096;

}  // namespace gemmtune::cuda
