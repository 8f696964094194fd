#include "backends/hip/families/mfma/mfma_launch_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::hip {
namespace {

constexpr std::int64_t unit_bytes = 16;
constexpr std::int64_t max_accumulators = 128;      // of a lane
constexpr std::int64_t max_registers = 400;         // of the estimate, below the hardware's 512
constexpr std::int64_t max_vector_registers = 250;  // of the estimate

double real(std::int64_t value) { return static_cast<double>(value); }

/// As unit_offset() of the kernel.
std::int64_t unit_offset(const MfmaLaunchConfig& launch, std::int64_t row, std::int64_t unit) {
  const std::int64_t units = launch.block_k / unit_bytes;
  std::int64_t swizzle = 0;
  if (launch.pad == 0) swizzle = launch.block_k < 128 ? row / (128 / launch.block_k) % units : row % 8;
  return row * (launch.block_k + launch.pad) + (unit ^ swizzle) * unit_bytes;
}

}  // namespace

std::int64_t MfmaLaunchConfig::staged_registers() const {
  // 16 bytes in four registers, or four direct loads with their addresses.
  const std::int64_t lds_rows = block_m + (shuffled ? 0 : block_n);
  const std::int64_t from_rows = ceil_div(lds_rows * block_k, wave_lanes * waves * 4) * (direct ? 2 : 1);
  // The weight's next tile and the one that is multiplied.
  const std::int64_t of_weight = shuffled ? 2 * wave_columns() * block_k / (wave_lanes * 4) : 0;
  return from_rows + of_weight;
}

std::int64_t MfmaLaunchConfig::registers() const {
  const std::int64_t operands = (wave_rows() + (shuffled ? 0 : wave_columns())) / rows * 2 * kpack;
  return accumulators() * (block_scales ? 2 : 1) + staged_registers() + address_registers + operands + 40;
}

std::int64_t MfmaLaunchConfig::mfma_instructions() const {
  const std::int64_t bytes = 8 * wave_lanes / rows * (halves ? 1 : 2) / 2;  // of k that one instruction takes
  return wave_rows() / rows * (wave_columns() / rows) * (block_k / bytes);
}

std::int64_t MfmaLaunchConfig::lds_reads() const {
  const std::int64_t steps = block_k / (8 * kpack * wave_lanes / rows);
  return (wave_rows() + (shuffled ? 0 : wave_columns())) / rows * steps;
}

MfmaLaunchConfig mfma_launch_config(const Problem& problem, const Config& config,
                                    std::string_view architecture) {
  MfmaLaunchConfig launch;
  launch.block_m = config.number("bm", 64);
  launch.block_n = config.number("bn", 64);
  launch.block_k = config.number("bk", 128);
  launch.waves = config.number("nw", 4);
  launch.rows = config.number("mi", 16);
  launch.kpack = config.number("kp", 2);
  launch.buffers = config.number("nb", 1);
  launch.direct = config.number("dl", 0) != 0;
  launch.pad = config.number("pad", 0);
  launch.split_k = config.number("sk", 1);
  launch.waves_per_eu = config.number("eu", 0);
  launch.group_m = config.number("gm", 8);
  launch.by_die = config.number("xcd", 1) != 0;
  launch.shuffled = problem.bpreshuffle;
  launch.block_scales = quantization(problem) == QuantType::per_1x128;
  launch.halves = problem.x_type == DataType::i8 && architecture == "gfx90a";
  // Waves along m and n such that their tiles are as square as they can be; of two ways the one with more along n.
  launch.waves_m = 1;
  for (std::int64_t waves_m = 2; waves_m <= launch.waves; waves_m *= 2) {
    const std::int64_t waves_n = launch.waves / waves_m;
    if (launch.block_m / waves_m >= launch.rows && launch.block_m / waves_m >= launch.block_n / waves_n)
      launch.waves_m = waves_m;
  }
  launch.waves_n = launch.waves / launch.waves_m;
  launch.k_tiles = std::max<std::int64_t>(1, ceil_div(bytes_of(problem.x_type, problem.k), launch.block_k));
  launch.tiles_m = ceil_div(problem.m, launch.block_m);
  launch.tiles_n = ceil_div(problem.n, launch.block_n);
  launch.shared_bytes = launch.buffers * (launch.block_k + launch.pad) *
                        (launch.block_m + (launch.shuffled ? 0 : launch.block_n));
  launch.batches = problem.batch;
  launch.workspace_bytes =
      launch.split_k > 1 ? launch.batches * launch.split_k * problem.m * problem.n * 4 : 0;
  return launch;
}

