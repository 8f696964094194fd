// simt: plain multiply-adds, for being right on any GPU with any type.
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

/// The runtime must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_simt_family(Runtime& runtime);

std::string_view simt_text();  // simt.cu

}  // namespace gemmtune::gpu
