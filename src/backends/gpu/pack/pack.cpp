#include "backends/gpu/pack/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "backends/gpu/jit/source_text.h"
#include "backends/gpu/pack/pack_arguments.h"
#include "base/rounding.h"

namespace gemmtune::gpu {

// Texts of the files beside this one.
std::string_view pack_arguments_text();
std::string_view pack_text();
std::string_view fragment_text();

namespace {

constexpr std::int64_t threads = 256;
constexpr std::int64_t max_blocks = 4096;

Status pack(Runtime& runtime, const Tile64& shape, void* rows, void* tiles, bool unpack) {
  const std::int64_t units = shape.bytes() / Tile64::unit_bytes;
  if (units == 0) return {};
  // An invalid address would end the device's context.
  if (rows == nullptr || tiles == nullptr) return Status::invalid("a weight at a null pointer");
  if (reinterpret_cast<std::uintptr_t>(tiles) % Tile64::unit_bytes != 0)
    return Status::invalid("a packed weight at {}: not at a multiple of {} bytes", fmt::ptr(tiles),
                           Tile64::unit_bytes);
  const auto program = runtime.load(pack_source(unpack));
  if (!program.ok()) return Status::unsupported("{}", program.message());
  PackArguments values{static_cast<unsigned char*>(rows),
                       static_cast<unsigned char*>(tiles),
                       shape.n,
                       shape.row_bytes(),
                       shape.pieces(),
                       units};
  void* arguments[] = {&values};
  LaunchShape launch;
  launch.threads = threads;
  launch.grid[0] = static_cast<unsigned>(std::min(ceil_div(units, threads), max_blocks));
  return (*program)->launch(launch, arguments, {});
}

Status fragments(Runtime& runtime, const Fragment64& shape, void* rows, void* tiles, bool unpack) {
  const std::int64_t units = shape.bytes() / Fragment64::unit_bytes;
  if (units == 0) return {};
  if (rows == nullptr || tiles == nullptr) return Status::invalid("a weight at a null pointer");
  if (reinterpret_cast<std::uintptr_t>(tiles) % Fragment64::unit_bytes != 0)
    return Status::invalid("a packed weight at {}: not at a multiple of {} bytes", fmt::ptr(tiles),
                           Fragment64::unit_bytes);
  const auto program = runtime.load(fragment_source(unpack));
  if (!program.ok()) return Status::unsupported("{}", program.message());
  FragmentArguments values{static_cast<unsigned char*>(rows),
                           static_cast<unsigned char*>(tiles),
                           shape.n,
                           shape.k / 2,
                           shape.k_tiles(),
                           units};
  void* arguments[] = {&values};
  LaunchShape launch;
  launch.threads = threads;
  launch.grid[0] = static_cast<unsigned>(std::min(ceil_div(units, threads), max_blocks));
  return (*program)->launch(launch, arguments, {});
}

}  // namespace

Source fragment_source(bool unpack) {
  return {"fragment",
          source_text({pack_arguments_text(), fragment_text()}),
          {unpack ? "UNPACK=1" : "UNPACK=0"},
          "fragment"};
}

Status pack_fragments(Runtime& runtime, const Fragment64& shape, const void* plain, void* packed) {
  return fragments(runtime, shape, const_cast<void*>(plain), packed, false);
}

Status unpack_fragments(Runtime& runtime, const Fragment64& shape, const void* packed, void* plain) {
  return fragments(runtime, shape, plain, const_cast<void*>(packed), true);
}

Source pack_source(bool unpack) {
  return {
      "pack", source_text({pack_arguments_text(), pack_text()}), {unpack ? "UNPACK=1" : "UNPACK=0"}, "pack"};
}

Status pack_tile64(Runtime& runtime, const Tile64& shape, const void* plain, void* packed) {
  return pack(runtime, shape, const_cast<void*>(plain), packed, false);
}

Status unpack_tile64(Runtime& runtime, const Tile64& shape, const void* packed, void* plain) {
  return pack(runtime, shape, plain, const_cast<void*>(packed), true);
}

}  // namespace gemmtune::gpu
