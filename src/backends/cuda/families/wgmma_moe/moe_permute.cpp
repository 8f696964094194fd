#include "backends/cuda/families/wgmma_moe/moe_permute.h"

#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/wgmma_moe/moe_permute_arguments.h"
#include "backends/gpu/families/element_code.h"
#include "backends/gpu/jit/device_files.h"
#include "backends/gpu/moe/moe_operands.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::cuda {

bool widens_exactly(const Problem& problem) {
  const bool narrow = bits(problem.x_type) <= 8 && gpu::moe_type_code(problem.x_type) >= 0;
  const ScaleShape scale = operand_shapes(problem).x.scale;
  const bool whole_rows = scale.type != ScaleType::f32 || scale.columns == 1;
  return problem.x_type == DataType::bf16 || (narrow && whole_rows);
}

bool scales_tokens(const Problem& problem) { return operand_shapes(problem).x.scale.type == ScaleType::f32; }

int permuted_unit_of(const Problem& problem) {
  if (operand_shapes(problem).x.scale.type != ScaleType::e8m0) return 1;
  return problem.x_type == DataType::f4_e2m1 ? 4 : 256;
}

gpu::Source moe_permute_source(const Problem& problem, ColumnOrder order) {
  const bool scaled = operand_shapes(problem).x.scale.type == ScaleType::e8m0;
  return {
      "moe_permute",
      gpu::include_line("backends/cuda/families/wgmma_moe/moe_permute.cu"),
      {"DEPENDENT=1", "ELEMENT=2", "OUTPUT=2", fmt::format("X_TYPE={}", gpu::moe_type_code(problem.x_type)),
       fmt::format("X_SCALES={}", scaled ? gpu::moe_scale_code(ScaleType::e8m0) : 0),
       fmt::format("TOKEN_UNIT={}.0f", permuted_unit_of(problem)),
       fmt::format("PERMUTED={}", static_cast<int>(order))},
      "moe_permute"};
}

std::int64_t permuted_row_bytes(const Problem& problem) { return round_up(problem.k, permuted_unit) * 2; }

Status launch_moe_permute(const gpu::Program& program, const Problem& problem, const gpu::MoeRound& round,
                          RowOrder order, void* to, Stream stream) {
  const std::int64_t units = ceil_div(problem.k, permuted_unit);
  const bool sorted = order == RowOrder::sorted;
  const std::int64_t rows = sorted ? round.pairs : round.tokens;
  MoePermuteArguments values{static_cast<const unsigned char*>(round.operands.x),
                             static_cast<unsigned char*>(to),
                             sorted ? round.pair_of : nullptr,
                             bytes_of(problem.x_type, round.operands.ldx),
                             as_int(rows),
                             problem.moe.topk,
                             as_int(round.tokens),
                             as_int(problem.k),
                             as_int(units),
                             static_cast<const unsigned char*>(round.operands.x_scale)};
  gpu::LaunchShape shape;
  shape.grid[0] = static_cast<unsigned>(ceil_div(rows * units * 4, std::int64_t{256}));
  shape.threads = 256;
  shape.extension = &starts_early();
  void* arguments[] = {&values};
  return program.launch(shape, arguments, stream);
}

}  // namespace gemmtune::cuda
