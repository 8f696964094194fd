#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& skinny_entry() {
  static const FamilyEntry entry{
      .info = {.name = "skinny",
               .rank = 40,
               .aliases = tunable_aliases,
               .fallback_rank = 40,
               .few_rows_rank = 20},
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        return MadeFamily{make_skinny_family(request.isa, static_cast<int>(request.cores.size()))};
      }};
  return entry;
}

}  // namespace gemmtune::cpu
