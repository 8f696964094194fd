#include "backends/gpu/families/family_entry.h"
#include "backends/hip/families/hipblaslt/hipblaslt.h"
#include "backends/hip/families/hipblaslt/solution.h"

namespace gemmtune::hip {

const gpu::FamilyEntry& hipblaslt_entry() {
  static const gpu::FamilyEntry entry{.info = {.name = "hipblaslt",
                                               .rank = 10,
                                               .aliases = "hipblast,torch",
                                               .vendor = true,
                                               .fallback_rank = 10,
                                               .name_of_row = kernel_name_of_row},
                                      .compiled = false,
                                      .make = [](const gpu::FamilyContext& context) {
                                        return make_hipblaslt_family(driver_of(context),
                                                                     context.library_folder);
                                      }};
  return entry;
}

}  // namespace gemmtune::hip
