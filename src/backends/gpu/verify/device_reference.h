// The float64 reference of a problem in device memory: of dense GEMMs and batches of them, and of mixtures of experts.
#pragma once

#include <memory>
#include <vector>

#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

/// Must not outlive its device.
class DeviceReference {
 public:
  virtual ~DeviceReference() = default;
  /// Writes all of y, row by row without gaps, and Σ|x||w| + |bias| of each element, and waits for it. Operands are
  /// those of OutputChecker::compute_reference().
  virtual Status compute(const Operands& operands, double* values, float* magnitudes) const = 0;
};

/// What the reference of a problem compiles.
std::vector<Source> dense_reference_sources(const Problem& problem);
std::vector<Source> moe_reference_sources(const Problem& problem);

/// `unsupported` for what is no plain dense GEMM, or no mixture of experts. Both arguments must outlive it.
Result<std::unique_ptr<DeviceReference>> make_dense_reference(Runtime& runtime, Device& device,
                                                              const Problem& problem);
Result<std::unique_ptr<DeviceReference>> make_moe_reference(Runtime& runtime, Device& device,
                                                            const Problem& problem);

/// Programs of these sources, in their order.
Result<std::vector<std::shared_ptr<Program>>> load_all(Runtime& runtime, const std::vector<Source>& sources);

}  // namespace gemmtune::gpu
