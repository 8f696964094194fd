// mma: dense GEMMs on the tensor cores of every GPU from sm_80 on.
#pragma once

#include <memory>
#include <string_view>

#include "backends/gpu/runtime.h"

namespace gemmtune::cuda {

/// The runtime must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_mma_family(gpu::Runtime& runtime);

// Texts of mma_arguments.h and of mma.cu, which follows it.
std::string_view mma_arguments_text();
std::string_view mma_text();

}  // namespace gemmtune::cuda
