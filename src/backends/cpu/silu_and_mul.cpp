#include "backends/cpu/silu_and_mul.h"

#include <algorithm>
#include <type_traits>

#include "backends/cpu/families/blocked/block_gemm.h"
#include "backends/cpu/families/kernel_set.h"
#include "base/rounding.h"

namespace gemmtune::cpu {
namespace {

constexpr std::int64_t block_columns = 1024;
/// A thread's share should last some microseconds.
constexpr std::int64_t blocks_per_thread = 8;

static_assert(block_columns % chunk_elements == 0);

/// `count` elements as floats, with zeros up to a whole chunk.
void widen_row(PackX pack, const void* from, std::int64_t count, float* to) {
  pack({.x = from,
        .ldx = 0,
        .rows = 1,
        .mr = 1,
        .k = count,
        .chunks = ceil_div(count, std::int64_t{chunk_elements}),
        .out = to});
}

}  // namespace

void silu_and_mul(const SiluAndMul& call, Isa level, Executor& executor) {
  if (call.is_empty()) return;
  // Levels above widen no rows to float32.
  const Isa wide = std::min(level, Isa::avx512);
  const IsaKernels& kernels = *kernel_set(wide).at(wide);
  const DecodeKernels& decode = decode_kernels(wide);
  const auto element = static_cast<std::size_t>(element_of(call.type));
  const auto at = [&](auto* base, std::int64_t row, std::int64_t ld, std::int64_t column) {
    using Byte = std::conditional_t<std::is_const_v<std::remove_pointer_t<decltype(base)>>, const char, char>;
    return static_cast<Byte*>(base) + bytes_of(call.type, row * ld + column);
  };
  const std::int64_t row_blocks = ceil_div(call.columns, block_columns);
  const std::int64_t blocks = call.rows * row_blocks;
  const std::int64_t parts = std::clamp<std::int64_t>(blocks / blocks_per_thread, 1, executor.threads());
  run_on(executor, parts, [&](std::int64_t part) {
    alignas(64) float gate[block_columns];
    alignas(64) float up[block_columns];
    for (std::int64_t i = share(blocks, parts, part); i < share(blocks, parts, part + 1); ++i) {
      const std::int64_t row = i / row_blocks;
      const std::int64_t first = i % row_blocks * block_columns;
      const std::int64_t count = std::min(block_columns, call.columns - first);
      widen_row(kernels.pack_x[element], at(call.gate, row, call.ldgate, first), count, gate);
      widen_row(kernels.pack_x[element], at(call.up, row, call.ldup, first), count, up);
      decode.silu({.gate = gate, .up = up, .weight = 1, .count = count, .out = gate});
      kernels.store[element]({.tile = gate,
                              .ldt = block_columns,
                              .rows = 1,
                              .columns = count,
                              .y = at(call.y, row, call.ldy, first),
                              .ldy = call.ldy});
    }
  });
}

}  // namespace gemmtune::cpu
