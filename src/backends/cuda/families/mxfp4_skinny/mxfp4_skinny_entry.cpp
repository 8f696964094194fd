#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/mxfp4_skinny/mxfp4_skinny.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& mxfp4_skinny_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mxfp4_skinny", .rank = 34, .aliases = tunable_aliases, .fallback_rank = 33},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_mxfp4_skinny_family(context.runtime, driver_of(context),
                                        hopper_limits(context.runtime, driver_of(context)));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
