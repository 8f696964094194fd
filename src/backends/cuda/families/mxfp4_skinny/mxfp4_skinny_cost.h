// The constants of the mxfp4_skinny family's cost model, a row a card. The formula is Mxfp4SkinnyFamily::cost().
#pragma once

#include "backends/gpu/families/fitted.h"
#include "base/fields.h"

namespace gemmtune::cuda {

/// A unit is 64 of k of a strip of 16 rows of the weight, a group eight rows of x.
struct Mxfp4SkinnyCost {
  gpu::OfClock clock;         // cycles a microsecond
  gpu::OfMemory from_memory;  // bytes a microsecond
  double latency;             // microseconds until bytes arrive
  double unit;                // cycles of a unit of a warp by itself,
  double unit_group;          // of each group,
  double strip;               // and of a strip
  double scale_load;          // cycles of a load of scales by lanes
  double issued_unit;         // cycles of a unit in the issue slots that warps share,
  double issued_unit_group;   // of each group,
  double issued_strip;        // and of a strip
  double x_bytes;             // bytes of x a microsecond, as bf16,
  double fp4_x_bytes;         // and of MXFP4, which is decoded
  double piece;               // microseconds of a strip that the pipeline does not hold
  double launched;            // microseconds of a launch,
  double launched_packed;     // and of one with a packed weight
  double under_way;           // bytes of a pipeline that delay the first ones by a microsecond
  double exchanged;           // microseconds of split-K, each block of a cluster
};

GEMMTUNE_FIELDS(Mxfp4SkinnyCost, clock, from_memory, latency, unit, unit_group, strip, scale_load,
                issued_unit, issued_unit_group, issued_strip, x_bytes, fp4_x_bytes, piece, launched,
                launched_packed, under_way, exchanged);

/// The constants for a device.
Mxfp4SkinnyCost mxfp4_skinny_cost(const gpu::Limits& device);

}  // namespace gemmtune::cuda
