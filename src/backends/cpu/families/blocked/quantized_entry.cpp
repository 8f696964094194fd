#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& quantized_entry() {
  static const FamilyEntry entry{
      .info = {.name = "quantized", .rank = 50, .aliases = tunable_aliases, .fallback_rank = 60},
      .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
        return MadeFamily{make_quantized_family(request.isa, static_cast<int>(request.cores.size()))};
      }};
  return entry;
}

}  // namespace gemmtune::cpu
