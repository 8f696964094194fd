// The cost model of the wgmma_moe family: its constants, a row a card, and the formula.
#pragma once

#include <array>

#include "backends/cuda/families/wgmma_moe/wgmma_moe_launch_config.h"
#include "backends/gpu/families/fitted.h"
#include "base/fields.h"

namespace gemmtune::cuda {

/// An instruction is of 64 rows of the weight and 32 bytes of k, of an MXFP4 weight 16 elements of k. A wide tile has 96 tokens or more.
struct WgmmaMoeCost {
  gpu::OfClock clock;                // cycles a microsecond
  gpu::OfMemory from_memory;         // bytes a microsecond
  gpu::OfClock from_l2;              // bytes a microsecond
  gpu::OfClock into_multiprocessor;  // bytes a microsecond
  double wide_loads;                 // share of that for the bytes that wide tiles load
  double latency;                    // microseconds until a released stage is full again
  double launched;                   // microseconds of the sum and of launches,
  double stage;                      // and of each stage's launch
  double sorting;                    // microseconds of a sort by a kernel,
  double sorted_pairs;               // and pairs of token and expert a microsecond
  double block_sorting;              // microseconds of a sort in both stages,
  double block_sorted_pair;          // and of a pair
  double instruction;        // cycles of an instruction, which reads 2 KiB of the weight from shared memory,
  double instruction_token;  // and of each token
  double
      promoted_token;  // cycles of a promotion of a token's sums, beside which the other warp group multiplies
  double promotion;    // cycles of the wait at its end,
  double promotion_token;    // and of each token
  double covered_promotion;  // share of that wait with two warp groups
  double
      decoded_by_three;  // cycles of an instruction of an MXFP4 weight beside products, with three warp groups and more,
  double decoded_by_two;     // with two,
  double decoded_two_tiles;  // with two that have two tiles of 64 rows each,
  double decoded_alone;      // and more with one
  double group_token;        // cycles of the sums of a group of int4 that are added, of each token,
  double group;              // and of the wait for them;
  double group_factors;      // or of the factors of a group's elements
  double stored;             // microseconds of an epilogue,
  double stored_elements;    // and elements of the tile a microsecond
  double stored_wide;        // the same of wide tiles of fp8
  double stored_wide_elements;
  double cluster;           // times as long for fp8 in clusters, whose blocks wait for each other
  double scales_read;       // times as long for scales of tokens that have no registers
  double lone_from_memory;  // times as long from memory for one warp group that waits for each 128 of k
  double quantized;         // microseconds of the hidden layer's quantization by the first stage,
  double quantizing;        // or by a kernel,
  double quantizing_bytes;  // which reads and writes this times its bytes
};

GEMMTUNE_FIELDS(WgmmaMoeCost, clock, from_memory, from_l2, into_multiprocessor, wide_loads, latency, launched,
                stage, sorting, sorted_pairs, block_sorting, block_sorted_pair, instruction,
                instruction_token, promoted_token, promotion, promotion_token, covered_promotion,
                decoded_by_three, decoded_by_two, decoded_two_tiles, decoded_alone, group_token, group,
                group_factors, stored, stored_elements, stored_wide, stored_wide_elements, cluster,
                scales_read, lone_from_memory, quantized, quantizing, quantizing_bytes);

/// The constants for a device.
WgmmaMoeCost wgmma_moe_cost(const gpu::Limits& device);
/// In microseconds; meant to rank kernels, not to state their time.
double predicted_wgmma_moe(const Problem& problem, const std::array<WgmmaMoeStage, 2>& stages,
                           const HopperLimits& limits, const WgmmaMoeCost& cost);

}  // namespace gemmtune::cuda
