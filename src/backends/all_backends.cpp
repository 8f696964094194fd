// The list of backends, the preferred one first.
#include <array>
#include <string>

#include "backends/absent_backend.h"
#include "backends/backend.h"
#include "backends/cpu/cpu_backend.h"
#include "backends/cuda/cuda_backend.h"
#include "base/file.h"

namespace gemmtune {
namespace {

/// `driver_file` is what the kernel shows where the GPU's driver is loaded.
std::string why_no_gpu(const std::string& driver_file, std::string_view driver) {
  if (file_exists(driver_file)) {
    return "this build has no GPU kernels; --backend cpu runs here";
  }
  return fmt::format("no {} driver found on this machine ({} is not there); --backend cpu runs here", driver,
                     driver_file);
}

}  // namespace

std::span<const Backend* const> all_backends() {
  static const AbsentBackend hip("hip", why_no_gpu("/sys/module/amdgpu/initstate", "AMD GPU"));
  static const std::array<const Backend*, 3> list{&cuda::cuda_backend(), &hip, &cpu::cpu_backend()};
  return list;
}

}  // namespace gemmtune
