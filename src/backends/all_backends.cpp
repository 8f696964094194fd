// The list of backends, the preferred one first.
#include <array>

#include "backends/backend.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "backends/hip/hip_backend.h"

namespace gemmtune {

std::span<const Backend* const> all_backends() {
  static const std::array<const Backend*, 3> list{&cuda::cuda_backend(), &hip::hip_backend(),
                                                  &cpu::cpu_backend()};
  return list;
}

}  // namespace gemmtune
