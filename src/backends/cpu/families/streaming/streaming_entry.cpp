#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& streaming_entry() {
  static const FamilyEntry entry{
      .info = {.name = "streaming", .rank = 60, .aliases = tunable_aliases, .fallback_rank = 50},
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        return MadeFamily{make_streaming_family(request.isa, static_cast<int>(request.cores.size()))};
      }};
  return entry;
}

}  // namespace gemmtune::cpu
