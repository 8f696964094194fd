// The families of an NVIDIA GPU.
#pragma once

#include <span>

#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

/// Those of gpu/ and of cuda/, in the order of their ranks; the build writes the list (families.cmake).
std::span<const gpu::FamilyEntry* const> family_entries();

}  // namespace gemmtune::cuda
