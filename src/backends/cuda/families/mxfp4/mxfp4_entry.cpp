#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/mxfp4/mxfp4.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& mxfp4_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mxfp4", .rank = 35, .aliases = tunable_aliases, .fallback_rank = 35},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_mxfp4_family(context.runtime, driver_of(context));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
