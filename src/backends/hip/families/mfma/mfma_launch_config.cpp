#include "backends/hip/families/mfma/mfma_launch_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "backends/gpu/jit/config_define.h"
#include "backends/hip/families/mfma/mfma_arguments.h"
#include "base/fields.h"
#include "base/rounding.h"
#include "problem/operands.h"

namespace gemmtune::hip {

GEMMTUNE_FIELDS(MfmaConfig, block_m, block_n, block_k, waves_m, waves_n, rows, kpack, buffers, direct, pad,
                shuffled, x_columns, w_columns, split_k, waves_per_eu, decoded, scaled);

namespace {

constexpr std::int64_t unit_bytes = 16;
constexpr std::int64_t max_accumulators = 128;      // of a lane
constexpr std::int64_t max_registers = 400;         // of the estimate, below the hardware's 512
constexpr std::int64_t max_vector_registers = 250;  // of the estimate

double real(std::int64_t value) { return static_cast<double>(value); }

/// As unit_offset() of the kernel; of a column-major operand.
std::int64_t unit_offset(const MfmaLaunchConfig& launch, bool columns, std::int64_t row, std::int64_t unit) {
  const std::int64_t bytes = launch.lds_bytes_per_clock();
  const std::int64_t units = launch.block_k / unit_bytes;
  std::int64_t swizzle = 0;
  if (launch.pad != 0) {
    swizzle = 0;
  } else if (launch.decoded && launch.shuffled && launch.rows == 16) {
    swizzle = row & (launch.lds_banks == 64 ? 11 : 3);
  } else if (launch.lds_banks == 64 && launch.block_k == 64 && launch.rows == 16 && launch.kpack == 2) {
    swizzle = row >> 2 & 2;
  } else {
    swizzle = launch.block_k < bytes ? row / (bytes / launch.block_k) % units : row % (bytes / unit_bytes);
  }
  if (columns && launch.pad == 0) {
    if (launch.block_k == 64)
      swizzle ^= launch.lds_banks == 64 ? (row >> 4 & 1) * 3 : row >> 3 & 1;
    else
      swizzle ^= row / (bytes / unit_bytes) % std::min(units, bytes / unit_bytes);
  }
  return row * (launch.block_k + launch.pad) + (unit ^ swizzle) * unit_bytes;
}

/// Units that a lane copies of `rows` of an operand.
std::int64_t units_of(const MfmaLaunchConfig& launch, bool columns, std::int64_t rows) {
  const std::int64_t together = columns ? launch.word_rows() : 1;
  return ceil_div(rows / together * (launch.block_k / unit_bytes), wave_lanes * launch.waves) * together;
}

}  // namespace

std::int64_t MfmaLaunchConfig::transposed_units() const {
  return (x_columns ? units_of(*this, true, block_m) : 0) + (w_columns ? units_of(*this, true, block_n) : 0);
}

std::int64_t MfmaLaunchConfig::staged_registers() const {
  // 16 bytes in four registers, or four direct loads with their addresses; of what is decoded its bytes, its scale, and numbers on
  // their way; of what is transposed four words with an address, and the units that it becomes.
  const std::int64_t lds_rows = (x_columns ? 0 : block_m) + (shuffled || w_columns ? 0 : block_n);
  const std::int64_t transposed = transposed_units();
  const std::int64_t from_rows = ceil_div(lds_rows * block_k, wave_lanes * waves * 4) * (direct ? 2 : 1) +
                                 4 * transposed + (transposed > 0 ? 4 * word_rows() : 0);
  // The weight's next tile and the one that is multiplied.
  const std::int64_t fragments = 2 * wave_columns() * block_k / (wave_lanes * 4);
  const std::int64_t of_weight = !shuffled ? 0 : decoded ? fragments * 5 / 16 : fragments;
  const std::int64_t scales =
      scaled ? 2 * (wave_rows() + wave_columns()) / rows * block_k / (16 * wave_lanes / rows) : 0;
  return from_rows + of_weight + scales;
}

std::int64_t MfmaLaunchConfig::registers() const {
  const std::int64_t operands =
      (wave_rows() + (shuffled ? 0 : wave_columns())) / rows * 2 * kpack * (paired ? 2 : 1);
  return accumulators() * (block_scales ? 2 : 1) + staged_registers() + address_registers + operands + 40;
}

std::int64_t MfmaLaunchConfig::mfma_instructions() const {
  // Of k that one instruction takes.
  const std::int64_t bytes = (halves ? 4 : paired ? 32 : wide || scaled ? 16 : 8) * wave_lanes / rows;
  return wave_rows() / rows * (wave_columns() / rows) * (block_k / bytes);
}

std::int64_t MfmaLaunchConfig::lds_reads() const {
  const std::int64_t steps = block_k / (8 * kpack * wave_lanes / rows);
  return (wave_rows() + (shuffled ? 0 : wave_columns())) / rows * steps;
}

std::int64_t MfmaLaunchConfig::decoded_fp4_units() const {
  if (!decoded) return 0;
  const std::int64_t threads = wave_lanes * waves;
  const std::int64_t of_x =
      x_type == DataType::f4_e2m1 ? ceil_div(block_m * block_k / unit_bytes, threads) : 0;
  // Of a shuffled weight each wave decodes what it multiplies.
  const std::int64_t of_w = shuffled ? wave_columns() * block_k / unit_bytes / wave_lanes
                                     : ceil_div(block_n * block_k / unit_bytes, threads);
  return of_x + of_w;
}

std::int64_t MfmaLaunchConfig::decoded_fp8_units() const {
  return decoded && bits(x_type) == 8 ? ceil_div(block_m * block_k / unit_bytes, wave_lanes * waves) : 0;
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
  launch.shuffled = is_packed(problem);
  launch.x_columns = problem.x_order == Order::column_major;
  launch.w_columns = problem.w_order == Order::column_major;
  launch.block_scales = quantization(problem) == QuantType::per_1x128;
  launch.halves = problem.x_type == DataType::i8 && architecture == "gfx90a";
  const bool fp4 = problem.w_type == DataType::f4_e2m1;
  launch.scaled = fp4 && problem.x_type == DataType::f4_e2m1 && has_wide_mfma(architecture);
  launch.decoded = fp4 && !launch.scaled;
  launch.converts = has_wide_mfma(architecture);
  launch.lds_banks = lds_banks(architecture);
  launch.x_type = problem.x_type;
  launch.element_bits = launch.decoded ? 16 : bits(problem.x_type);
  const bool has_wide_type = launch.element_bits == 16 || problem.x_type == DataType::i8;
  launch.wide = has_wide_mfma(architecture) && launch.kpack == 2 && has_wide_type;
  launch.paired = has_wide_mfma(architecture) && launch.kpack == 2 && !fp4 &&
                  problem.x_type == DataType::f8_e4m3fn &&
                  launch.block_k % (32 * wave_lanes / launch.rows) == 0;
  // Waves along m and n such that their tiles are as square as they can be; of two ways the one with more along n.
  launch.waves_m = 1;
  for (std::int64_t waves_m = 2; waves_m <= launch.waves; waves_m *= 2) {
    const std::int64_t waves_n = launch.waves / waves_m;
    if (launch.block_m / waves_m >= launch.rows && launch.block_m / waves_m >= launch.block_n / waves_n)
      launch.waves_m = waves_m;
  }
  launch.waves_n = launch.waves / launch.waves_m;
  launch.k_tiles = std::max<std::int64_t>(1, ceil_div(problem.k * launch.element_bits, 8 * launch.block_k));
  launch.tiles_m = ceil_div(problem.m, launch.block_m);
  launch.tiles_n = ceil_div(problem.n, launch.block_n);
  launch.shared_bytes = launch.buffers * (launch.block_k + launch.pad) *
                        (launch.block_m + (launch.shuffled ? 0 : launch.block_n));
  launch.batches = problem.batch;
  launch.workspace_bytes =
      launch.split_k > 1 ? launch.batches * launch.split_k * problem.m * problem.n * 4 : 0;
  return launch;
}

std::string mfma_define(const MfmaLaunchConfig& launch) {
  return gpu::config_define(MfmaConfig{.block_m = as_int(launch.block_m),
                                       .block_n = as_int(launch.block_n),
                                       .block_k = as_int(launch.block_k),
                                       .waves_m = as_int(launch.waves_m),
                                       .waves_n = as_int(launch.waves_n),
                                       .rows = as_int(launch.rows),
                                       .kpack = as_int(launch.kpack),
                                       .buffers = as_int(launch.buffers),
                                       .direct = launch.direct,
                                       .pad = as_int(launch.pad),
                                       .shuffled = launch.shuffled,
                                       .x_columns = launch.x_columns,
                                       .w_columns = launch.w_columns,
                                       .split_k = launch.split_k > 1,
                                       .waves_per_eu = as_int(launch.waves_per_eu),
                                       .decoded = launch.decoded,
                                       .scaled = launch.scaled});
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

namespace {

// Different words of each bank in each phase; the search asks for this of every config.
class BankPhases {
 public:
  explicit BankPhases(std::int64_t banks) : banks_(banks) {}
  /// A lane's access of `bytes` at `offset`.
  void add(std::int64_t phase, std::int64_t offset, std::int64_t bytes) {
    served_ = std::max(served_, static_cast<std::size_t>(phase) + 1);
    for (std::int64_t word = offset / 4; word < (offset + bytes) / 4; ++word) {
      Bank& bank = phases_[static_cast<std::size_t>(phase)][static_cast<std::size_t>(word % banks_)];
      const auto end = bank.words.begin() + static_cast<std::ptrdiff_t>(bank.count);
      if (std::find(bank.words.begin(), end, word) == end) bank.words[bank.count++] = word;
    }
  }
  double phases() const { return static_cast<double>(served_); }
  double cycles() const {
    double cycles = 0;
    for (std::size_t phase = 0; phase < served_; ++phase) {
      std::size_t most = 1;
      for (const Bank& bank : phases_[phase]) most = std::max(most, bank.count);
      cycles += static_cast<double>(most);
    }
    return cycles;
  }

 private:
  struct Bank {
    std::array<std::int64_t, 32> words;  // of as many lanes as a phase may have
    std::size_t count = 0;
  };
  std::int64_t banks_;
  std::array<std::array<Bank, 64>, 8> phases_;
  std::size_t served_ = 0;
};

// Reads of 16 bytes are served in phases of 8 lanes, 0 to 3 with 20 to 23, 4 to 7 with 16 to 19 …, of 64 banks in phases of 16, 0 to 3 with 12 to 15 and 20
// to 27 …; those of 8 bytes and writes in phases of neighbours. Lanes of a phase that access different words of a bank wait for each other.
double read_conflicts(const MfmaLaunchConfig& launch, bool columns) {
  const std::int64_t bytes = 8 * launch.kpack;
  const auto phase_of = [&](std::int64_t lane) {
    if (launch.kpack == 1) return lane / (launch.lds_bytes_per_clock() / bytes);
    const std::int64_t quad = lane % 32 / 4;
    if (launch.lds_banks == 64) return lane / 32 * 2 + ((quad ^ quad >> 1 ^ quad >> 2) & 1);
    return lane / 32 * 4 + (quad < 4 ? quad : (quad - 4) ^ 1);
  };
  BankPhases phases(launch.lds_banks);
  for (std::int64_t lane = 0; lane < wave_lanes; ++lane) {
    const std::int64_t apart = launch.decoded && launch.shuffled ? 64 : bytes;  // of groups of lanes
    const std::int64_t byte = lane / launch.rows * apart;
    const std::int64_t at =
        unit_offset(launch, columns, lane % launch.rows, byte / unit_bytes) + byte % unit_bytes;
    phases.add(phase_of(lane), at, bytes);
  }
  return phases.cycles() / phases.phases();
}

/// Of `rows` of a column-major operand; the first instruction of the first wave, whose pattern the others repeat.
double write_conflicts(const MfmaLaunchConfig& launch, std::int64_t rows) {
  const std::int64_t row_groups = rows / launch.word_rows();
  const std::int64_t groups = row_groups * (launch.block_k / unit_bytes);
  BankPhases phases(launch.lds_banks);
  for (std::int64_t lane = 0; lane < std::min<std::int64_t>(wave_lanes, groups); ++lane)
    phases.add(lane / (launch.lds_bytes_per_clock() / unit_bytes),
               unit_offset(launch, true, lane % row_groups * launch.word_rows(), lane / row_groups),
               unit_bytes);
  return phases.cycles() / phases.phases();
}

}  // namespace

double lds_read_conflicts(const MfmaLaunchConfig& launch) {
  if (launch.shuffled || launch.x_columns == launch.w_columns)
    return read_conflicts(launch, launch.x_columns);
  const double of_x = real(launch.wave_rows());
  const double of_w = real(launch.wave_columns());
  return (of_x * read_conflicts(launch, launch.x_columns) + of_w * read_conflicts(launch, launch.w_columns)) /
         (of_x + of_w);
}

double lds_write_conflicts(const MfmaLaunchConfig& launch) {
  // Units of a row-major operand lie one after another.
  const double of_x = real(launch.block_m);
  const double of_w = launch.shuffled ? 0 : real(launch.block_n);
  return (of_x * (launch.x_columns ? write_conflicts(launch, launch.block_m) : 1) +
          of_w * (launch.w_columns ? write_conflicts(launch, launch.block_n) : 1)) /
         (of_x + of_w);
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
      std::max<std::int64_t>(1, unit.lds_bytes / std::max<std::int64_t>(1, launch.shared_bytes));
  const std::int64_t blocks_by_registers =
      std::max<std::int64_t>(1, by_registers * simds_per_unit / launch.waves);
  const std::int64_t resident =
      std::min({blocks_by_lds, blocks_by_registers, std::max<std::int64_t>(1, ceil_div(blocks, unit.units))});
  model.waves_per_simd = std::max<std::int64_t>(1, resident * waves_per_block_simd);

  // MFMA: a SIMD's waves one after another.
  const double rate = launch.scaled ? unit.flops_per_clock_4bit
                      : launch.element_bits == 8
                          ? unit.flops_per_clock_8bit * (launch.wide || launch.paired ? 2 : 1)
                          : unit.flops_per_clock * (launch.wide ? 2 : 1);
  const double flops = 2 * real(launch.wave_rows() * launch.wave_columns()) * real(launch.block_k) /
                       (real(launch.element_bits) / 8.0);  // of a wave, for one tile of k
  const double mfma_cycles = flops / rate;
  // All blocks of a compute unit, in rounds of the whole device.
  const double rounds = std::ceil(real(blocks) / real(unit.units));
  const double waves_on_simd = std::max(1.0, real(launch.waves) / real(simds_per_unit));
  model.mfma = rounds * k_tiles * mfma_cycles * waves_on_simd / clock;

  // LDS: reads of operands by all waves of a block, and its writes of the tile.
  model.lds_conflicts = lds_read_conflicts(launch);
  const double read_cycles = real(launch.lds_reads()) * real(wave_lanes * 8 * launch.kpack) /
                             real(launch.lds_bytes_per_clock()) * model.lds_conflicts;
  const double write_cycles =
      real((launch.block_m + (launch.shuffled ? 0 : launch.block_n)) * launch.block_k) /
      real(launch.lds_bytes_per_clock());
  model.write_conflicts = lds_write_conflicts(launch);
  model.lds =
      rounds * k_tiles * (read_cycles * real(launch.waves) + write_cycles * model.write_conflicts) / clock;

  // Decoding: instructions of a lane for eight elements, of which a SIMD takes four clocks for a wave. Transposing: 4 for a unit of 16-bit elements, 8 of
  // 8-bit ones.
  const double instructions = real(launch.decoded_fp4_units()) * (launch.converts ? 4 : 28) +
                              real(launch.decoded_fp8_units()) * 8 +
                              real(launch.transposed_units()) * (launch.element_bits == 8 ? 8 : 4);
  model.decoding = rounds * k_tiles * instructions * 4 * waves_on_simd / clock;

  // Memory: operands once, and again from the L2 of each die for each tile that needs them, at 64 bytes a clock and unit.
  const auto tile_bytes = [&](DataType type, std::int64_t rows) {
    return real(rows) * real(launch.block_k) * bits(type) / real(launch.element_bits);
  };
  const double x_bytes = tile_bytes(problem.x_type, launch.block_m);
  const double w_bytes = tile_bytes(problem.w_type, launch.block_n);
  const double operand_bytes = (x_bytes + w_bytes) * k_tiles;
  // A tile's rows may be less of a column-major operand's line than the 64 bytes that L2 answers with.
  const auto share = [&](bool columns, DataType type, std::int64_t rows) {
    return columns ? std::max(1.0, 64 * 8 / real(rows * bits(type))) : 1.0;
  };
  const double read_bytes = (x_bytes * share(launch.x_columns, problem.x_type, launch.block_m) +
                             w_bytes * share(launch.w_columns, problem.w_type, launch.block_n)) *
                            k_tiles;
  const double from_l2 = rounds * read_bytes / 64 / clock;
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
  const double most = std::max({mfma, lds, memory, decoding});
  return overhead + latency * (most + 0.15 * (mfma + lds + memory + decoding - most));
}

std::string_view MfmaModel::bound() const {
  if (decoding > std::max({mfma, lds, memory})) return "decoding";
  if (mfma >= lds && mfma >= memory) return "MFMA";
  return lds >= memory ? "LDS" : "memory";
}

}  // namespace gemmtune::hip
