// The cost model of the wgmma family: its constants, a row a card, and the formula.
#pragma once

#include "backends/cuda/families/wgmma/wgmma_launch_config.h"
#include "backends/gpu/families/fitted.h"
#include "base/fields.h"

namespace gemmtune::cuda {

/// Cycles and microseconds of a block, bytes of all blocks, unless a line says otherwise. An instruction is of 64 rows and 32 bytes of k.
struct WgmmaCost {
  gpu::OfClock clock;          // cycles a microsecond
  double refill;               // cycles from the release of a stage until it is full again
  double stages_under_way;     // of the pipeline, which do not hide that
  double into_multiprocessor;  // bytes a cycle
  gpu::OfClock from_l2;        // bytes a microsecond
  gpu::OfMemory distinct;      // bytes a microsecond of what differs between blocks, through L2
  gpu::OfMemory from_memory;   // bytes a microsecond
  gpu::OfMemory under_way;     // bytes under way with which memory is busy
  double few_under_way;        // exponent of the lack of them
  double few_blocks;  // times as long from memory for each multiprocessor of a block, if that is above 1
  double few_blocks_of_scales;  // with scales of blocks: exponent of the lack of blocks
  double narrow_instruction;    // cycles of an instruction, of which narrow ones are bound by shared memory,
  double narrow_instruction_column;  // and of each column
  double slowdown;                   // of the tensor cores, under load
  double promotion;            // cycles of a step with one set of partial sums, beside products and additions
  double promotion_of_scales;  // the same with scales of blocks
  double two_sets;             // cycles of a step with two sets of partial sums,
  double two_sets_of_scales;   // the same with scales of blocks,
  double two_sets_column;      // of each column,
  double two_sets_scale;       // and of each scale of a thread
  double energy_of_loads;    // share of time for each 1 / block_m + 1 / block_n more than a tile of 128 x 256
  double energy_of_choices;  // share of time for each choice of a column's block of scales
  double stored;             // microseconds of an epilogue,
  double stored_elements;    // and elements of the tile a microsecond
  double whole_staging;      // share of that if the staging buffers hold the tile
  double exchanged;          // microseconds of split-K,
  double exchanged_bytes;    // bytes of a tile's sums a microsecond,
  double exchanged_block;    // and microseconds of each block but the first
  double parts_of_tiles;     // times as long where blocks share x and load parts of a packed tile
  double launched;           // microseconds of a launch,
  double multicast;          // and of one with multicast
};

GEMMTUNE_FIELDS(WgmmaCost, clock, refill, stages_under_way, into_multiprocessor, from_l2, distinct,
                from_memory, under_way, few_under_way, few_blocks, few_blocks_of_scales, narrow_instruction,
                narrow_instruction_column, slowdown, promotion, promotion_of_scales, two_sets,
                two_sets_of_scales, two_sets_column, two_sets_scale, energy_of_loads, energy_of_choices,
                stored, stored_elements, whole_staging, exchanged, exchanged_bytes, exchanged_block,
                parts_of_tiles, launched, multicast);

/// The constants for a device.
WgmmaCost wgmma_cost(const gpu::Limits& device);
/// In microseconds; meant to rank kernels, not to state their time.
double predicted_wgmma(const Problem& problem, const WgmmaLaunchConfig& launch, const HopperLimits& limits,
                       const WgmmaCost& cost);

}  // namespace gemmtune::cuda
