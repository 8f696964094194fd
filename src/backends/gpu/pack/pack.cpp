#include "backends/gpu/pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/pack/pack_arguments.h"
#include "base/rounding.h"

namespace gemmtune::gpu {

namespace {

constexpr std::int64_t pack_threads = 256;
constexpr std::int64_t max_pack_blocks = 4096;
constexpr std::int64_t unit_bytes = Tile64::unit_bytes;
static_assert(Fragment64::unit_bytes == unit_bytes);

/// What a layout's tiles cover.
struct Tiles {
  std::int64_t n = 0;
  std::int64_t row_bytes = 0;
  std::int64_t along_k = 0;
  std::int64_t bytes = 0;
  bool shuffled = false;
};

Tiles tiles_of(const Tile64& shape) {
  return {shape.n, shape.row_bytes(), shape.row_chunks(), shape.bytes(), false};
}
Tiles tiles_of(const Tile16& shape) {
  return {shape.n, shape.row_bytes(), shape.row_bytes() / Tile16::chunk_bytes, shape.bytes(), true};
}

/// Moves `units` of 16 bytes between rows and packed tiles, a thread each.
template <typename Arguments>
Status move_units(Runtime& runtime, const Source& source, void* rows, void* tiles, std::int64_t units,
                  Arguments values) {
  if (units == 0) return {};
  // An invalid address would end the device's context.
  if (rows == nullptr || tiles == nullptr) return Status::invalid("a weight at a null pointer");
  if (reinterpret_cast<std::uintptr_t>(tiles) % unit_bytes != 0)
    return Status::invalid("a packed weight at {}: not at a multiple of {} bytes", fmt::ptr(tiles),
                           unit_bytes);
  const auto program = runtime.load(source);
  if (!program.ok()) return Status::unsupported("{}", program.message());
  void* arguments[] = {&values};
  LaunchShape launch;
  launch.threads = pack_threads;
  launch.grid[0] = static_cast<unsigned>(std::min(ceil_div(units, pack_threads), max_pack_blocks));
  return (*program)->launch(launch, arguments, {});
}

Status pack(Runtime& runtime, const Tiles& shape, void* rows, void* tiles, bool unpack) {
  const std::int64_t units = shape.bytes / unit_bytes;
  const PackArguments values{static_cast<unsigned char*>(rows),
                             static_cast<unsigned char*>(tiles),
                             shape.n,
                             shape.row_bytes,
                             shape.along_k,
                             units};
  return move_units(runtime, pack_source(unpack, shape.shuffled), rows, tiles, units, values);
}

Status fragments(Runtime& runtime, const Fragment64& shape, bool integers, void* rows, void* tiles,
                 bool unpack) {
  const std::int64_t units = shape.bytes() / unit_bytes;
  const FragmentArguments values{static_cast<unsigned char*>(rows),
                                 static_cast<unsigned char*>(tiles),
                                 shape.n,
                                 shape.k / 2,
                                 shape.k_tiles(),
                                 units};
  return move_units(runtime, fragment_source(unpack, integers), rows, tiles, units, values);
}

}  // namespace

Source fragment_source(bool unpack, bool integers) {
  return {"fragment",
          include_line("backends/gpu/pack/fragment.cu"),
          {unpack ? "UNPACK=1" : "UNPACK=0", integers ? "INTEGERS=1" : "INTEGERS=0"},
          "fragment"};
}

Status pack_fragments(Runtime& runtime, const Fragment64& shape, bool integers, const void* plain,
                      void* packed) {
  return fragments(runtime, shape, integers, const_cast<void*>(plain), packed, false);
}

Status unpack_fragments(Runtime& runtime, const Fragment64& shape, bool integers, const void* packed,
                        void* plain) {
  return fragments(runtime, shape, integers, plain, const_cast<void*>(packed), true);
}

Source pack_source(bool unpack, bool shuffled) {
  std::vector<std::string> defines{unpack ? "UNPACK=1" : "UNPACK=0"};
  if (shuffled) defines.push_back("SHUFFLED=1");
  return {"pack", include_line("backends/gpu/pack/pack.cu"), std::move(defines), "pack"};
}

Status pack_tile64(Runtime& runtime, const Tile64& shape, const void* plain, void* packed) {
  return pack(runtime, tiles_of(shape), const_cast<void*>(plain), packed, false);
}

Status unpack_tile64(Runtime& runtime, const Tile64& shape, const void* packed, void* plain) {
  return pack(runtime, tiles_of(shape), plain, const_cast<void*>(packed), true);
}

Status shuffle_tile16(Runtime& runtime, const Tile16& shape, const void* plain, void* packed) {
  return pack(runtime, tiles_of(shape), const_cast<void*>(plain), packed, false);
}

Status unshuffle_tile16(Runtime& runtime, const Tile16& shape, const void* packed, void* plain) {
  return pack(runtime, tiles_of(shape), plain, const_cast<void*>(packed), true);
}

}  // namespace gemmtune::gpu
