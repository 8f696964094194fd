// streaming, inside: settings of a config, what streams, and the kernel they make.
#pragma once

#include <memory>
#include <optional>

#include "backends/cpu/families/kernel_set.h"
#include "backends/cpu/microkernels/stream.h"
#include "problem/operands.h"

namespace gemmtune::cpu {

/// Rows of x; more of fp8 and fp4 are better off with weights decoded once for all of them. int8 has no
/// limit.
inline constexpr std::int64_t streaming_max_m = 128;

struct StreamingSettings {
  Isa isa = Isa::scalar;
  std::int64_t mr = 1;      // rows of x in registers
  std::int64_t nr = 16;     // output features at once
  std::int64_t kc = 16384;  // elements of k before the next rows go over the same weights
  std::int64_t prefetch = 0;
};

/// nullopt where no kernel streams the problem's operands.
std::optional<Streamed> streamed_type(const Problem& problem);
/// nullptr where the table has no such tile.
const StreamEntry* find(const StreamKernels& kernels, Streamed type, std::int64_t mr, std::int64_t panels);
/// The tile with the fewest rows that holds `rows`; the largest where none does.
const StreamEntry* fitting(const StreamKernels& kernels, Streamed type, std::int64_t rows,
                           std::int64_t panels);

/// The levels that stream a type, the preferred one first.
std::vector<Isa> streaming_levels(const KernelSet& set, Streamed type);

/// Requires a register tile of the level.
std::unique_ptr<Kernel> make_streaming_kernel(const KernelSet& set, const Problem& problem,
                                              const StreamingSettings& settings, int threads);
/// The family over kernels other than the CPU's own.
std::unique_ptr<KernelFamily> make_streaming_family(const KernelSet& set, int threads);

}  // namespace gemmtune::cpu
