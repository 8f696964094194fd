// skinny: few rows of x on Hopper. The weight is loaded once; A and B are swapped; clusters divide k.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` encodes tensor maps; building needs none.
std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver);

// Texts of skinny_arguments.h, skinny_producer.cuh, skinny_epilogue.cuh and skinny.cu, compiled in this
// order.
std::string_view skinny_arguments_text();
std::string_view skinny_producer_text();
std::string_view skinny_block_scales_text();
std::string_view skinny_epilogue_text();
std::string_view skinny_text();

}  // namespace gemmtune::cuda
