// The cost model of the skinny family: its constants, a row a card, and the formula.
#pragma once

#include "backends/cuda/families/skinny/skinny_launch_config.h"
#include "backends/cuda/hopper_launch.h"
#include "backends/gpu/families/fitted.h"
#include "base/fields.h"

namespace gemmtune::cuda {

/// Microseconds, unless a line says otherwise.
struct SkinnyCost {
  double launched;                   // a launch
  gpu::OfMemory from_memory;         // bytes a microsecond
  gpu::OfMemory under_way;           // bytes under way with which memory is busy
  double few_under_way;              // exponent of the lack of them
  double few_blocks;                 // blocks with which memory is busy
  gpu::OfClock into_multiprocessor;  // bytes a microsecond
  double cluster_pause;              // between waves of clusters,
  double cluster_pause_loads;        // and this times what a block loads
  double pause_loads;                // the same of single blocks
  double promoted;                   // a k atom whose sums are promoted,
  double promoted_of_scales;         // one with scales of blocks,
  double promoted_column;            // and there each column of x;
  double promoted_beside;            // exponent of the blocks of a multiprocessor
  double exchanged;                  // split-K,
  double exchanged_row;              // each block of a cluster and each column
  double wrong_blocks;               // each doubling or halving of the number of blocks,
  double right_blocks;               // from this number
};

GEMMTUNE_FIELDS(SkinnyCost, launched, from_memory, under_way, few_under_way, few_blocks, into_multiprocessor,
                cluster_pause, cluster_pause_loads, pause_loads, promoted, promoted_of_scales,
                promoted_column, promoted_beside, exchanged, exchanged_row, wrong_blocks, right_blocks);

/// The constants for a device.
SkinnyCost skinny_cost(const gpu::Limits& device);
/// In microseconds; meant to rank kernels, not to state their time.
double predicted_skinny(const Problem& problem, const SkinnyLaunchConfig& launch, const HopperLimits& limits,
                        const SkinnyCost& cost);

}  // namespace gemmtune::cuda
