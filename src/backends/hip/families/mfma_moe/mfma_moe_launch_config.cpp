#include "backends/hip/families/mfma_moe/mfma_moe_launch_config.h"

#include <algorithm>
#include <cmath>

#include "backends/gpu/moe/moe_layer.h"
#include "base/rounding.h"

namespace gemmtune::hip {
namespace {

constexpr double launch_microseconds = 4;

/// The GEMM of one expert as mfma's launch config has it.
Problem expert_gemm(const Problem& problem, int stage, const gpu::ExpectedTiles& work) {
  Problem expert = !quantizes_hidden(problem) ? default_problem(Operation::a16w16)
                   : scales_by_block(problem) ? default_problem(Operation::a8w8_blockscale)
                                              : default_problem(Operation::a8w8);
  const double tokens = static_cast<double>(problem.m * problem.moe.topk) / work.experts;
  expert.m = std::max<std::int64_t>(1, std::llround(tokens));
  expert.n = stage == 1 ? problem.n * (problem.moe.gated ? 2 : 1) : problem.k;
  expert.k = stage == 1 ? problem.k : problem.n;
  expert.x_type = expert.w_type = problem.w_type;
  expert.y_type = problem.y_type;
  expert.weight_layout = problem.weight_layout;
  return expert;
}

}  // namespace

bool scales_by_block(const Problem& problem) {
  const QuantType type = quantization(problem);
  return type == QuantType::per_1x128 || type == QuantType::per_128x128;
}

bool quantizes_hidden(const Problem& problem) { return bits(problem.w_type) == 8; }

std::array<MfmaMoeStage, 2> mfma_moe_stages(const Problem& problem, const Config& config,
                                            std::string_view architecture) {
  const gpu::ExpectedTiles work = gpu::expected_moe_tiles(problem, config.number("bm", 16));
  std::array<MfmaMoeStage, 2> stages;
  for (const int number : {1, 2}) {
    MfmaMoeStage& stage = stages[static_cast<std::size_t>(number) - 1];
    stage.number = number;
    stage.gated = number == 1 && problem.moe.gated;
    stage.expert = expert_gemm(problem, number, work);
    Config tile;
    for (const char* key : {"bm", "bk", "nw", "mi", "nb", "eu"}) tile.set(key, config.number(key, 0));
    tile.set("bn", config.number(number == 1 ? "bn" : "bo", 64));
    stage.tile = mfma_launch_config(stage.expert, tile, architecture);
    // Rows of x and of the weight are where a table and the halves have them: two registers for each 16 bytes that a lane copies, of a shuffled
    // weight for each row that it reads.
    const MfmaLaunchConfig& tile_config = stage.tile;
    const std::int64_t copied_rows = tile_config.block_m + (tile_config.shuffled ? 0 : tile_config.block_n);
    const std::int64_t read_rows = tile_config.shuffled ? tile_config.wave_columns() / tile_config.rows : 0;
    stage.tile.address_registers =
        2 * (ceil_div(copied_rows * tile_config.block_k, wave_lanes * tile_config.waves * 16) + read_rows);
    stage.tile.tiles_m = std::max<std::int64_t>(1, std::llround(work.tiles));
    stage.expert.batch = std::max<std::int64_t>(1, std::llround(work.experts));
    stage.columns = number == 1 ? problem.n : problem.k;
    stage.column_tiles = ceil_div(stage.columns, stage.tile.block_n / (stage.gated ? 2 : 1));
  }
  return stages;
}

std::string refuse_mfma_moe(const MfmaMoeStage& stage, std::int64_t shared_bytes_per_block) {
  const MfmaLaunchConfig& tile = stage.tile;
  if (std::string refused = refuse_tile(tile); !refused.empty()) return refused;
  if (stage.gated && tile.wave_columns() < 2 * tile.rows)
    return "nw leaves a wave less than an instruction's rows of gate and up";
  // Rows of the up half begin where those of the gate end, and a block of scales must not end within an instruction's.
  if (stage.gated && tile.block_scales && stage.columns % tile.rows != 0)
    return "mi divides no inter_dim: an instruction's rows have two scales";
  if (tile.shared_bytes > shared_bytes_per_block) return "tile needs more LDS than a block may have";
  return refuse_registers(tile);
}

double predicted_mfma_moe(const Problem& problem, const std::array<MfmaMoeStage, 2>& stages,
                          const ComputeUnit& unit) {
  const auto pairs = static_cast<double>(problem.m * problem.moe.topk);
  // The sort and the sum, which reads a row of 16 bits for each pair.
  double total = 2 * launch_microseconds +
                 pairs * static_cast<double>(problem.k) * 2 / unit.memory_bytes_per_microsecond;
  if (quantizes_hidden(problem))
    total +=
        launch_microseconds + pairs * static_cast<double>(problem.n) * 3 / unit.memory_bytes_per_microsecond;
  for (const MfmaMoeStage& stage : stages) total += model_of(stage.expert, stage.tile, unit).microseconds();
  return total;
}

}  // namespace gemmtune::hip
