// What kernels for Hopper share: device code, what the copy engine can read, parameters.
#pragma once

#include <string_view>

#include "backends/backend.h"

namespace gemmtune::cuda {

/// The text of hopper.cuh. Comes after gpu::numbers_text().
std::string_view hopper_text();

/// `unsupported` where rows or pointers are not at multiples of 16 bytes, which the copy engine needs.
Status accepts_alignment(const Problem& problem);

/// As in hopper.cuh.
struct PackedWeight {
  const void* data;
  int tiles;
  int pieces;
};
PackedWeight packed_weight(const Problem& problem, const void* data);

/// `pdl`: is_dependent().
Parameter dependent_parameter();

}  // namespace gemmtune::cuda
