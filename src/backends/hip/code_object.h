// What a compiled kernel uses, read out of its code object.
#pragma once

#include <string_view>

#include "backends/gpu/runtime.h"
#include "base/status.h"

namespace gemmtune::hip {

/// Requires a code object (64-bit ELF) with the metadata that AMD's compilers write, NT_AMDGPU_METADATA; `internal`
/// where it is none. Of several kernels the largest figures. Registers: vector registers with accumulation registers,
/// as the hardware allots them; the stack: private_segment_fixed_size.
Result<gpu::Resources> read_code_object(std::string_view code);

/// ok if the code begins as a code object for the architecture ("gfx942:sramecc+:xnack-") does: 64-bit ELF for AMD's run
/// time, the machine, and the processor's number in the flags, where that is known.
Status check_code_object(std::string_view code, std::string_view architecture);

}  // namespace gemmtune::hip
