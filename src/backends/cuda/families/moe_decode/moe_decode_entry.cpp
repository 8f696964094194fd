#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/moe_decode/moe_decode.h"
#include "backends/cuda/families/moe_decode/moe_decode_launch_config.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& moe_decode_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "moe_decode",
               .rank = 54,
               .aliases = tunable_aliases,
               .fallback_rank = 31,
               .runs_untuned = [](const Problem& problem,
                                  std::string_view) { return runs_decode_untuned(problem); }},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_moe_decode_family(context.runtime);
      }};
  return entry;
}

}  // namespace gemmtune::cuda
