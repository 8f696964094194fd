// The cards on which constants of cost models were fitted, as the driver states them: twice the clock of the memory times the width of its bus, and the
// highest clock of the multiprocessors.
#pragma once

#include "backends/cuda/hopper_launch.h"
#include "backends/gpu/families/fitted.h"

namespace gemmtune::cuda {

inline constexpr gpu::Card a100{"A100 80GB", 2.039040e6, 1410};
inline constexpr gpu::Card h100{"H100 80GB HBM3", 3.352320e6, 1980};
inline constexpr gpu::Card h200{"H200", 4.814304e6, 1980};

/// As the drivers of two H200s count them.
inline constexpr ClusterCounts h200_clusters{0, 132, 66, 39, 30, 22, 17, 15, 15};

}  // namespace gemmtune::cuda
