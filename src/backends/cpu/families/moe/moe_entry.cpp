#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& moe_entry() {
  static const FamilyEntry entry{
      .info = {.name = "moe", .rank = 80, .aliases = tunable_aliases, .fallback_rank = 80},
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        return MadeFamily{make_moe_family(request.isa, static_cast<int>(request.cores.size()))};
      }};
  return entry;
}

}  // namespace gemmtune::cpu
