// A cost model for kernels that cut a GEMM into tiles: roofline, waves and cache traffic. A family says what
// its config does, the model turns that into microseconds. It is to rank the configs of one problem; nothing
// else is made of its figures.
#pragma once

#include <cstdint>

namespace gemmtune {

/// A machine, roughly. A unit is what works on one tile at a time: a thread, a multiprocessor.
struct MachineRates {
  int units = 1;
  double flops_per_microsecond = 1e5;          // of one unit, at its best
  double memory_bytes_per_microsecond = 15e3;  // that one unit draws …
  double shared_bytes_per_microsecond = 0;     // … and all together, at most; 0: no limit
  double cache_bytes_per_microsecond = 60e3;   // between a unit and the caches beyond its own first one
  double start_microseconds = 0;               // a call's own, whatever it does
};

/// What one call does. Bytes and operations are of all units together and hold the padding.
struct KernelWork {
  std::int64_t tiles = 1;          // of equal size
  std::int64_t tiles_at_once = 1;  // that units work on; at most `tiles` are
  std::int64_t busiest_tiles = 0;  // of one unit, where a grid divides them; 0: waves(tiles, tiles_at_once)
  double flops = 0;
  double efficiency = 1;    // of the arithmetic in one tile, above 0, up to 1
  double memory_bytes = 0;  // from and to memory, what is read again counted again
  double exposed = 0;       // share of the shorter of both times that does not overlap: 0 prefetched, 1 not
  double cache_bytes = 0;   // packed, re-read and re-written in caches
  double tail_microseconds = 0;  // after the last tile: sums of splits, another launch
};

/// Waves that the tiles take: the busiest unit's tiles. With `at_once` units, ceil(tiles / at_once).
std::int64_t waves(std::int64_t tiles, std::int64_t at_once);

/// start + tail + max(work, memory) + exposed · min(work, memory), with u = min(tiles, tiles_at_once) and
///   uneven = busiest tiles · u / tiles                   (1 where every unit has as many)
///   work   = (flops / (rate · efficiency) + cache_bytes / cache rate) / u · uneven
///   memory = memory_bytes / min(u · memory rate, shared rate)
/// A roofline (Williams, Waterman and Patterson 2009) whose units are as many as have a tile. Cache traffic
/// is added to arithmetic because packing and sums do not overlap with multiplying; memory does as far as the
/// kernel prefetches.
double predicted_microseconds(const KernelWork& work, const MachineRates& machine);

}  // namespace gemmtune
