// mxfp4: activations by a 4-bit weight (MXFP4, NVFP4, int4) on Hopper. The weight is decoded between shared memory and registers.
#pragma once

#include <memory>
#include <optional>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/mxfp4/mxfp4_cost.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` encodes tensor maps; building needs none.
/// `cost`: other constants than the device's, which are fitted.
std::unique_ptr<KernelFamily> make_mxfp4_family(gpu::Runtime& runtime, const CudaDriver& driver,
                                                const std::optional<Mxfp4Cost>& cost = {});

}  // namespace gemmtune::cuda
