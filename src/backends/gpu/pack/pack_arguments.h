// Arguments of packing and unpacking a weight. The host includes this file too.
#pragma once

#include "backends/gpu/jit/layout_arguments.h"

namespace gemmtune::gpu {

struct PackArguments {
  unsigned char* rows;
  unsigned char* tiles;
  long long n;          // rows
  long long row_bytes;  // of k; if no multiple of 16, bytes are copied one by one
  long long k_atoms;    // tiles along k
  long long units;      // 16 bytes each, of all tiles
};

/// Of the layout fragment64.
struct FragmentArguments {
  unsigned char* rows;
  unsigned char* tiles;
  long long n;
  long long row_bytes;  // of k, two elements each
  long long k_tiles;    // of 64
  long long units;      // 16 bytes each, of all tiles
};

static_assert(GEMMTUNE_OFFSET(FragmentArguments, n) == 16 && sizeof(FragmentArguments) == 48,
              "host and device layouts differ");
static_assert(GEMMTUNE_OFFSET(PackArguments, n) == 16 && GEMMTUNE_OFFSET(PackArguments, units) == 40 &&
                  sizeof(PackArguments) == 48,
              "host and device layouts differ");

}  // namespace gemmtune::gpu
