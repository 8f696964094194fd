#include "backends/cuda/cuda_backend.h"

#include <array>

#include "backends/cuda/cuda_driver.h"
#include "backends/cuda/families/family_entries.h"
#include "backends/cuda/libraries.h"
#include "backends/cuda/nvrtc_compiler.h"
#include "backends/gpu/gpu_device.h"
#include "backends/traits.h"
#include "base/text.h"

namespace gemmtune::cuda {
namespace {

constexpr std::string_view prefix = "cuda";

/// "", "cuda", "cuda:1" → 0, 0, 1.
Result<int> ordinal_of(std::string_view text, int count) {
  const auto refuse = [&] {
    return Status::invalid("device '{}', expected cuda:0 to cuda:{}", text, count - 1);
  };
  if (text.empty() || text == prefix) return 0;
  if (!text.starts_with("cuda:")) return refuse();
  const auto number = parse_integer(text.substr(prefix.size() + 1));
  if (!number || *number < 0 || *number >= count) return refuse();
  return static_cast<int>(*number);
}

/// What would be there for a GPU, if one were: worth knowing before it is.
std::string libraries_text(const std::string& folder) {
  std::string text;
  for (const Library& library : {nvrtc(folder).description, cublas_lt(folder).description}) {
    text += library.why.empty() ? fmt::format("; {} {} is here", library.name, library.version)
                                : fmt::format("; {} is not here", library.name);
  }
  return text;
}

/// What info() of the device says, without opening it.
Result<DeviceInfo> describe_device(int ordinal, const std::string& library_folder) {
  const auto& opened = driver();
  if (!opened.ok()) return opened.found;
  const api::Driver& f = opened.functions;
  api::Device device = 0;
  GEMMTUNE_RETURN_IF_ERROR(driver_status(f.device_get(&device, ordinal), fmt::format("cuda:{}", ordinal)));
  std::array<char, 256> name{};
  GEMMTUNE_RETURN_IF_ERROR(
      driver_status(f.device_name(name.data(), static_cast<int>(name.size()), device), "cuDeviceGetName"));
  int major = 0;
  int minor = 0;
  DeviceInfo info;
  f.device_attribute(&major, api::attribute_major, device);
  f.device_attribute(&minor, api::attribute_minor, device);
  f.device_attribute(&info.cu_num, api::attribute_multiprocessors, device);
  info.backend = prefix;
  info.name = fmt::format("cuda:{}", ordinal);
  info.model = name.data();
  info.gfx = fmt::format("sm_{}{}", major, minor);
  std::array<char, 32> bus{};
  if (f.device_bus_id(bus.data(), static_cast<int>(bus.size()), device) == api::success)
    info.bus_id = bus.data();
  info.libraries = {opened.description, nvrtc(library_folder).description,
                    cublas_lt(library_folder).description, nvml().description};
  return info;
}

class CudaBackend final : public Backend {
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

  std::vector<DeviceInfo> devices(const DeviceRequest& request) const override {
    std::vector<DeviceInfo> list;
    const int all = available().ok() ? count() : 0;
    for (int ordinal = 0; ordinal < all; ++ordinal) {
      auto info = describe_device(ordinal, request.module_folder);
      if (info.ok()) list.push_back(std::move(*info));
    }
    return list;
  }

  Result<std::unique_ptr<Device>> open(const DeviceRequest& request) const override {
    GEMMTUNE_RETURN_IF_ERROR(available());
    const auto ordinal = ordinal_of(request.text, count());
    if (!ordinal.ok()) return ordinal.status();
    auto info = describe_device(*ordinal, request.module_folder);
    if (!info.ok()) return info.status();
    auto runtime = open_runtime(*ordinal, request);
    if (!runtime.ok()) return runtime.status();
    return std::unique_ptr<Device>(std::make_unique<gpu::GpuDevice>(std::move(*runtime), std::move(*info),
                                                                    family_entries(), request.module_folder));
  }

 private:
  static int count() {
    int devices = 0;
    return driver().functions.device_count(&devices) == api::success ? devices : 0;
  }
};

}  // namespace

Result<std::unique_ptr<gpu::GpuRuntime>> open_runtime(int ordinal, const DeviceRequest& request) {
  const auto& opened = driver();
  if (!opened.ok()) return opened.found;
  auto opened_driver = CudaDriver::open(opened.functions, ordinal);
  if (!opened_driver.ok()) return opened_driver.status();
  return std::make_unique<gpu::GpuRuntime>(
      std::move(*opened_driver), make_nvrtc_compiler(request.module_folder),
      gpu::KernelCache(request.kernel_cache_folder, request.rebuild_kernels, request.source_folder),
      request.compile_threads);
}

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace gemmtune::cuda
