#include "backends/gpu/fill/random_fill.h"

#include <algorithm>

#include "backends/gpu/fill/random_fill_arguments.h"
#include "backends/gpu/jit/device_files.h"
#include "base/rounding.h"

namespace gemmtune::gpu {

namespace {

constexpr unsigned threads = 256;
constexpr std::size_t elements_per_thread = 4;
constexpr std::size_t max_blocks = 2048;

}  // namespace

Source random_fill_source(std::size_t element_bytes) {
  const std::string_view type = element_bytes == 4   ? "unsigned int"
                                : element_bytes == 2 ? "unsigned short"
                                                     : "unsigned char";
  return {"fill_random",
          include_line("backends/gpu/fill/random_fill.cu"),
          {fmt::format("element={}", type)},
          "fill_random"};
}

Status fill_elements(Device& device, Runtime& runtime, void* to, const RandomFill& recipe) {
  if (recipe.count == 0) return {};
  const auto program = runtime.load(random_fill_source(recipe.element_bytes));
  if (!program.ok()) return Status::unsupported("{}", program.message());
  GEMMTUNE_TRY(const auto table, device.allocate(recipe.table.size(), Placement::plain));
  GEMMTUNE_RETURN_IF_ERROR(device.copy_in(table->data(), recipe.table.data(), recipe.table.size()));
  RandomFillArguments values{to, table->data(), recipe.random.state(), static_cast<long long>(recipe.count)};
  void* arguments[] = {&values};
  LaunchShape shape;
  shape.threads = threads;
  shape.grid[0] =
      static_cast<unsigned>(std::min(ceil_div(recipe.count, threads * elements_per_thread), max_blocks));
  GEMMTUNE_RETURN_IF_ERROR((*program)->launch(shape, arguments, {}));
  return device.synchronize();
}

}  // namespace gemmtune::gpu
