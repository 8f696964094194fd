#include "backends/hip/hip_backend.h"

#include <array>
#include <memory>

#include "backends/gpu/gpu_backend.h"
#include "backends/hip/hip_driver.h"
#include "backends/hip/hiprtc_compiler.h"
#include "backends/hip/libraries.h"
#include "backends/traits.h"
#include "base/file.h"

namespace gemmtune::hip {
namespace {

constexpr std::string_view backend_name = "hip";
/// What the kernel shows where AMD's GPU driver has found a GPU that computes.
constexpr const char* kernel_driver = "/dev/kfd";

class HipBackend final : public gpu::GpuBackend {
 public:
  std::string_view name() const override { return backend_name; }
  const DeviceTraits& traits() const override {
    static const auto families = gpu::family_infos(family_entries());
    static const DeviceTraits traits{.dependent_launches = false, .families = families};
    return traits;
  }

  Status available() const override {
    const auto& opened = runtime();
    if (!opened.ok())
      return Status::unsupported(
          "backend hip: no AMD GPU can be used: HIP runtime: {}; --backend cpu runs here",
          opened.description.why);
    if (count() == 0)
      return Status::unsupported("backend hip: the HIP runtime shows no GPU; --backend cpu runs here");
    return {};
  }

  /// A line for each part that is missing, after the one that says so.
  std::string why_absent() const override {
    if (available().ok()) return {};
    std::string text = "backend hip: no AMD GPU can be used; --backend cpu runs here";
    if (!file_exists(kernel_driver))
      text += fmt::format(
          "\n  AMD GPU driver: missing: {} is not there; install amdgpu-dkms, or use a kernel with amdgpu",
          kernel_driver);
    for (const Library& library : libraries({})) {
      text += library.why.empty() ? fmt::format("\n  {} {}", library.name, library.version)
                                  : fmt::format("\n  {}: missing: {}", library.name, library.why);
    }
    if (runtime().ok())
      text += "\n  devices: none: the HIP runtime shows no GPU (rocminfo, HIP_VISIBLE_DEVICES)";
    return text;
  }

 protected:
  int count() const override {
    int devices = 0;
    return runtime().functions.device_count(&devices) == api::success ? devices : 0;
  }
  Result<DeviceInfo> describe(int ordinal) const override {
    const api::Runtime& f = runtime().functions;
    api::Properties seen{};
    GEMMTUNE_RETURN_IF_ERROR(
        runtime_status(f.device_properties(&seen, ordinal), fmt::format("hip:{}", ordinal)));
    seen.name[sizeof(seen.name) - 1] = seen.architecture[sizeof(seen.architecture) - 1] = '\0';
    DeviceInfo info;
    f.device_attribute(&info.cu_num, api::attribute_multiprocessors, ordinal);
    info.model = seen.name;
    info.gfx = architecture_name(seen.architecture);
    std::array<char, 64> bus{};
    if (f.device_bus_id(bus.data(), static_cast<int>(bus.size()), ordinal) == api::success)
      info.bus_id = bus.data();
    return info;
  }
  std::vector<Library> libraries(const std::string& folder) const override {
    return {runtime().description, rtc(folder).description, hipblas_lt(folder).description,
            smi().description};
  }
  Result<std::unique_ptr<gpu::GpuRuntime>> open_runtime(int ordinal,
                                                        const DeviceRequest& request) const override {
    GEMMTUNE_TRY(auto driver, HipDriver::open(runtime().functions, ordinal));
    return gpu::make_runtime(std::move(driver), make_hiprtc_compiler(request.module_folder), request);
  }
  std::span<const gpu::FamilyEntry* const> entries() const override { return family_entries(); }
};

}  // namespace

const Backend& hip_backend() {
  static const HipBackend backend;
  return backend;
}

}  // namespace gemmtune::hip
