// Shared memory, warps and the grid of moe_decode, and what they cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/gpu/driver.h"
#include "candidates/space.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

inline constexpr std::int64_t max_decode_tokens = 8;   // columns of an instruction
inline constexpr std::int64_t max_decode_pairs = 128;  // of token and expert

/// Blocks that are all resident, one a multiprocessor, and what a stage holds: 16 rows of w1 or, of one or more entries, of w2. Sizes of k in units of 128 bytes.
struct MoeDecodeLaunch {
  std::int64_t warps = 8;  // consumers
  std::int64_t grid = 1;
  bool fp8 = false;
  bool block_scales = false;
  std::int64_t row_bytes = 0;     // of w1
  std::int64_t slab = 0;          // k of w1 in a stage
  std::int64_t steps = 0;         // k of w1 that a warp has
  std::int64_t groups = 0;        // of 16 rows of w1, of an expert
  std::int64_t hidden_bytes = 0;  // of a row of w2
  std::int64_t hidden_slab = 0;   // k of w2 in a stage
  std::int64_t entries = 0;       // of w2 in a stage
  std::int64_t tiles = 0;         // of 16 rows of w2 that a block has at most
  std::int64_t stage_bytes = 0;
  std::int64_t num_stages = 0;
  std::int64_t shared_bytes = 0;
  std::int64_t counters = 0;  // of the grid's barrier

  std::int64_t threads() const { return (warps + 2) * 32; }
};

MoeDecodeLaunch moe_decode_launch(const Problem& problem, const Config& config, const gpu::Limits& limits);
std::vector<Parameter> moe_decode_parameters();
/// Empty, or why it cannot be built.
std::string refuse_moe_decode(const MoeDecodeLaunch& launch);
double predicted_moe_decode(const Problem& problem, const MoeDecodeLaunch& launch, const gpu::Limits& limits);
/// The config that the cost model prefers; empty if none fits.
Config default_moe_decode_config(const Problem& problem, const gpu::Limits& limits);

}  // namespace gemmtune::cuda
