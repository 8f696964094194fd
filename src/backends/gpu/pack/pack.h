// Weights into tiles and back on a GPU: the host neither packs nor copies them.
#pragma once

#include "backends/gpu/runtime.h"
#include "numbers/weight_layout.h"

namespace gemmtune::gpu {

/// What is compiled. `back`: from tiles into rows.
Source pack_source(bool back);

/// pack_tile64 and unpack_tile64 with pointers of the device: enqueue on its first stream and do not wait.
/// `invalid` where a pointer is null or `packed` not at a multiple of 16 bytes, `unsupported` where there is
/// no compiler.
Status pack_tile64(Runtime& runtime, const Tile64& shape, const void* plain, void* packed);
Status unpack_tile64(Runtime& runtime, const Tile64& shape, const void* packed, void* plain);

}  // namespace gemmtune::gpu
