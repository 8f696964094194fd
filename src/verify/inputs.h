// Seeded random operands of a problem, as bytes of its types.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "problem/problem.h"

namespace gemmtune {

/// Host operands in plain layouts: x [M, K], w [N, K], bias [N] of y's type, scales.
struct HostOperands {
  std::vector<std::byte> x;
  std::vector<std::byte> w;
  std::vector<std::byte> bias;
  float x_scale = 1.0F;
  float w_scale = 1.0F;
};

/// Approximately normal values (x: σ = 1, w: σ = 1/√K·8, so that outputs have a realistic range in fp16 too),
/// fresh for each seed and problem, the same on every machine. `out_of_memory` where they do not fit.
Result<HostOperands> make_inputs(const Problem& problem, std::uint64_t seed);

}  // namespace gemmtune
