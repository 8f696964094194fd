// A config of mfma for a problem on a device, and the performance model of its kernel.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backends/hip/families/compute_unit.h"
#include "candidates/config.h"
#include "problem/problem.h"

namespace gemmtune::hip {

/// Bytes are of k, of LDS, or of the workspace.
struct MfmaLaunchConfig {
  std::int64_t block_m = 64;
  std::int64_t block_n = 64;
  std::int64_t block_k = 128;  // bytes
  std::int64_t waves = 4;
  std::int64_t waves_m = 2;
  std::int64_t waves_n = 2;
  std::int64_t rows = 16;  // of the instruction
  std::int64_t kpack = 2;
  std::int64_t buffers = 1;
  std::int64_t pad = 0;
  std::int64_t split_k = 1;
  std::int64_t waves_per_eu = 0;
  std::int64_t group_m = 8;
  bool direct = false;
  bool by_die = true;
  bool shuffled = false;
  bool x_columns = false;  // the operand is column-major: transposed on its way to LDS
  bool w_columns = false;
  bool block_scales = false;
  bool halves = false;    // instructions of 4 bytes a lane: int8 on gfx90a
  bool wide = false;      // of 16 bytes a lane, of gfx950
  bool paired = false;    // of 32 bytes a lane: fp8 on gfx950
  bool decoded = false;   // fp4 weights, and x unless it is bf16, become bf16 on their way to LDS
  bool scaled = false;    // fp4 operands as they are
  bool converts = false;  // gfx950 has an instruction that decodes two elements
  std::int64_t lds_banks = 32;
  DataType x_type = DataType::bf16;
  std::int64_t element_bits = 16;  // of what is multiplied, and what bytes of k are of
  std::int64_t k_tiles = 1;
  std::int64_t tiles_m = 1;  // of a batch, as tiles_n
  std::int64_t tiles_n = 1;
  std::int64_t batches = 1;
  std::int64_t shared_bytes = 0;
  std::int64_t workspace_bytes = 0;
  std::int64_t address_registers = 0;  // of rows that are gathered

  std::int64_t lds_bytes_per_clock() const { return 4 * lds_banks; }
  std::int64_t tiles() const { return tiles_m * tiles_n; }
  std::int64_t blocks() const { return tiles() * split_k * batches; }
  std::int64_t wave_rows() const { return block_m / waves_m; }
  std::int64_t wave_columns() const { return block_n / waves_n; }
  /// Rows that 4 bytes of a column-major operand have elements of.
  std::int64_t word_rows() const { return 32 / element_bits; }
  /// Units of 16 bytes that a lane transposes of a tile.
  std::int64_t transposed_units() const;
  /// Registers of a lane.
  std::int64_t accumulators() const { return block_m * block_n / (wave_lanes * waves); }
  std::int64_t staged_registers() const;
  std::int64_t registers() const;  // an estimate of all
  /// Least block_k of a shuffled fp4 weight that is decoded: a lane of each group has 32 elements.
  std::int64_t fragment_bytes() const { return 64 * wave_lanes / rows; }
  /// Those that other instructions than MFMA use: they cannot be accumulation registers.
  std::int64_t vector_registers() const { return registers() - (block_scales ? 0 : accumulators()); }

  // Of a wave, for one tile of k:
  std::int64_t mfma_instructions() const;
  std::int64_t lds_reads() const;
  /// Units of eight elements that a lane decodes: of fp4, and of fp8.
  std::int64_t decoded_fp4_units() const;
  std::int64_t decoded_fp8_units() const;
};

MfmaLaunchConfig mfma_launch_config(const Problem& problem, const Config& config,
                                    std::string_view architecture);

/// The define of what mfma.cu is compiled for, types aside.
std::string mfma_define(const MfmaLaunchConfig& launch);

/// Empty, or why the tile cannot be built.
std::string refuse_tile(const MfmaLaunchConfig& launch);
std::string refuse_registers(const MfmaLaunchConfig& launch);

/// What a kernel is bound by, in microseconds of the whole launch, as the model has it (docs/hip_model.md).
struct MfmaModel {
  double mfma = 0;
  double lds = 0;
  double memory = 0;
  double decoding = 0;         // and transposing
  double overhead = 0;         // of the launch, the prologue and the reduction
  double lds_conflicts = 1;    // cycles of LDS reads over those without bank conflicts
  double write_conflicts = 1;  // the same of writes, which only column-major operands have
  std::int64_t waves_per_simd = 0;
  double latency = 1;  // how much longer it takes for want of waves that hide latency

  double microseconds() const;
  std::string_view bound() const;  // "MFMA", "LDS", "memory", "decoding"
};

MfmaModel model_of(const Problem& problem, const MfmaLaunchConfig& launch, const ComputeUnit& unit);

/// Cycles of a wave's reads of operands from LDS, or of a block's writes, over those without bank conflicts; the emulation counts the
/// same.
double lds_read_conflicts(const MfmaLaunchConfig& launch);
double lds_write_conflicts(const MfmaLaunchConfig& launch);

}  // namespace gemmtune::hip
