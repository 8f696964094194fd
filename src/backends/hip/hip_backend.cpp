#include "backends/hip/hip_backend.h"

#include <array>
#include <memory>

#include "backends/gpu/gpu_device.h"
#include "backends/hip/families/family_entries.h"
#include "backends/hip/hip_driver.h"
#include "backends/hip/hiprtc_compiler.h"
#include "backends/hip/libraries.h"
#include "backends/traits.h"
#include "base/file.h"
#include "base/text.h"

namespace gemmtune::hip {
namespace {

constexpr std::string_view backend_name = "hip";
/// What the kernel shows where AMD's GPU driver has found a GPU that computes.
constexpr const char* kernel_driver = "/dev/kfd";

int device_count() {
  int devices = 0;
  return runtime().functions.device_count(&devices) == api::success ? devices : 0;
}

/// "", "hip", "hip:1" → 0, 0, 1.
Result<int> device_ordinal(std::string_view text, int count) {
  const auto refuse = [&] {
    return Status::invalid("device '{}', expected hip:0 to hip:{}", text, count - 1);
  };
  if (text.empty() || text == backend_name) return 0;
  if (!text.starts_with("hip:")) return refuse();
  const auto number = parse_integer(text.substr(backend_name.size() + 1));
  if (!number || *number < 0 || *number >= count) return refuse();
  return static_cast<int>(*number);
}

std::array<const Library*, 4> libraries_of(const std::string& folder) {
  return {&runtime().description, &rtc(folder).description, &hipblas_lt(folder).description,
          &smi().description};
}

/// What info() of the device says, without opening it.
Result<DeviceInfo> device_info(int ordinal, const std::string& library_folder) {
  const auto& opened = runtime();
  if (!opened.ok()) return opened.found;
  const api::Runtime& f = opened.functions;
  api::Properties seen{};
  GEMMTUNE_RETURN_IF_ERROR(
      runtime_status(f.device_properties(&seen, ordinal), fmt::format("hip:{}", ordinal)));
  seen.name[sizeof(seen.name) - 1] = seen.architecture[sizeof(seen.architecture) - 1] = '\0';
  DeviceInfo info;
  f.device_attribute(&info.cu_num, api::attribute_multiprocessors, ordinal);
  info.backend = backend_name;
  info.name = fmt::format("hip:{}", ordinal);
  info.model = seen.name;
  info.gfx = architecture_name(seen.architecture);
  std::array<char, 64> bus{};
  if (f.device_bus_id(bus.data(), static_cast<int>(bus.size()), ordinal) == api::success)
    info.bus_id = bus.data();
  for (const Library* library : libraries_of(library_folder)) info.libraries.push_back(*library);
  return info;
}

class HipBackend final : public Backend {
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
    if (device_count() == 0)
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
    for (const Library* library : libraries_of({})) {
      text += library->why.empty() ? fmt::format("\n  {} {}", library->name, library->version)
                                   : fmt::format("\n  {}: missing: {}", library->name, library->why);
    }
    if (runtime().ok())
      text += "\n  devices: none: the HIP runtime shows no GPU (rocminfo, HIP_VISIBLE_DEVICES)";
    return text;
  }

  std::vector<DeviceInfo> devices(const DeviceRequest& request) const override {
    std::vector<DeviceInfo> list;
    const int all = available().ok() ? device_count() : 0;
    for (int ordinal = 0; ordinal < all; ++ordinal) {
      auto info = device_info(ordinal, request.module_folder);
      if (info.ok()) list.push_back(std::move(*info));
    }
    return list;
  }

  Result<std::unique_ptr<Device>> open(const DeviceRequest& request) const override {
    GEMMTUNE_RETURN_IF_ERROR(available());
    const auto ordinal = device_ordinal(request.text, device_count());
    if (!ordinal.ok()) return ordinal.status();
    auto info = device_info(*ordinal, request.module_folder);
    if (!info.ok()) return info.status();
    auto driver = HipDriver::open(runtime().functions, *ordinal);
    if (!driver.ok()) return driver.status();
    auto runtime_of_device = std::make_unique<gpu::GpuRuntime>(
        std::move(*driver), make_hiprtc_compiler(request.module_folder),
        gpu::KernelCache(request.kernel_cache_folder, request.rebuild_kernels, request.source_folder),
        request.compile_threads);
    return std::unique_ptr<Device>(std::make_unique<gpu::GpuDevice>(
        std::move(runtime_of_device), std::move(*info), family_entries(), request.module_folder));
  }
};

}  // namespace

const Backend& hip_backend() {
  static const HipBackend backend;
  return backend;
}

}  // namespace gemmtune::hip
