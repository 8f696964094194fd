// tiled, inside: settings of a config, and the kernel they make.
#pragma once

#include <memory>

#include "backends/cpu/families/kernel_set.h"

namespace gemmtune::cpu {

struct TiledSettings {
  Isa isa = Isa::scalar;
  std::int64_t mr = 1;  // register tile: rows of x × output features
  std::int64_t nr = 16;
  std::int64_t mc = 1;           // rows of x that one block of weights meets
  std::int64_t nc = 16;          // output features of a block of weights
  std::int64_t kc = 1;           // elements of k of a block
  std::int64_t prefetch = 0;     // 0 nothing, 1 the next panels, 2 x as well (AMX tiles)
  std::int64_t row_threads = 1;  // of a grid of threads over m × n
  std::int64_t column_threads = 1;
  std::int64_t splits = 1;  // of k, summed in order
  bool tree = false;        // segments of k, added in pairs (TreeSums)
};

/// int32 sums of int8: 128² · k must stay below 2³¹.
inline constexpr std::int64_t tiled_integer_k = (std::int64_t{1} << 17) - 1;

/// Weight panels as the micro-kernels of `kernels` read them: widened while packing, or as the packed weight
/// stands.
const PanelList& tiled_panels(const IsaKernels& kernels, const Problem& problem);

std::unique_ptr<Kernel> make_tiled_kernel(const KernelSet& set, const Problem& problem,
                                          const TiledSettings& settings);
/// The family over kernels other than the CPU's own.
std::unique_ptr<KernelFamily> make_tiled_family(const KernelSet& set, int threads);

}  // namespace gemmtune::cpu
