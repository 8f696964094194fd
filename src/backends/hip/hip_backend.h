// The hip backend: AMD's GPUs.
#pragma once

#include <span>

#include "backends/backend.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::hip {

const Backend& hip_backend();

/// The families of gpu/ and of hip/, in the order of their ranks; the build writes the list (families.cmake).
std::span<const gpu::FamilyEntry* const> family_entries();

}  // namespace gemmtune::hip
