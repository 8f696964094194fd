#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"
#include "problem/problem.h"

namespace gemmtune::cpu {
namespace {

/// Up to where the default config is ahead of `quantized` (docs/lab/cpu_four_bit.md): x of longer rows leaves the inner cache.
bool runs_untuned(const Problem& problem) { return problem.m <= (problem.k <= 4096 ? 32 : 16); }

}  // namespace

const FamilyEntry& skinny_w4_entry() {
  static const FamilyEntry entry{
      .info = {.name = "skinny_w4",
               .rank = 45,
               .aliases = tunable_aliases,
               .fallback_rank = 55,
               .runs_untuned = runs_untuned},
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        return MadeFamily{make_skinny_w4_family(request.isa, static_cast<int>(request.cores.size()))};
      }};
  return entry;
}

}  // namespace gemmtune::cpu
