#include "backends/gpu/gpu_backend.h"

#include <utility>

#include "backends/gpu/gpu_device.h"
#include "base/text.h"

namespace gemmtune::gpu {
namespace {

/// "", "cuda", "cuda:1" → 0, 0, 1 of the backend "cuda".
Result<int> ordinal_of(std::string_view text, std::string_view backend, int count) {
  if (text.empty() || text == backend) return 0;
  const bool is_of_backend = text.starts_with(backend) && text.substr(backend.size()).starts_with(":");
  const auto number =
      is_of_backend ? parse_integer(text.substr(backend.size() + 1)) : std::optional<std::int64_t>();
  if (number && *number >= 0 && *number < count) return static_cast<int>(*number);
  return Status::invalid("device '{}', expected {}:0 to {}:{}", text, backend, backend, count - 1);
}

}  // namespace

Result<DeviceInfo> GpuBackend::info_of(int ordinal, const std::string& library_folder) const {
  GEMMTUNE_TRY(auto info, describe(ordinal));
  info.backend = name();
  info.name = fmt::format("{}:{}", name(), ordinal);
  info.libraries = libraries(library_folder);
  return info;
}

std::vector<DeviceInfo> GpuBackend::devices(const DeviceRequest& request) const {
  std::vector<DeviceInfo> list;
  const int all = available().ok() ? count() : 0;
  for (int ordinal = 0; ordinal < all; ++ordinal) {
    auto info = info_of(ordinal, request.module_folder);
    if (info.ok()) list.push_back(std::move(*info));
  }
  return list;
}

Result<std::unique_ptr<Device>> GpuBackend::open(const DeviceRequest& request) const {
  GEMMTUNE_RETURN_IF_ERROR(available());
  GEMMTUNE_TRY(const auto ordinal, ordinal_of(request.text, name(), count()));
  GEMMTUNE_TRY(auto info, info_of(ordinal, request.module_folder));
  GEMMTUNE_TRY(auto runtime, open_runtime(ordinal, request));
  return std::make_unique<GpuDevice>(std::move(runtime), std::move(info), entries(), request.module_folder);
}

std::unique_ptr<GpuRuntime> make_runtime(std::unique_ptr<Driver> driver,
                                         Result<std::unique_ptr<Compiler>> compiler,
                                         const DeviceRequest& request) {
  return std::make_unique<GpuRuntime>(
      std::move(driver), std::move(compiler),
      KernelCache(request.kernel_cache_folder, request.rebuild_kernels, request.source_folder),
      request.compile_threads);
}

}  // namespace gemmtune::gpu
