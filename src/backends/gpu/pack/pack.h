// Packs and unpacks weights on a GPU (layouts tile64x128, aiter16x16 and fragment64): the host neither packs nor copies them.
#pragma once

#include "backends/gpu/runtime.h"
#include "numbers/weight_layout.h"

namespace gemmtune::gpu {

/// The source of all; `unpack`: from tiles into rows; `shuffled`: aiter16x16.
Source pack_source(bool unpack, bool shuffled = false);

/// pack_tile64 and unpack_tile64 with device pointers: enqueue on the default stream and do not wait.
/// `invalid` if a pointer is null or `packed` is not aligned to 16 bytes, `unsupported` without a compiler.
Status pack_tile64(Runtime& runtime, const Tile64& shape, const void* plain, void* packed);
Status unpack_tile64(Runtime& runtime, const Tile64& shape, const void* packed, void* plain);

/// The same of weights of 4 bits: the layout fragment64. `integers`: int4.
Source fragment_source(bool unpack, bool integers);
Status pack_fragments(Runtime& runtime, const Fragment64& shape, bool integers, const void* plain,
                      void* packed);
Status unpack_fragments(Runtime& runtime, const Fragment64& shape, bool integers, const void* packed,
                        void* plain);

/// The same of aiter16x16. Require shape.fits().
Status shuffle_tile16(Runtime& runtime, const Tile16& shape, const void* plain, void* packed);
Status unshuffle_tile16(Runtime& runtime, const Tile16& shape, const void* packed, void* plain);

}  // namespace gemmtune::gpu
