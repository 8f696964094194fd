#include "backends/gpu/activation/silu_and_mul.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "backends/gpu/activation/silu_and_mul_arguments.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/moe/moe_layer.h"
#include "base/rounding.h"

namespace gemmtune::gpu {

namespace {

// THREADS and WIDTH of the kernel, and the bytes that it reads at once.
constexpr std::int64_t block_threads = 128;
constexpr std::int64_t thread_columns = 8;
constexpr std::int64_t vector_bytes = 16;
constexpr std::int64_t max_blocks_per_row = 65535;

std::size_t index_of(DataType type) { return static_cast<std::size_t>(element_code(type)); }

bool takes_vectors(const SiluAndMul& call) {
  if (call.columns % thread_columns != 0) return false;
  std::uintptr_t together = 0;
  for (const void* pointer : {call.gate, call.up, static_cast<const void*>(call.y)})
    together |= reinterpret_cast<std::uintptr_t>(pointer);
  for (const std::int64_t distance : {call.ldgate, call.ldup, call.ldy})
    if (call.rows > 1) together |= static_cast<std::uintptr_t>(bytes_of(call.type, distance));
  return together % vector_bytes == 0;
}

}  // namespace

Source silu_and_mul_source(DataType type, bool dependent) {
  return {"silu_and_mul",
          include_line("backends/gpu/activation/silu_and_mul.cu"),
          {fmt::format("ELEMENT={}", element_code(type)), fmt::format("OUTPUT={}", element_code(type)),
           fmt::format("ACTIVATION={}", activation_code(Activation::silu)), "GATED=1",
           fmt::format("DEPENDENT={}", dependent ? 1 : 0)},
          "silu_and_mul"};
}

bool SiluAndMulKernels::is_loaded(DataType type) const {
  const std::lock_guard lock(loading_);
  return programs_[index_of(type)] != nullptr;
}

Result<std::shared_ptr<Program>> SiluAndMulKernels::program(DataType type) {
  const std::lock_guard lock(loading_);
  std::shared_ptr<Program>& known = programs_[index_of(type)];
  if (known == nullptr) {
    auto loaded = runtime_.load(silu_and_mul_source(type, dependent_ != nullptr));
    if (!loaded.ok()) return Status::unsupported("{}", loaded.message());
    known = std::move(*loaded);
  }
  return known;
}

Status SiluAndMulKernels::run(const SiluAndMul& call, Stream stream) {
  if (call.is_empty()) return {};
  GEMMTUNE_TRY(const auto loaded, program(call.type));
  SiluAndMulArguments values{call.gate,   call.up,   call.y,   call.columns,
                             call.ldgate, call.ldup, call.ldy, takes_vectors(call) ? 1 : 0};
  void* arguments[] = {&values};
  LaunchShape launch;
  launch.threads = block_threads;
  launch.grid[0] = static_cast<unsigned>(call.rows);
  launch.grid[1] = static_cast<unsigned>(
      std::min(ceil_div(call.columns, block_threads * thread_columns), max_blocks_per_row));
  launch.extension = dependent_;
  return loaded->launch(launch, arguments, stream);
}

}  // namespace gemmtune::gpu
