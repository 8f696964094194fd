#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& streaming_entry() {
  static const FamilyEntry entry{
      .info = {.name = "streaming", .rank = 60, .aliases = tunable_aliases, .fallback_rank = 50},
      .make = own_family<make_streaming_family>};
  return entry;
}

}  // namespace gemmtune::cpu
