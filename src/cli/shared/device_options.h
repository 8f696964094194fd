// --backend, --device, --threads: the same on each command that needs a machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"

namespace gemmtune::cli {

class CommandOptions;

struct DeviceOptions {
  std::string backend = "auto";
  std::string device;
  std::vector<std::string> evaluators;  // commands (docs/evaluators.md), each a device; empty: none
  int threads = 0;                      // 0: GEMMTUNE_NUM_THREADS, else all cores of the set
  int compile_threads = 0;              // of GPU kernels; 0: all cores but one
  std::string source_folder;            // where sources of GPU kernels are left; empty: nowhere

  /// Any was given: that device is meant, and not having it is an error where another would do as well.
  bool names_device() const {
    return backend != DeviceOptions().backend || !device.empty() || !evaluators.empty() || threads != 0;
  }
};

void declare_device_options(CommandOptions& app, DeviceOptions& options);
/// The options with the environment; errors as gemmtune::device_request.
Result<DeviceRequest> device_request(const DeviceOptions& options, const Environment& environment);
/// "cpu:0,cpu:1" → cpu:0 and cpu:1; "cpu:0,2-3" is one device. An empty text is one too: the default.
std::vector<std::string> split_devices(const std::string& text);
/// `pin`: for measuring; a command that only looks does not pin. Messages name the option at fault.
Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options, const Environment& environment,
                                            bool pin);
/// "cpu:0-1, AMD EPYC (x86-avx2, 2 cores)".
std::string device_line(const DeviceInfo& info);

}  // namespace gemmtune::cli
