// What kernels for Hopper share: device code, what the copy engine can read, parameters.
#pragma once

#include <string_view>

#include "backends/backend.h"
#include "backends/cuda/cuda_driver.h"

namespace gemmtune::cuda {

/// The text of hopper.cuh. Comes after gpu::numbers_text().
std::string_view hopper_text();

/// Whether the device and its driver have what these kernels need.
inline bool is_hopper(const CudaDriver& driver) {
  return driver.compute_capability() == 90 && driver.functions().tensor_map != nullptr;
}
/// The limits of the runtime's device, with the counts of clusters that the driver knows.
inline HopperLimits hopper_limits(const gpu::Runtime& runtime, const CudaDriver& driver) {
  return {runtime.limits(), driver.clusters()};
}

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
