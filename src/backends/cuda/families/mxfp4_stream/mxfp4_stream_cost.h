// The cost model of the mxfp4_stream family: its constants, a row a card, and the formula.
#pragma once

#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_launch_config.h"
#include "backends/gpu/families/fitted.h"
#include "base/fields.h"

namespace gemmtune::cuda {

/// Cycles of a strip are those of one warp, which the block's other warps hardly change. Of NVFP4 and int4 teams overlap: what one team waits for,
/// unless the block's instructions take longer.
struct StreamCost {
  gpu::OfClock clock;         // cycles a microsecond
  gpu::OfMemory from_memory;  // bytes a microsecond
  double launched;            // microseconds of a layer,
  double stage;               // and of each stage's launch
  double unhidden;            // share of the shorter of loads and products that the longer does not hide
  double sorting;             // microseconds of a sort by a kernel,
  double sorted_pairs;        // and pairs of token and expert a microsecond
  double block_sorting;       // microseconds of a sort by each block,
  double block_sorted_pair;   // and of a pair
  double strip;               // cycles of a strip,
  double strip_unit;          // each unit of k of a warp,
  double strip_group;         // each further eight tokens,
  double rows_apart;          // and of rows that are copied one by one
  double two_blocks;          // times as long with two blocks a multiprocessor, which share its units
  // Of NVFP4 and int4, cycles of a team:
  double team_slab;   // a slab,
  double team_strip;  // a strip of it,
  double team_unit;   // and each unit of k of a warp;
  // and of a multiprocessor's instructions:
  double issued_strip;  // a strip, of each warp,
  double issued_unit;   // and each unit of k;
  double loaded_slab;   // and of the warp that loads, a slab
};

GEMMTUNE_FIELDS(StreamCost, clock, from_memory, launched, stage, unhidden, sorting, sorted_pairs,
                block_sorting, block_sorted_pair, strip, strip_unit, strip_group, rows_apart, two_blocks,
                team_slab, team_strip, team_unit, issued_strip, issued_unit, loaded_slab);

/// The constants for a device.
StreamCost stream_cost(const gpu::Limits& device);
/// In microseconds; meant to rank kernels, not to state their time.
double predicted_stream(const Problem& problem, const StreamLaunches& launches, const gpu::Limits& limits,
                        const StreamCost& cost);

}  // namespace gemmtune::cuda
