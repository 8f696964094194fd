// What a compiled kernel uses, read out of its machine code's file.
#pragma once

#include <string_view>

#include "backends/gpu/runtime.h"
#include "base/status.h"

namespace gemmtune::cuda {

/// Requires a cubin (64-bit ELF) with one kernel. `internal` where it is none. Attributes as cuobjdump and
/// nvdisasm name them: EIATTR_REGCOUNT, EIATTR_FRAME_SIZE of the section .nv.info.
Result<gpu::Resources> read_cubin(std::string_view code);

/// ok if the code begins as a cubin for the architecture ("sm_90a") does: 64-bit ELF, the machine, its number in the flags.
Status check_cubin(std::string_view code, std::string_view architecture);

}  // namespace gemmtune::cuda
