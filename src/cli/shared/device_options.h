// --backend, --device, --threads: the same on each command that needs a machine.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/environment.h"
#include "base/status.h"
#include "evaluate/external/external_device.h"

namespace gemmtune::cli {

class CommandOptions;

struct DeviceOptions {
  std::string backend = "auto";
  std::string device;
  std::vector<std::string> evaluators;  // commands (docs/evaluators.md), each a device; empty: none
  std::string baseline = "default";     // default, library, torch, or an evaluator's command
  std::string python;                   // of torch; empty: GEMMTUNE_PYTHON, else python3
  int threads = 0;                      // 0: GEMMTUNE_NUM_THREADS, else all cores of the set
  Team team = Team::automatic;          // of a CPU; automatic: GEMMTUNE_TEAM, else OpenMP
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
/// `pin`: for measuring; a command that only looks does not pin. Messages name the option at fault. `seconds`: how long an
/// evaluator may be silent.
Result<std::unique_ptr<Device>> open_device(const DeviceOptions& options, const Environment& environment,
                                            bool pin, double seconds = hello_seconds);
/// The device whose rows --gfx and --cu_num ask for.
struct AskedDevice {
  std::string gfx;
  int cu_num = 0;
  std::string note;  // where --cu_num alone chose the architecture
};
/// What is not given is that of `here`, this machine's device (null: none). --cu_num alone: `here`'s architecture if it
/// has so many units, else the one that AITER takes for them (gfx_of_cu_num), else `here`'s.
Result<AskedDevice> asked_device(const std::string& gfx, const std::string& cu_num, const DeviceInfo* here);
/// "cpu:0-1, AMD EPYC (x86-avx2, 2 cores)".
std::string device_line(const DeviceInfo& info);

}  // namespace gemmtune::cli
