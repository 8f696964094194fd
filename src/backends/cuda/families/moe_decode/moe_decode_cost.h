// The cost model of the moe_decode family: its constants, a row a card, and the formula.
#pragma once

#include "backends/cuda/families/moe_decode/moe_decode_launch_config.h"
#include "backends/gpu/families/fitted.h"
#include "base/fields.h"

namespace gemmtune::cuda {

/// Microseconds, unless a line says otherwise. Kernels of a weight that has no strips differ by little.
struct MoeDecodeCost {
  double launched;            // a launch and the grid's barriers
  gpu::OfMemory from_memory;  // bytes a microsecond
  double fp4_expert;  // each expert of strips: w2 waits for the hidden layer, which each block reads whole,
  double fp4_expert_warps9;  // and more with 9 warps,
  double fp4_expert_warps;   // and with any other number than 9 and 15,
  double fp4_expert_stages;  // and with less than three stages
  double fp4_shared_bytes;   // bytes of shared memory that delay the next launch by a microsecond
  double strips_launched;    // as launched, of NVFP4 and int4; of each of their experts:
  double expert;             // for the whole block,
  double strip;              // a strip of w1 or w2 that a team waits for,
  double atom;               // 64 of k that a warp multiplies by 16 rows,
  double expert_warps9;     // and with 9 warps, which the four schedulers do not share evenly, for each team,
  double expert_warps16;    // and with 16, which have few registers
  double warps6;            // more with 6 warps,
  double warps;             // and with a number that is not the best
  double fp8_shared_bytes;  // as of MXFP4
};

GEMMTUNE_FIELDS(MoeDecodeCost, launched, from_memory, fp4_expert, fp4_expert_warps9, fp4_expert_warps,
                fp4_expert_stages, fp4_shared_bytes, strips_launched, expert, strip, atom, expert_warps9,
                expert_warps16, warps6, warps, fp8_shared_bytes);

/// The constants for a device.
MoeDecodeCost moe_decode_cost(const gpu::Limits& device);
/// In microseconds; meant to rank kernels, not to state their time.
double predicted_moe_decode(const Problem& problem, const MoeDecodeLaunch& launch, const MoeDecodeCost& cost);

}  // namespace gemmtune::cuda
