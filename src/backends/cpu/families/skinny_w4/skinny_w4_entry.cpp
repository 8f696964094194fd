#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"
#include "problem/operands.h"
#include "problem/problem.h"

namespace gemmtune::cpu {
namespace {

/// Up to how many rows of x the default config is ahead of `quantized` (docs/lab/cpu_four_bit.md). Short rows of the weight have
/// little to read, and long rows of x leave the inner cache.
std::int64_t max_rows(const Problem& problem, std::string_view architecture) {
  const std::int64_t k = problem.k;
  const bool is_multiplied_in_f32 = bits(problem.x_type) >= 16 && problem.x_type != DataType::bf16;
  // AMX tiles of skinny_w4 decode rows as they lie, for all rows of x at once.
  if (!is_multiplied_in_f32 && architecture == gfx_name(Isa::amx)) return problem.m;
  // Other instruction sets were not measured.
  if (is_multiplied_in_f32 || architecture != gfx_name(Isa::avx512bf16)) return k < 896 || k > 4096 ? 16 : 32;
  if (problem.x_type == DataType::i8) return k < 512 ? 16 : k < 896 ? 32 : k <= 4096 ? 128 : 64;
  if (k < 896) return k < 512 ? 8 : 16;
  // Panels of MXFP4 are decoded faster than those of other formats.
  const bool is_mxfp4 = operand_shapes(problem).w.scale.type == ScaleType::e8m0;
  if (is_mxfp4) return k < 1536 ? 24 : 32;
  return k < 1536 || k > 4864 ? 32 : 48;
}

bool runs_untuned(const Problem& problem, std::string_view architecture) {
  return problem.m <= max_rows(problem, architecture);
}

}  // namespace

const FamilyEntry& skinny_w4_entry() {
  static const FamilyEntry entry{.info = {.name = "skinny_w4",
                                          .rank = 45,
                                          .aliases = tunable_aliases,
                                          .fallback_rank = 55,
                                          .runs_untuned = runs_untuned},
                                 .make = own_family<make_skinny_w4_family>};
  return entry;
}

}  // namespace gemmtune::cpu
