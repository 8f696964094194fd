#include "backends/cuda/families/all_families.h"

#include "backends/cuda/families/cublaslt/cublaslt.h"
#include "backends/cuda/families/mma/mma.h"
#include "backends/cuda/families/skinny/skinny.h"
#include "backends/cuda/families/wgmma/wgmma.h"
#include "backends/gpu/families/simt/simt.h"

namespace gemmtune::cuda {

std::vector<std::unique_ptr<KernelFamily>> make_families(CudaRuntime& runtime,
                                                         const std::string& library_folder) {
  std::vector<std::unique_ptr<KernelFamily>> families;
  if (auto cublaslt = make_cublaslt_family(runtime, library_folder)) families.push_back(std::move(cublaslt));
  if (!runtime.compiles().ok()) return families;
  if (runtime.compute_capability() == 90 && runtime.driver().tensor_map != nullptr) {
    families.push_back(make_skinny_family(runtime, runtime.driver()));
    families.push_back(make_wgmma_family(runtime, runtime.driver()));
  }
  if (runtime.compute_capability() >= 80) families.push_back(make_mma_family(runtime));
  families.push_back(gpu::make_simt_family(runtime));
  return families;
}

}  // namespace gemmtune::cuda
