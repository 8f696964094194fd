#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& moe_entry() {
  static const FamilyEntry entry{
      .info = {.name = "moe", .rank = 80, .aliases = tunable_aliases, .fallback_rank = 80},
      .make = own_family<make_moe_family>};
  return entry;
}

}  // namespace gemmtune::cpu
