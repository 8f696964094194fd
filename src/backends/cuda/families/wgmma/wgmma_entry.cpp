#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/wgmma/wgmma.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& wgmma_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "wgmma",
               .rank = 30,
               .aliases = tunable_aliases,
               .fallback_rank = 30,
               .leads_untuned =
                   [](const Problem& problem, std::string_view architecture) {
                     return leads_few_rows(problem, architecture) == "wgmma";
                   },
               .fitted = true},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_wgmma_family(context.runtime, driver_of(context));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
