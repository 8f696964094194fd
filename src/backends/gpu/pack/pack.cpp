#include "backends/gpu/pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "base/rounding.h"

namespace gemmtune::gpu {

std::string_view pack_text();  // pack.cu

namespace {

constexpr std::int64_t threads = 256;
constexpr std::int64_t most_blocks = 4096;

/// As in pack.cu.
struct Arguments {
  void* rows;
  void* tiles;
  long long n;
  long long row_bytes;
  long long pieces;
  long long units;
};

Status pack(Runtime& runtime, const Tile64& shape, void* rows, void* tiles, bool back) {
  const std::int64_t units = shape.bytes() / Tile64::unit_bytes;
  if (units == 0) return {};
  // On the device a wrong address would end every use of it.
  if (rows == nullptr || tiles == nullptr) return Status::invalid("a weight at a null pointer");
  if (reinterpret_cast<std::uintptr_t>(tiles) % Tile64::unit_bytes != 0)
    return Status::invalid("a packed weight at {}: not at a multiple of {} bytes", fmt::ptr(tiles),
                           Tile64::unit_bytes);
  const auto program = runtime.load(pack_source(back));
  if (!program.ok()) return Status::unsupported("{}", program.message());
  Arguments values{rows, tiles, shape.n, shape.row_bytes(), shape.pieces(), units};
  void* arguments[] = {&values};
  LaunchShape launch;
  launch.threads = threads;
  launch.grid[0] = static_cast<unsigned>(std::min(ceil_div(units, threads), most_blocks));
  return (*program)->launch(launch, arguments, {});
}

}  // namespace

Source pack_source(bool back) {
  return {"pack", std::string(pack_text()), {back ? "BACK=1" : "BACK=0"}, "pack"};
}

Status pack_tile64(Runtime& runtime, const Tile64& shape, const void* plain, void* packed) {
  return pack(runtime, shape, const_cast<void*>(plain), packed, false);
}

Status unpack_tile64(Runtime& runtime, const Tile64& shape, const void* packed, void* plain) {
  return pack(runtime, shape, plain, const_cast<void*>(packed), true);
}

}  // namespace gemmtune::gpu
