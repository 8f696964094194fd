#include "backends/cuda/cuda_backend.h"

#include <array>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/libraries.h"
#include "backends/cuda/nvrtc_compiler.h"
#include "backends/gpu/gpu_backend.h"
#include "backends/traits.h"

namespace gemmtune::cuda {
namespace {

constexpr std::string_view prefix = "cuda";

/// What would be there for a GPU, if one were: worth knowing before it is.
std::string libraries_text(const std::string& folder) {
  std::string text;
  for (const Library& library : {nvrtc(folder).description, cublas_lt(folder).description}) {
    text += library.why.empty() ? fmt::format("; {} {} is here", library.name, library.version)
                                : fmt::format("; {} is not here", library.name);
  }
  return text;
}

class CudaBackend final : public gpu::GpuBackend {
 public:
  std::string_view name() const override { return prefix; }
  const DeviceTraits& traits() const override {
    static const auto families = gpu::family_infos(family_entries());
    static const DeviceTraits traits{.families = families};
    return traits;
  }

  Status available() const override {
    const auto& opened = driver();
    if (!opened.ok()) {
      return Status::unsupported("backend cuda: no NVIDIA driver: {}; --backend cpu runs here",
                                 opened.description.why);
    }
    if (count() == 0)
      return Status::unsupported("backend cuda: the driver shows no GPU; --backend cpu runs here");
    return {};
  }

  std::string why_absent() const override {
    const Status status = available();
    return status.ok() ? std::string() : status.message() + libraries_text({});
  }

 protected:
  int count() const override {
    int devices = 0;
    return driver().functions.device_count(&devices) == api::success ? devices : 0;
  }
  Result<DeviceInfo> describe(int ordinal) const override {
    const api::Driver& f = driver().functions;
    api::Device device = 0;
    GEMMTUNE_RETURN_IF_ERROR(driver_status(f.device_get(&device, ordinal), fmt::format("cuda:{}", ordinal)));
    std::array<char, 256> model{};
    GEMMTUNE_RETURN_IF_ERROR(driver_status(
        f.device_name(model.data(), static_cast<int>(model.size()), device), "cuDeviceGetName"));
    int major = 0;
    int minor = 0;
    DeviceInfo info;
    f.device_attribute(&major, api::attribute_major, device);
    f.device_attribute(&minor, api::attribute_minor, device);
    f.device_attribute(&info.cu_num, api::attribute_multiprocessors, device);
    info.model = model.data();
    info.gfx = fmt::format("sm_{}{}", major, minor);
    std::array<char, 32> bus{};
    if (f.device_bus_id(bus.data(), static_cast<int>(bus.size()), device) == api::success)
      info.bus_id = bus.data();
    return info;
  }
  std::vector<Library> libraries(const std::string& folder) const override {
    return {driver().description, nvrtc(folder).description, cublas_lt(folder).description,
            nvml().description};
  }
  Result<std::unique_ptr<gpu::GpuRuntime>> open_runtime(int ordinal,
                                                        const DeviceRequest& request) const override {
    return cuda::open_runtime(ordinal, request);
  }
  std::span<const gpu::FamilyEntry* const> entries() const override { return family_entries(); }
};

}  // namespace

Result<std::unique_ptr<gpu::GpuRuntime>> open_runtime(int ordinal, const DeviceRequest& request) {
  const auto& opened = driver();
  if (!opened.ok()) return opened.found;
  GEMMTUNE_TRY(auto opened_driver, CudaDriver::open(opened.functions, ordinal));
  return gpu::make_runtime(std::move(opened_driver), make_nvrtc_compiler(request.module_folder), request);
}

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace gemmtune::cuda
