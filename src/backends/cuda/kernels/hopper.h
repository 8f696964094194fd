// The device code that kernels for Hopper share.
#pragma once

#include <string_view>

namespace gemmtune::cuda {

/// The text of hopper.cuh. Comes after gpu::number_source().
std::string_view hopper_source();

}  // namespace gemmtune::cuda
