// mxfp4: bf16 activations by an MXFP4 weight on Hopper. The weight is decoded between shared memory and registers.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` encodes tensor maps; building needs none.
std::unique_ptr<KernelFamily> make_mxfp4_family(gpu::Runtime& runtime, const CudaDriver& driver);

/// Defines NAME(d, a, b): d += 64 x block_n products of 16 of k in bf16, a in registers.
std::string mxfp4_wgmma_macro(std::int64_t block_n, std::string_view name = "WGMMA");

// Texts of mxfp4_arguments.h and mxfp4.cu, compiled in this order.
std::string_view mxfp4_arguments_text();
std::string_view mxfp4_text();

}  // namespace gemmtune::cuda
