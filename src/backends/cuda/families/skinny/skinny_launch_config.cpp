#include "backends/cuda/families/skinny/skinny_launch_config.h"

#include <algorithm>

#include "backends/cuda/families/hopper.h"
#include "base/rounding.h"

namespace gemmtune::cuda {
namespace {

constexpr std::int64_t registers_of_multiprocessor = 65536;
constexpr std::int64_t max_prefetch = 32 << 10;  // bytes of the weight per block

/// M rounded up to what the kernel is compiled for.
std::int64_t block_n_of(std::int64_t m) { return m <= 8 ? 8 : m <= 16 ? 16 : m <= 32 ? 32 : 64; }

/// How many k tiles of the weight are prefetched into L2 before it may be loaded, or, in a dependent launch,
/// before the pipeline has free stages for it. More would delay loads that are needed sooner.
std::int64_t prefetch_k_tiles(const SkinnyLaunchConfig& launch) {
  const std::int64_t k_tile_bytes = launch.k_atoms * launch.block_m * atom_bytes;
  const std::int64_t share = ceil_div(launch.k_tiles, launch.split_k);
  const std::int64_t bytes =
      launch.dependent_launch ? (share - launch.num_stages) * k_tile_bytes / 4 : share * k_tile_bytes / 8;
  return std::min(bytes, max_prefetch) / k_tile_bytes;
}

/// Registers of a thread, about: sums, partial sums, scales of blocks of as many k atoms as are loaded ahead.
std::int64_t registers_of(const Problem& problem, const SkinnyLaunchConfig& launch) {
  const std::int64_t sums = launch.block_m / 64 * launch.block_n / 2;
  const bool wide = launch.block_n == 64;
  const std::int64_t scales =
      quantization(problem) != QuantType::per_1x128 ? 0 : launch.block_n / 2 * (wide ? 1 : launch.k_atoms);
  return 44 + sums * (launch.promotion == 0 ? 1 : 2) + scales + (wide && launch.k_atoms > 1 ? 32 : 0);
}

}  // namespace

std::int64_t SkinnyLaunchConfig::max_row_groups() const { return ceil_div(block_m / 8, split_k); }

unsigned long long SkinnyLaunchConfig::first_row_groups() const {
  unsigned long long groups = 0;
  for (std::int64_t block = 0; block <= split_k; ++block)
    groups |= static_cast<unsigned long long>(ceil_div(block * (block_m / 8), split_k)) << (5 * block);
  return groups;
}

std::int64_t SkinnyLaunchConfig::exchange_bytes() const {
  if (split_k == 1) return block_n * (block_m * 2 + 16);
  return split_k * max_row_groups() * 8 * (block_n + 4) * 4;
}

SkinnyLaunchConfig skinny_launch_config(const Problem& problem, const Config& config,
                                        const gpu::Limits& limits) {
  SkinnyLaunchConfig launch;
  launch.block_m = config.number("bm", 64);
  launch.k_atoms = k_atoms_of(config, problem.x_type);
  launch.split_k = config.number("csk", 1);
  launch.block_n = block_n_of(problem.m);
  launch.dependent_launch = is_dependent(config);
  launch.promotion = config.number("prom", 0);
  launch.smem_kib = config.number("smem", 110);
  const std::int64_t k_bytes = bytes_of(problem.x_type, problem.k);
  launch.k_tiles = ceil_div(k_bytes, atom_bytes * launch.k_atoms);
  launch.tiles = ceil_div(problem.n, launch.block_m);
  launch.stage_bytes = launch.k_atoms * (launch.block_m + launch.block_n) * atom_bytes;
  const std::int64_t fixed = launch.exchange_bytes() + shared_reserve;
  const std::int64_t most = static_cast<std::int64_t>(limits.shared_bytes_per_block) - fixed;
  const std::int64_t wanted = std::min(launch.smem_kib * 1024, most);
  launch.num_stages = std::min(wanted / launch.stage_bytes, ceil_div(launch.k_tiles, launch.split_k));
  launch.shared_bytes = launch.num_stages * launch.stage_bytes + fixed;
  const std::int64_t by_memory =
      static_cast<std::int64_t>(limits.shared_bytes_per_multiprocessor) / (launch.shared_bytes + 1024);
  const std::int64_t by_registers =
      registers_of_multiprocessor / (skinny_threads * round_up(registers_of(problem, launch), 8));
  launch.blocks_per_sm = std::clamp<std::int64_t>(std::min(by_memory, by_registers), 1, 12);
  launch.prefetch_k_tiles = prefetch_k_tiles(launch);
  launch.prefetch_blocks = limits.multiprocessors * launch.blocks_per_sm;
  return launch;
}

}  // namespace gemmtune::cuda
