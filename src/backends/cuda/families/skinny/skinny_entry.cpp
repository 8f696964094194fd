#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/skinny/skinny.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& skinny_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "skinny",
               .rank = 20,
               .fallback_rank = 20,
               .leads_untuned =
                   [](const Problem& problem, std::string_view architecture) {
                     return leads_few_rows(problem, architecture) == "skinny";
                   },
               .fitted = true},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_skinny_family(context.runtime, driver_of(context));
      }};
  return entry;
}

}  // namespace gemmtune::cuda
