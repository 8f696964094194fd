#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {
const FamilyEntry& tiled_entry() {
  static const FamilyEntry entry{
      .info = {.name = "tiled", .rank = 30, .aliases = tunable_aliases, .fallback_rank = 30},
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        return MadeFamily{make_tiled_family(request.isa, static_cast<int>(request.cores.size()))};
      }};
  return entry;
}

}  // namespace gemmtune::cpu
