#include "backends/cpu/families/family_entry.h"
#include "backends/cpu/families/own_families.h"

namespace gemmtune::cpu {

const FamilyEntry& quantized_entry() {
  static const FamilyEntry entry{
      .info = {.name = "quantized", .rank = 50, .aliases = tunable_aliases, .fallback_rank = 60},
      .make = own_family<make_quantized_family>};
  return entry;
}

}  // namespace gemmtune::cpu
