// The constants of the mxfp4 family's cost model, a row a card. The formula is Mxfp4Family::cost().
#pragma once

#include "backends/gpu/families/fitted.h"
#include "base/fields.h"

namespace gemmtune::cuda {

/// Of kernels with one kind of instruction. Decoding is of 64 rows of the weight, of instructions of warps and 64 of k, of warp groups and 16 of k.
struct Mxfp4InstructionCost {
  double decoded;           // cycles of a warp (group) that waits for its own results,
  double row;               // and of each row of x
  double decoded_by_units;  // cycles of the multiprocessor's units, which its blocks share
  double stage;             // cycles of a pipeline stage
  gpu::OfClock from_l2;     // bytes a microsecond
  double uncovered;         // share of the smaller of loop and loads
  double stored;            // microseconds of 20,000 elements of a tile
  double wave;              // microseconds of each after the first
  double exchanged;         // microseconds of partial sums that are not sent
};

/// Microseconds, unless a line says otherwise.
struct Mxfp4Cost {
  gpu::OfClock clock;         // cycles a microsecond
  gpu::OfMemory from_memory;  // bytes a microsecond
  double plain;               // times as many cycles to decode a weight that is not packed
  double nvfp4;               // share of those cycles that packed NVFP4 takes,
  double nvfp4_waits;         // and of those of a warp (group) that waits for its own results
  double int4;                // share of those cycles that packed int4 takes, without zero points,
  double rescaled_int4;       // with sums in units of the latest group's scale,
  double scaled_int4;         // and with elements that are multiplied by scales
  double warp_loop;           // cycles of 64 of k with instructions of warps
  double decoded_together;    // as `decoded` of warp groups, if four fragments are multiplied together,
  double row_together;        // and as `row`
  double two_stages;          // share of a step that a pipeline of two stages adds, of warp groups
  double launched;            // a launch
  double stored;              // an epilogue
  double sent;                // partial sums that each further block of a cluster sends
  double streamed;            // those of stream-K, through memory
  Mxfp4InstructionCost of_warps;
  Mxfp4InstructionCost of_warpgroups;
  Mxfp4InstructionCost of_nvfp4;  // by those of warp groups
};

GEMMTUNE_FIELDS(Mxfp4InstructionCost, decoded, row, decoded_by_units, stage, from_l2, uncovered, stored, wave,
                exchanged);
GEMMTUNE_FIELDS(Mxfp4Cost, clock, from_memory, plain, nvfp4, nvfp4_waits, int4, rescaled_int4, scaled_int4,
                warp_loop, decoded_together, row_together, two_stages, launched, stored, sent, streamed,
                of_warps, of_warpgroups, of_nvfp4);

/// The constants for a device.
Mxfp4Cost mxfp4_cost(const gpu::Limits& device);

}  // namespace gemmtune::cuda
