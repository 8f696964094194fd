// simt: fused multiply-adds without tensor cores, correct on any GPU for any type.
#pragma once

#include <memory>

#include "backends/gpu/runtime.h"
#include "problem/problem.h"

namespace gemmtune::gpu {

/// What a config of simt and simt_moe means.
struct SimtLaunchConfig {
  std::int64_t block_m = 16;  // rows of a tile
};
/// Empty, or why another block_m is better.
std::string refuse_empty_rows(const Problem& problem, const SimtLaunchConfig& launch);

/// The runtime must outlive the family and its kernels.
std::unique_ptr<KernelFamily> make_simt_family(Runtime& runtime);

}  // namespace gemmtune::gpu
