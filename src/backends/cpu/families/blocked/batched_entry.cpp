#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& batched_entry() {
  static const FamilyEntry entry{
      .info = {.name = "batched", .rank = 70, .aliases = tunable_aliases, .fallback_rank = 70},
      .make = own_family<make_batched_family>};
  return entry;
}

}  // namespace gemmtune::cpu
