// wgmma: the general kernel of Hopper: a warp-specialized, persistent GEMM with TMA, multicast clusters and
// split-K.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cuda/cuda_driver.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels. `driver` encodes tensor maps; building needs none.
std::unique_ptr<KernelFamily> make_wgmma_family(gpu::Runtime& runtime, const CudaDriver& driver);

// Texts of wgmma_arguments.h, wgmma_producer.cuh, wgmma_epilogue.cuh, wgmma_split_k.cuh and wgmma.cu,
// compiled in this order.
std::string_view wgmma_arguments_text();
std::string_view wgmma_producer_text();
std::string_view wgmma_block_scales_text();
std::string_view wgmma_epilogue_text();
std::string_view wgmma_split_k_text();
std::string_view wgmma_text();

}  // namespace gemmtune::cuda
