// mxfp4_skinny: up to 32 rows of bf16 or MXFP4 x by a 4-bit weight (MXFP4, NVFP4, int4) on Hopper, plain or packed. The weight is read at the speed of memory.
#pragma once

#include <memory>
#include <optional>

#include "backends/backend.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_cost.h"
#include "backends/cuda/hopper_launch.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels.
/// `cost`: other constants than the device's, which are fitted.
std::unique_ptr<KernelFamily> make_mxfp4_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver,
                                                       const HopperLimits& limits,
                                                       const std::optional<Mxfp4SkinnyCost>& cost = {});

}  // namespace gemmtune::cuda
