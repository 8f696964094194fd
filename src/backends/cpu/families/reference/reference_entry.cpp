#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& reference_entry() {
  static const FamilyEntry entry{.info = {.name = "reference", .rank = 90},
                                 .make = [](const FamilyRequest& request) -> Result<MadeFamily> {
                                   return MadeFamily{make_reference_family(request.isa)};
                                 }};
  return entry;
}

}  // namespace gemmtune::cpu