std::vector<std::string> mfma_defines(const MfmaLaunchConfig& launch) {
  std::vector<std::string> defines;
  const auto define = [&](const char* name, std::int64_t value) {
    defines.push_back(fmt::format("{}={}", name, value));
  };
  define("BLOCK_M", launch.block_m);
  define("BLOCK_N", launch.block_n);
  define("BLOCK_K", launch.block_k);
  define("WAVES_M", launch.waves_m);
  define("WAVES_N", launch.waves_n);
  define("MFMA_ROWS", launch.rows);
  define("KPACK", launch.kpack);
  define("NUM_BUFFERS", launch.buffers);
  define("DIRECT", launch.direct ? 1 : 0);
  define("PAD", launch.pad);
  define("SHUFFLED", launch.shuffled ? 1 : 0);
  define("SPLIT_K", launch.split_k > 1 ? 1 : 0);
  define("WAVES_PER_EU", launch.waves_per_eu);
  return defines;
}

std::string refuse_tile(const MfmaLaunchConfig& launch) {
  if (launch.block_m < launch.rows || launch.block_n < launch.rows) return "mi is more than bm or bn";
  if (launch.wave_rows() < launch.rows || launch.wave_columns() < launch.rows)
    return "nw leaves a wave less than an instruction's rows";
  if (launch.accumulators() * (launch.block_scales ? 2 : 1) > max_accumulators)
    return "tile needs more registers than a lane has";
  if (launch.block_scales && launch.block_k != 128) return "bk is not the 128 elements of a block of scales";
  return {};
}

std::string refuse_registers(const MfmaLaunchConfig& launch) {
  const std::int64_t waves_on_simd = ceil_div(launch.waves, simds_per_unit);
  const std::int64_t waves = std::max(launch.waves_per_eu, waves_on_simd);
  if (launch.registers() > max_registers / waves || launch.vector_registers() > max_vector_registers)
    return "eu leaves a wave less registers than the tile needs";
  return {};
}

// Reads of 16 bytes are served in phases of 8 lanes, 0 to 3 with 20 to 23, 4 to 7 with 16 to 19 …; those of 8 bytes in phases
// of 16 neighbours. Lanes of a phase that read different words of a bank wait for each other.
double lds_read_conflicts(const MfmaLaunchConfig& launch) {
  constexpr std::int64_t banks = 32;
  const std::int64_t bytes = 8 * launch.kpack;
  const std::int64_t lanes_per_phase = lds_bytes_per_clock / bytes;
  double cycles = 0;
  for (std::int64_t phase = 0; phase < wave_lanes / lanes_per_phase; ++phase) {
    std::array<std::set<std::int64_t>, banks> words;
    for (std::int64_t i = 0; i < lanes_per_phase; ++i) {
      std::int64_t lane = phase * lanes_per_phase + i;
      if (launch.kpack == 2) {
        const std::int64_t quad = phase % 4;
        lane = phase / 4 * 32 + (i < 4 ? quad * 4 + i : 16 + (quad ^ 1) * 4 + i - 4);
      }
      const std::int64_t byte = lane / launch.rows * bytes;
      const std::int64_t at = unit_offset(launch, lane % launch.rows, byte / unit_bytes) + byte % unit_bytes;
      for (std::int64_t word = at / 4; word < (at + bytes) / 4; ++word)
        words[static_cast<std::size_t>(word % banks)].insert(word);
    }
    std::size_t most = 1;
    for (const auto& bank : words) most = std::max(most, bank.size());
    cycles += static_cast<double>(most);
  }
  return cycles / real(wave_lanes / lanes_per_phase);
}

