// Shared memory, warps and the grid of moe_decode, and what they cost.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/cuda/families/weight_format.h"
#include "backends/gpu/driver.h"
#include "candidates/space.h"
#include "problem/problem.h"

namespace gemmtune::cuda {

inline constexpr std::int64_t max_decode_tokens = 8;   // columns of an instruction
inline constexpr std::int64_t max_decode_pairs = 128;  // of token and expert

/// Blocks that are all resident, one a multiprocessor, and what a stage holds: 16 rows of w1 or, of one or more entries, of w2. Sizes of k in atoms, 128 bytes of a row, of strips 32.
struct MoeDecodeLaunch {
  std::int64_t warps = 8;         // consumers
  std::int64_t teams = 1;         // of them, each of which has every teams-th unit of w1
  std::int64_t hidden_teams = 1;  // the same of experts' w2
  std::int64_t grid = 1;
  bool fp8 = false;
  bool strips = false;  // weights of 4 bits: a stage is a strip of whole rows and their scales
  WeightTraits weight;  // of strips
  bool block_scales = false;
  std::int64_t row_bytes = 0;     // of w1
  std::int64_t slab = 0;          // k of w1 in a stage
  std::int64_t steps = 0;         // k of w1 that a warp has
  std::int64_t hidden_steps = 0;  // the same of w2; of strips
  std::int64_t groups = 0;        // of 16 rows of w1, of an expert
  std::int64_t hidden_bytes = 0;  // of a row of w2
  std::int64_t hidden_slab = 0;   // k of w2 in a stage
  std::int64_t entries = 0;       // of w2 in a stage
  std::int64_t slots = 2;         // for the warps' sums of 16 rows of w1
  std::int64_t tiles = 0;         // of 16 rows of w2 that a block has at most
  std::int64_t stage_bytes = 0;
  std::int64_t num_stages = 0;
  std::int64_t shared_bytes = 0;
  std::int64_t counters = 0;  // of the grid's barrier

  std::int64_t threads() const { return (warps + (warps == 16 ? 4 : 2)) * 32; }
  /// Whether registers have room for the hidden layer of two experts.
  bool hidden_ahead() const { return warps != 15; }
};

MoeDecodeLaunch moe_decode_launch(const Problem& problem, const Config& config, const gpu::Limits& limits);
std::vector<Parameter> moe_decode_parameters(const Problem& problem);
/// Empty, or why it cannot be built.
std::string refuse_moe_decode(const MoeDecodeLaunch& launch);
/// Of MXFP4 weights up to two tokens: with more mxfp4_stream is faster (docs/lab/moe_decode.md).
bool runs_decode_untuned(const Problem& problem);
/// The config that the cost model prefers; empty if none fits.
struct MoeDecodeCost;
Config default_moe_decode_config(const Problem& problem, const gpu::Limits& limits,
                                 const MoeDecodeCost& cost);

}  // namespace gemmtune::cuda
