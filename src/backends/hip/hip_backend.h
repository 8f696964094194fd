// The hip backend: AMD's GPUs.
#pragma once

#include "backends/backend.h"

namespace gemmtune::hip {

const Backend& hip_backend();

}  // namespace gemmtune::hip
