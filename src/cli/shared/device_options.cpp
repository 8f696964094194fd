#include "cli/shared/device_options.h"

#include <fmt/format.h>

#include <cctype>

#include "backends/device_request.h"
#include "backends/traits.h"
#include "base/text.h"
#include "cli/shared/command_options.h"
#include "evaluate/external/external_device.h"
#include "resolve/errata.h"

namespace gemmtune::cli {

void declare_device_options(CommandOptions& app, DeviceOptions& options) {
  app.add_option("--backend", options.backend, backend_names()).capture_default_str();
  app.add_option(
      "--device", options.device,
      "A device of the backend: cpu, cpu:0-15 (a set of cores), cuda:0; for tune also several that are "
      "equal: cpu:0-7,cpu:8-15");
  app.add_option(
         "--threads", options.threads,
         "CPU threads, the first N cores of the set (default: all, or GEMMTUNE_NUM_THREADS); part of cu_num")
      .positive();
  app.add_option(
         "--evaluator", options.evaluators,
         "Kernels of another program in place of a backend's: its command, which speaks the protocol of "
         "docs/evaluators.md (\"python3 evaluate.py\"); for tune also several, one each time")
      .type_name("CMD")
      .not_empty()
      .one_at_a_time();
}

Result<DeviceRequest> device_request(const DeviceOptions& options, const Environment& environment) {
  auto request = gemmtune::device_request({.text = options.device, .threads = options.threads}, environment);
  if (!request.ok()) return request;
  request->compile_threads = options.compile_threads;
  request->source_folder = options.source_folder;
  return request;
}

std::vector<std::string> split_devices(const std::string& text) {
  std::vector<std::string> devices;
  for (const std::string_view word : split(text, ',')) {
    // A word that begins with a letter names a device; others are further cores of the one before.
    const bool names_device =
        devices.empty() || (!word.empty() && std::isalpha(static_cast<unsigned char>(word[0])));
    if (names_device) {
      devices.emplace_back(word);
    } else {
      devices.back() += "," + std::string(word);
    }
  }
  return devices.empty() ? std::vector<std::string>{text} : devices;
}

Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options, const Environment& environment,
                                            bool pin) {
  const bool names_backend = options.backend != DeviceOptions().backend || !options.device.empty();
  if (!options.evaluators.empty() && names_backend)
    return Status::invalid("--evaluator takes the place of --backend and --device: expected one of them");
  if (options.evaluators.size() > 1)
    return Status::invalid("--evaluator: {} of them are for tune; this takes one", options.evaluators.size());
  if (split_devices(options.device).size() > 1) {
    return Status::invalid("--device {}: several devices are for tune; this takes one", options.device);
  }
  auto request = device_request(options, environment);
  if (!request.ok()) return request.status();
  GEMMTUNE_RETURN_IF_ERROR(known_errata().status);
  request->pin_threads = pin;
  if (options.evaluators.empty()) return open_device_of(options.backend, *request);
  request->text = options.evaluators.front();
  return open_device_of(std::string(external_backend), *request);
}

std::string device_line(const DeviceInfo& info) {
  const DeviceTraits& traits = traits_of(info);
  return fmt::format("{}, {} ({}, {} {})", info.name, info.model, info.gfx, info.cu_num,
                     info.cu_num == 1 ? traits.unit : traits.units);
}

}  // namespace gemmtune::cli
