// The part of the kernel arguments that all Hopper families share. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::cuda {

/// A packed weight in the layout tile64x128: tiles of 64 rows x 128 bytes of k, stored as TMA writes them
/// with its 128-byte swizzle.
struct PackedWeight {
  const unsigned char* data;
  int tiles;    // along the rows
  int k_atoms;  // tiles along k
};

static_assert(sizeof(PackedWeight) == 16 && GEMMTUNE_OFFSET(PackedWeight, k_atoms) == 12,
              "host and device layouts differ");

}  // namespace gemmtune::cuda
