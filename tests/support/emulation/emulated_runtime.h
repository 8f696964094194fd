// A GPU on the emulation as kernel families see it, and a kernel's result against the float64 reference.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/gpu/runtime.h"
#include "support/emulation/emulation.h"
#include "verify/inputs.h"

namespace gemmtune::emulation {

class EmulatedRuntime final : public gpu::Runtime {
 public:
  /// "gfx90a", "gfx942", "sm_80" …, with that many compute units (0: those of its largest device).
  explicit EmulatedRuntime(std::string architecture, int units = 0);
  const gpu::Limits& limits() const override { return limits_; }
  const std::string& architecture() const override { return architecture_; }
  Result<std::shared_ptr<gpu::Program>> load(const gpu::Source& source) override;

  /// What launches count from now on; null: nothing.
  Statistics* statistics = nullptr;

 private:
  std::string architecture_;
  gpu::Limits limits_;
};

/// odd: gaps between rows and between batches, no operand has an alignment beyond its elements'. side_by_side: row i of all
/// batches before row i + 1 of any, [M, B, K] and [M, B, N].
enum class Strides { dense, odd, side_by_side };

/// y of a run, its rows [B, M, N] without gaps, or what is wrong with the run or with the memory around its rows.
struct EmulatedOutput {
  std::string wrong;  // "": nothing
  std::vector<std::byte> y;
};

/// Runs a kernel that an EmulatedRuntime has built, on copies of the operands, each in a buffer of its own.
EmulatedOutput run_kernel(const Kernel& kernel, const Problem& problem, const HostOperands& host,
                          Strides strides = Strides::dense);

/// Builds and runs the kernel on random operands; "", or what is wrong with the result,
/// the memory around it or the run.
std::string check_kernel(const KernelFamily& family, const Problem& problem, const Config& config,
                         Strides strides = Strides::dense);

}  // namespace gemmtune::emulation
