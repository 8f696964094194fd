// What a config of simt and simt_moe means.
#pragma once

#include <cstdint>
#include <string>

#include "problem/problem.h"

namespace gemmtune::gpu {

struct SimtLaunchConfig {
  std::int64_t block_m = 16;  // rows of a tile
};
/// Empty, or why another block_m is better.
std::string refuse_empty_rows(const Problem& problem, const SimtLaunchConfig& launch);

}  // namespace gemmtune::gpu
