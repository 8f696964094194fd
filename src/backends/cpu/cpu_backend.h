// The cpu backend: always available.
#pragma once

#include "backends/backend.h"

namespace gemmtune::cpu {

const Backend& cpu_backend();

}  // namespace gemmtune::cpu
