// A kernel of fused_moe on the emulation, against the float64 reference.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/backend.h"

namespace gemmtune::emulation {

/// What a run goes by beside problem and config.
struct MixtureRun {
  std::vector<std::int32_t> ids;  // [M, topk], shared experts aside; empty: at random
  bool gaps = false;              // between the rows of x and of y
};

/// Builds and runs the kernel on random operands, each in a buffer of its own; weights of experts without tokens are nowhere, so
/// that a read of them is an error. Rows of tokens with an id that is no expert must be NaN, but for -1, an empty slot, whose weight
/// is NaN. "", or what is wrong.
std::string check_mixture(const KernelFamily& family, const Problem& problem, const Config& config,
                          const MixtureRun& run = {});

}  // namespace gemmtune::emulation
