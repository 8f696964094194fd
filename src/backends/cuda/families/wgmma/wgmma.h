// wgmma: tiles of any size on Hopper: copy engine, matrix unit, one warp that loads and one or two warpgroups
// that multiply.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` makes tensor maps; building needs none.
std::unique_ptr<KernelFamily> make_wgmma_family(gpu::Runtime& runtime, const CudaDriver& driver);

std::string_view wgmma_load_text();   // wgmma_load.cuh
std::string_view wgmma_store_text();  // wgmma_store.cuh, which follows it
std::string_view wgmma_parts_text();  // wgmma_parts.cuh
std::string_view wgmma_text();        // wgmma.cu, the last

}  // namespace gemmtune::cuda
