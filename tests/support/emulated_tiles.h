// The AMX kernels over AMX tiles in plain C++: the same indexing, on any machine.
#pragma once

#include "backends/cpu/families/kernel_set.h"

namespace gemmtune::cpu {

/// The level `amx` with emulated tiles in its place; below it what this machine has.
KernelSet emulated_amx_set();

}  // namespace gemmtune::cpu
