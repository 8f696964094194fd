#include "backends/gpu/families/family_entry.h"
#include "backends/gpu/families/simt_moe/simt_moe.h"

namespace gemmtune::gpu {

const FamilyEntry& simt_moe_entry() {
  static const FamilyEntry entry{
      .info = {.name = "simt_moe", .rank = 60, .fallback_rank = 60},
      .make = [](const FamilyContext& context) { return make_simt_moe_family(context.runtime); }};
  return entry;
}

}  // namespace gemmtune::gpu