MfmaModel model_of(const Problem& problem, const MfmaLaunchConfig& launch, const ComputeUnit& unit) {
  MfmaModel model;
  const double clock = unit.clock_megahertz;  // cycles in a microsecond
  const std::int64_t blocks = launch.blocks();
  const double k_tiles = std::ceil(real(launch.k_tiles) / real(launch.split_k));

  // Occupancy: what registers, LDS and the number of blocks leave.
  const std::int64_t by_registers = std::clamp<std::int64_t>(
      registers_per_lane / std::max<std::int64_t>(8, round_up(launch.registers(), 8)), 1, max_waves_per_simd);
  const std::int64_t waves_per_block_simd = ceil_div(launch.waves, simds_per_unit);
  const std::int64_t blocks_by_lds =
      std::max<std::int64_t>(1, 65536 / std::max<std::int64_t>(1, launch.shared_bytes));
  const std::int64_t blocks_by_registers =
      std::max<std::int64_t>(1, by_registers * simds_per_unit / launch.waves);
  const std::int64_t resident =
      std::min({blocks_by_lds, blocks_by_registers, std::max<std::int64_t>(1, ceil_div(blocks, unit.units))});
  model.waves_per_simd = std::max<std::int64_t>(1, resident * waves_per_block_simd);

  // MFMA: a SIMD's waves one after another.
  const double rate = bits(problem.x_type) == 8 ? unit.flops_per_clock_8bit : unit.flops_per_clock;
  const double flops = 2 * real(launch.wave_rows() * launch.wave_columns()) * real(launch.block_k) /
                       (bits(problem.x_type) / 8.0);  // of a wave, for one tile of k
  const double mfma_cycles = flops / rate;
  // All blocks of a compute unit, in rounds of the whole device.
  const double rounds = std::ceil(real(blocks) / real(unit.units));
  const double waves_on_simd = std::max(1.0, real(launch.waves) / real(simds_per_unit));
  model.mfma = rounds * k_tiles * mfma_cycles * waves_on_simd / clock;

  // LDS: reads of operands by all waves of a block, and its writes of the tile.
  model.lds_conflicts = lds_read_conflicts(launch);
  const double read_cycles = real(launch.lds_reads()) * real(wave_lanes * 8 * launch.kpack) /
                             lds_bytes_per_clock * model.lds_conflicts;
  const double write_cycles =
      real((launch.block_m + (launch.shuffled ? 0 : launch.block_n)) * launch.block_k) / lds_bytes_per_clock;
  model.lds = rounds * k_tiles * (read_cycles * real(launch.waves) + write_cycles) / clock;

  // Memory: operands once, and again from the L2 of each die for each tile that needs them, at 64 bytes a clock and unit.
  const double operand_bytes = real(launch.block_m + launch.block_n) * real(launch.block_k) * k_tiles;
  const double from_l2 = rounds * operand_bytes / 64 / clock;
  const double busy = std::min(1.0, real(blocks) / real(unit.units));
  // Few blocks do not saturate the memory: each keeps a tile in flight.
  const double in_flight =
      real(std::min(blocks, unit.units * resident)) * operand_bytes / std::max(1.0, k_tiles);
  const double reach = std::min(1.0, std::max(0.05, in_flight / 4e6) + 0.25 * busy);
  const double from_memory =
      (bytes(problem) + 2 * real(launch.workspace_bytes)) / unit.memory_bytes_per_microsecond / reach;
  model.memory = std::max(from_l2, from_memory);

  // Without a second buffer or a second wave a tile is loaded, then multiplied.
  const double hidden = real(model.waves_per_simd) + (launch.buffers == 2 ? 1.0 : 0.0);
  model.latency = 1 + 1.5 / (hidden + 0.5);
  model.overhead = 4 + (launch.split_k > 1 ? 4 : 0) + 0.4 * rounds;
  return model;
}

double MfmaModel::microseconds() const {
  // What bounds it, and a part of the others that does not overlap.
  const double most = std::max({mfma, lds, memory});
  return overhead + latency * (most + 0.15 * (mfma + lds + memory - most));
}

std::string_view MfmaModel::bound() const {
  if (mfma >= lds && mfma >= memory) return "MFMA";
  return lds >= memory ? "LDS" : "memory";
}

}  // namespace gemmtune::hip
