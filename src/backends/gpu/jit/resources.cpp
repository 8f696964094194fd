#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

Status Resources::acceptable(std::string_view name) const {
  if (stack_bytes == 0) return {};
  return Status::unsupported("{}: the compiler keeps {} bytes a thread in device memory (spilled registers)",
                             name, stack_bytes);
}

}  // namespace gemmtune::gpu
