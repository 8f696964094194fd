// A device whose untuned calls run the vendor's library: what --baseline library measures against.
#pragma once

#include <memory>

#include "backends/backend.h"

namespace gemmtune {

/// Device::fallback() is Device::baseline() for each problem that the library takes.
std::unique_ptr<Device> with_library_baseline(std::unique_ptr<Device> device);

}  // namespace gemmtune
