// The kernel families that gemmtune brings along for NVIDIA GPUs. The runtime must outlive them and their kernels. `driver` encodes tensor
// maps; building needs none. `cost`: other constants than the device's, which are fitted.
#pragma once

#include <memory>
#include <optional>

#include "backends/backend.h"
#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/mxfp4/mxfp4_cost.h"
#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny_cost.h"
#include "backends/cuda/hopper_launch.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// Dense GEMMs on the tensor cores of every GPU from sm_80 on.
std::unique_ptr<KernelFamily> make_mma_family(gpu::Runtime& runtime);
/// A layer of a mixture of experts for a few tokens as one kernel on Hopper, which reads the experts' weights at the speed of memory.
std::unique_ptr<KernelFamily> make_moe_decode_family(gpu::Runtime& runtime);
/// Activations by a 4-bit weight (MXFP4, NVFP4, int4) on Hopper. The weight is decoded between shared memory and registers.
std::unique_ptr<KernelFamily> make_mxfp4_family(gpu::Runtime& runtime, const CudaDriver& driver,
                                                const std::optional<Mxfp4Cost>& cost = {});
/// Up to 32 rows of bf16 or MXFP4 x by a 4-bit weight (MXFP4, NVFP4, int4) on Hopper, plain or packed. The weight is read at the speed of memory.
std::unique_ptr<KernelFamily> make_mxfp4_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver,
                                                       const HopperLimits& limits,
                                                       const std::optional<Mxfp4SkinnyCost>& cost = {});
/// Mixtures of experts with few tokens for each and MXFP4 weights on Hopper. The weight is read at the speed of memory.
std::unique_ptr<KernelFamily> make_mxfp4_stream_family(gpu::Runtime& runtime, const gpu::Limits& limits);
/// Few rows of x on Hopper. The weight is loaded once; A and B are swapped; clusters divide k.
std::unique_ptr<KernelFamily> make_skinny_family(gpu::Runtime& runtime, const CudaDriver& driver);
/// The general kernel of Hopper: a warp-specialized, persistent GEMM with TMA, multicast clusters and split-K.
std::unique_ptr<KernelFamily> make_wgmma_family(gpu::Runtime& runtime, const CudaDriver& driver);
/// Fused mixtures of experts on Hopper's tensor cores, a persistent grid over the tiles of all experts.
std::unique_ptr<KernelFamily> make_wgmma_moe_family(gpu::Runtime& runtime, const CudaDriver& driver);

}  // namespace gemmtune::cuda
