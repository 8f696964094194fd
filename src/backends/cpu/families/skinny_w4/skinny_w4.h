// skinny_w4, inside: settings of a config, what its kernels read, and the kernel they make.
#pragma once

#include <memory>
#include <vector>

#include "backends/cpu/families/kernel_set.h"
#include "backends/cpu/microkernels/w4.h"

namespace gemmtune::cpu {

/// More rows of x are better off with weights that are decoded once for all of them.
inline constexpr std::int64_t skinny_w4_max_m = 128;

struct SkinnyW4Settings {
  Isa isa = Isa::scalar;
  std::int64_t mr = 1;        // rows of x in registers
  std::int64_t nr = 1;        // rows of the weight at once
  std::int64_t prefetch = 0;  // bytes ahead in each of them
};

/// The format of the problem's weight. Requires a weight of 4 bits.
Nibble nibble_of(const Problem& problem);
/// The kernels of a level for the problem's x and w; null where it has none.
const W4Kernels* w4_kernels(const KernelSet& set, Isa isa, const Problem& problem);
/// The levels with such kernels, the preferred one first.
std::vector<Isa> w4_levels(const KernelSet& set, const Problem& problem);
/// nullptr where the kernels have no such tile.
const W4Entry* find(const W4Kernels& kernels, Nibble format, std::int64_t mr, std::int64_t nr);
/// The tile with the fewest rows of x that holds `rows`; the largest where none does.
const W4Entry* fitting(const W4Kernels& kernels, Nibble format, std::int64_t rows, std::int64_t nr);

/// Requires a register tile of the level.
std::unique_ptr<Kernel> make_skinny_w4_kernel(const KernelSet& set, const Problem& problem,
                                              const SkinnyW4Settings& settings, int threads);
/// The family over kernels other than the CPU's own.
std::unique_ptr<KernelFamily> make_skinny_w4_family(const KernelSet& set, int threads);

}  // namespace gemmtune::cpu
