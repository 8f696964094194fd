// Tiles and grids of the two stages of mfma_moe, and the performance model of their kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "backends/hip/families/mfma/mfma_launch_config.h"

namespace gemmtune::hip {

/// One stage: the rows of x in a tile are tokens of one expert.
struct MfmaMoeStage {
  int number = 1;
  MfmaLaunchConfig
      tile;            // of the dense GEMM of an expert that has as many tokens as there are on the average
  Problem expert;      // that GEMM, a batch of it for each expert that has tokens
  bool gated = false;  // half of the weight's rows in a tile are of the gate
  std::int64_t columns = 0;       // of the result
  std::int64_t column_tiles = 0;  // tiles of the weight's rows
};

/// Whether scales of x and w change along k.
bool scales_by_block(const Problem& problem);
/// The hidden layer goes through stage 2 quantized.
bool quantizes_hidden(const Problem& problem);

std::array<MfmaMoeStage, 2> mfma_moe_stages(const Problem& problem, const Config& config,
                                            std::string_view architecture);

/// Empty, or why the stage cannot be built.
std::string refuse_mfma_moe(const MfmaMoeStage& stage, std::int64_t shared_bytes_per_block);

/// The bounds of both stages, with the kernels around them.
double predicted_mfma_moe(const Problem& problem, const std::array<MfmaMoeStage, 2>& stages,
                          const ComputeUnit& unit);

}  // namespace gemmtune::hip
