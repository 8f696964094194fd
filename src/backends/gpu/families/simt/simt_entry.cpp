#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/simt/simt.h"

namespace gemmtune::gpu {

const FamilyEntry& simt_entry() {
  static const FamilyEntry entry{
      .info = {.name = "simt", .rank = 50, .fallback_rank = 50},
      .make = [](const FamilyContext& context) { return make_simt_family(context.runtime); }};
  return entry;
}

}  // namespace gemmtune::gpu
