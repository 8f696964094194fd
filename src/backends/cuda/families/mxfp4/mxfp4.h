// mxfp4: bf16 activations by an MXFP4 weight on Hopper. The weight is decoded between shared memory and registers.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` encodes tensor maps; building needs none.
std::unique_ptr<KernelFamily> make_mxfp4_family(gpu::Runtime& runtime, const CudaDriver& driver);

// Texts of mxfp4_arguments.h and mxfp4.cu, compiled in this order.
std::string_view mxfp4_arguments_text();
std::string_view mxfp4_text();

}  // namespace gemmtune::cuda
