// skinny, inside: settings of a config, and the kernel they make.
#pragma once

#include <memory>
#include <string_view>

#include "backends/cpu/families/kernel_set.h"

namespace gemmtune::cpu {

inline constexpr std::int64_t skinny_max_m = 32;
/// With AMX tiles any M goes, with so many rows at most for which the weight is read once.
inline constexpr std::int64_t skinny_max_rows_a_pass = 512;
/// So much of x stays in the inner cache while the weight goes by (docs/lab/cpu_tiled.md).
inline constexpr std::int64_t skinny_bytes_kept = 864 << 10;

struct SkinnySettings {
  Isa isa = Isa::scalar;
  std::int64_t mr = 1;        // rows of x in registers
  std::int64_t nr = 16;       // output features at once: rows of a plain weight, columns of panels
  std::int64_t kc = 1;        // elements of k before the next row tile of x goes over the same weights
  std::int64_t prefetch = 0;  // bytes ahead
  std::int64_t splits = 1;    // of k, summed in order
  std::int64_t rows = skinny_max_rows_a_pass;  // of x at most, for which the weight is read once
  bool tree = false;                           // segments of k, added in pairs (TreeSums)
};

/// How a call is divided among threads, columns first: results do not depend on it.
struct SkinnyGrid {
  std::int64_t unit = 1;          // columns that are not divided
  std::int64_t row_parts = 1;     // of tiles of mr rows
  std::int64_t column_parts = 1;  // of units
  std::int64_t groups = 1;        // of a part's rows: the weight is read once for each
  std::int64_t group_tiles = 1;   // in a group, at most
};
SkinnyGrid skinny_grid(const Problem& problem, const SkinnySettings& settings, int threads);

/// Where tables have the default config ahead of oneDNN at each of their (N, K): with AVX-512 BF16 side by side by
/// bench/results/epyc_zen4/few_rows.csv, in turn by epyc_zen5/few_rows_untuned.csv, unaided by epyc_zen4/in_a_program_untuned.csv; packed weights unaided and with AMX alone. `architecture`: DeviceInfo::gfx.
bool skinny_leads_untuned(const Problem& problem, std::string_view architecture, RowReads row_reads);

std::unique_ptr<Kernel> make_skinny_kernel(const KernelSet& set, const Problem& problem,
                                           const SkinnySettings& settings, int threads);
/// The family over kernels other than the CPU's own.
std::unique_ptr<KernelFamily> make_skinny_family(const KernelSet& set, int threads);

}  // namespace gemmtune::cpu
