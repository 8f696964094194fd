#include "backends/gpu/families/family_entry.h"
#include "backends/hip/families/compute_unit.h"
#include "backends/hip/families/mfma/mfma.h"

namespace gemmtune::hip {

const gpu::FamilyEntry& mfma_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mfma", .rank = 40, .aliases = tunable_aliases, .fallback_rank = 40},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!has_mfma(context.runtime.architecture())) return nullptr;
        return make_mfma_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::hip
