// mxfp4_stream: mixtures of experts with few tokens for each and MXFP4 weights on Hopper. The weight is read at the speed of memory.
#pragma once

#include <memory>

#include "backends/backend.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_mxfp4_stream_family(gpu::Runtime& runtime, const gpu::Limits& limits);

}  // namespace gemmtune::cuda
