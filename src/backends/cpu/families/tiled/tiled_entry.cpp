#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"
#include "backends/cpu/families/skinny/skinny.h"
#include "problem/problem.h"

namespace gemmtune::cpu {
namespace {

/// One packed weight serves every M: more rows than `skinny` takes follow it, in its layout.
bool leads_untuned(const Problem& problem, std::string_view architecture) {
  Problem fewer = problem;
  fewer.m = skinny_tile_max_m;
  return is_packed(problem) && problem.m > skinny_tile_max_m &&
         skinny_leads_untuned(fewer, architecture, detect_row_reads());
}

}  // namespace

const FamilyEntry& tiled_entry() {
  static const FamilyEntry entry{
      .info = {.name = "tiled",
               .rank = 30,
               .aliases = tunable_aliases,
               .fallback_rank = 30,
               .leads_untuned = leads_untuned},
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        return MadeFamily{make_tiled_family(request.isa, static_cast<int>(request.cores.size()))};
      }};
  return entry;
}

}  // namespace gemmtune::cpu
