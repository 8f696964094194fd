#include "backends/cuda/cuda_backend.h"

#include "backends/cuda/cuda_device.h"
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

class CudaBackend final : public Backend {
 public:
  std::string_view name() const override { return "cuda"; }

  Status available() const override {
    const auto& opened = driver();
    if (!opened.ok()) {
      return Status::unsupported("backend cuda: no NVIDIA driver: {}{}; --backend cpu runs here",
                                 opened.description.why, libraries_text({}));
    }
    if (count() == 0)
      return Status::unsupported("backend cuda: the driver shows no GPU; --backend cpu runs here");
    return {};
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
    return CudaDevice::open(
        {*ordinal, request.kernel_cache_folder, request.rebuild_kernels, request.module_folder});
  }

 private:
  static int count() {
    int devices = 0;
    return driver().functions.device_count(&devices) == api::success ? devices : 0;
  }
};

}  // namespace

const Backend& cuda_backend() {
  static const CudaBackend backend;
  return backend;
}

}  // namespace gemmtune::cuda
