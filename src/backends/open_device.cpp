// Finds a backend, its traits and its devices by the names that users write.
#include <string>

#include "backends/backend.h"
#include "backends/traits.h"
#include "base/text.h"

namespace gemmtune {
namespace {

/// "cuda:0" → "cuda"; empty where the text names no backend of the list.
std::string_view backend_in(std::string_view device) {
  const std::string_view word = device.substr(0, device.find(':'));
  for (const Backend* backend : all_backends()) {
    if (backend->name() == word) return word;
  }
  return {};
}

}  // namespace

std::string backend_names() {
  std::string names = "auto";
  for (const Backend* backend : all_backends()) names += fmt::format(", {}", backend->name());
  return names;
}

const DeviceTraits& traits_of(std::string_view backend) {
  for (const Backend* one : all_backends()) {
    if (one->name() == backend) return one->traits();
  }
  static const DeviceTraits unknown;
  return unknown;
}

const DeviceTraits& traits_of(const DeviceInfo& device) { return traits_of(device.backend); }

namespace {

/// ": hip is for AMD GPUs", for words of other tools.
std::string other_word(std::string_view word) {
  const std::string lower = to_lower(word);
  if (lower == "gpu" || lower == "device") return ": cuda is for NVIDIA GPUs, hip for AMD GPUs";
  if (lower == "nvidia") return ": cuda is for NVIDIA GPUs";
  if (lower == "rocm" || lower == "amd") return ": hip is for AMD GPUs";
  return {};
}

Result<const Backend*> chosen_backend(std::string_view backend, const DeviceRequest& request) {
  const std::string_view named = backend_in(request.text);
  const bool chosen = !backend.empty() && backend != "auto";
  if (chosen && !named.empty() && named != backend) {
    return Status::invalid("backend {} has no device {}", backend, request.text);
  }
  const std::string_view wanted = chosen ? backend : named;
  for (const Backend* candidate : all_backends()) {
    if (wanted.empty() ? candidate->available().ok() : candidate->name() == wanted) {
      GEMMTUNE_RETURN_IF_ERROR(candidate->available());
      return candidate;
    }
  }
  return Status::invalid("backend '{}', expected one of {}{}", wanted, backend_names(), other_word(wanted));
}

}  // namespace

Result<std::unique_ptr<Device>> open_device(std::string_view backend, const DeviceRequest& request) {
  GEMMTUNE_TRY(const auto chosen, chosen_backend(backend, request));
  return chosen->open(request);
}

Result<std::vector<std::string>> equal_devices(std::string_view backend, const DeviceRequest& request) {
  GEMMTUNE_TRY(const auto chosen, chosen_backend(backend, request));
  if (chosen->traits().runs_on_host) return std::vector<std::string>{""};
  const std::vector<DeviceInfo> devices = chosen->devices(request);
  std::vector<std::string> names;
  for (const DeviceInfo& device : devices) {
    if (device.gfx == devices.front().gfx && device.cu_num == devices.front().cu_num)
      names.push_back(device.name);
  }
  return names.empty() ? std::vector<std::string>{""} : names;
}

}  // namespace gemmtune
