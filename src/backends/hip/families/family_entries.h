// The families of an AMD GPU.
#pragma once

#include <span>

#include "backends/gpu/families/family_entry.h"

namespace gemmtune::hip {

/// Those of gpu/ and of hip/, in the order of their ranks; the build writes the list (families.cmake).
std::span<const gpu::FamilyEntry* const> family_entries();

}  // namespace gemmtune::hip
