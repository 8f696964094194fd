#include "backends/cuda/families/hopper.h"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream.h"
#include "backends/cuda/families/mxfp4_stream/mxfp4_stream_launch_config.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& mxfp4_stream_entry() {
  static const gpu::FamilyEntry entry{
      .info = {.name = "mxfp4_stream",
               .rank = 36,
               .aliases = tunable_aliases,
               .fallback_rank = 34,
               .runs_untuned = [](const Problem& problem,
                                  std::string_view) { return runs_stream_untuned(problem); }},
      .make = [](const gpu::FamilyContext& context) -> std::unique_ptr<KernelFamily> {
        if (!is_hopper(driver_of(context))) return nullptr;
        return make_mxfp4_stream_family(context.runtime, context.runtime.limits());
      }};
  return entry;
}

}  // namespace gemmtune::cuda
