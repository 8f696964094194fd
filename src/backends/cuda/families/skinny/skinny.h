// skinny: few rows of x on Hopper; the weight is streamed once.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` makes tensor maps when a kernel runs;
/// building needs none.
std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver);

std::string_view skinny_load_text();   // skinny_load.cuh
std::string_view skinny_store_text();  // skinny_store.cuh
std::string_view skinny_text();        // skinny.cu, the last

}  // namespace gemmtune::cuda
