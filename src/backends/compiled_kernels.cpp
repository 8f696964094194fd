#include "backends/compiled_kernels.h"

#include <algorithm>

#include "backends/gpu/jit/kernel_cache.h"

namespace gemmtune {

std::vector<CompiledKernel> list_compiled_kernels(const std::string& folder) {
  auto kernels = gpu::KernelCache(folder).list();
  std::ranges::sort(kernels, [](const CompiledKernel& a, const CompiledKernel& b) {
    return a.title != b.title ? a.title < b.title : a.file < b.file;
  });
  return kernels;
}

Status check_kernel_folder(const std::string& folder) { return gpu::KernelCache(folder).check_folder(); }

Result<int> clear_compiled_kernels(const std::string& folder) { return gpu::KernelCache(folder).clear(); }

}  // namespace gemmtune
