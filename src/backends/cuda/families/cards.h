// The cards on which constants of cost models were fitted, as the driver states them: twice the clock of the memory times the width of its bus, and the
// highest clock of the multiprocessors.
#pragma once

#include "backends/gpu/families/fitted.h"

namespace gemmtune::cuda {

inline constexpr gpu::Card a100{"A100 80GB", 2.039040e6, 1410};
inline constexpr gpu::Card h100{"H100 80GB HBM3", 3.352320e6, 1980};
inline constexpr gpu::Card h200{"H200", 4.814304e6, 1980};

}  // namespace gemmtune::cuda
