#include "backends/gpu/families/family_entry.h"
#include "backends/hip/families/compute_unit.h"
#include "backends/hip/families/skinny/skinny.h"

namespace gemmtune::hip {

const gpu::FamilyEntry& skinny_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "skinny", .rank = 30, .fallback_rank = 30},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!has_mfma(context.runtime.architecture())) return nullptr;
        return make_skinny_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::hip
