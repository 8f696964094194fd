#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/mma/mma.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& mma_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mma", .rank = 40, .aliases = tunable_aliases, .fallback_rank = 40},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (driver_of(context).compute_capability() < 80) return nullptr;
        return make_mma_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::cuda
