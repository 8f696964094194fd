#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/wgmma_moe/wgmma_moe.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& wgmma_moe_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "wgmma_moe", .rank = 55, .aliases = tunable_aliases, .fallback_rank = 55},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_wgmma_moe_family(context.runtime, driver_of(context));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
