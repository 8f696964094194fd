#include "backends/cuda/families/cublaslt/cublaslt.h"
#include "backends/gpu/families/family_entry.h"

namespace gemmtune::cuda {

const gpu::FamilyEntry& cublaslt_entry() {
  static const gpu::FamilyEntry entry{
      // Its accumulation of the class fp32 is slow: 2.5 times our kernels' time at M = 1.
      .info = {.name = "cublaslt",
               .rank = 10,
               .aliases = "hipblaslt,hipblast,torch",
               .vendor = true,
               .fallback_rank = 10,
               .row_scales_rank = 37},
      .compiled = false,
      .make = [](const gpu::FamilyContext& context) {
        return make_cublaslt_family(context.runtime, driver_of(context), context.library_folder);
      }};
  return entry;
}

}  // namespace gemmtune::cuda
