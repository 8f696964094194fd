// The cache of kernels that GPU backends compile at run time, as a person sees it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"

namespace gemmtune {

struct CompiledKernel {
  std::string file;   // inside the folder
  std::string title;  // family, architecture, compiler, defines; "damaged" where it cannot be used
  std::uint64_t bytes = 0;
};

/// An error if other users may write the folder: it is neither read nor written then.
Status check_kernel_folder(const std::string& folder);
/// In the order of their titles; none where the folder is not there.
std::vector<CompiledKernel> list_compiled_kernels(const std::string& folder);
/// Removes them all and nothing else; how many there were.
Result<int> clear_compiled_kernels(const std::string& folder);

}  // namespace gemmtune
