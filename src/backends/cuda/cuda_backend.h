#pragma once

#include "backends/backend.h"

namespace gemmtune::cuda {

const Backend& cuda_backend();

}  // namespace gemmtune::cuda
