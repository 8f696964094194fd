#include "backends/gpu/fill/draw.h"

#include <algorithm>
#include <string>

#include "base/rounding.h"

namespace gemmtune::gpu {

std::string_view draw_text();  // draw.cu

namespace {

constexpr unsigned threads = 256;
constexpr std::size_t elements_a_thread = 4;
constexpr std::size_t most_blocks = 2048;

/// As in draw.cu.
struct Arguments {
  void* to;
  const void* table;
  unsigned long long state;
  long long count;
};

}  // namespace

Source draw_source(std::size_t element_bytes) {
  return {"draw", std::string(draw_text()), {fmt::format("ENTRY_BYTES={}", element_bytes)}, "draw"};
}

Status draw_elements(Device& device, Runtime& runtime, void* to, const Drawn& drawn) {
  if (drawn.count == 0) return {};
  const auto program = runtime.load(draw_source(drawn.element_bytes));
  if (!program.ok()) return Status::unsupported("{}", program.message());
  const auto table = device.allocate(drawn.table.size(), Placement::plain);
  if (!table.ok()) return table.status();
  GEMMTUNE_RETURN_IF_ERROR(device.copy_in((*table)->data(), drawn.table.data(), drawn.table.size()));
  Arguments values{to, (*table)->data(), drawn.random.state(), static_cast<long long>(drawn.count)};
  void* arguments[] = {&values};
  LaunchShape shape;
  shape.threads = threads;
  shape.grid[0] =
      static_cast<unsigned>(std::min(ceil_div(drawn.count, threads * elements_a_thread), most_blocks));
  GEMMTUNE_RETURN_IF_ERROR((*program)->launch(shape, arguments, {}));
  return device.synchronize();
}

}  // namespace gemmtune::gpu
