#include "cli/tune/tune_workers.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "backends/host.h"
#include "base/deadline.h"
#include "base/file.h"
#include "evaluate/external/external_device.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "measure/timing_lock.h"

namespace gemmtune::cli {
namespace {

Status check_partners(std::string_view option, const DeviceInfo& first, const DeviceInfo& second) {
  if (first.gfx != second.gfx || first.cu_num != second.cu_num) {
    return Status::invalid(
        "{}: {} ({}, cu_num {}) and {} ({}, cu_num {}) are not equal; their rows differ: tune them one after "
        "the other",
        option, first.name, first.gfx, first.cu_num, second.name, second.gfx, second.cu_num);
  }
  if (first.name == second.name) return Status::invalid("{}: {} is named twice", option, first.name);
  if (const int core = shared_core(first, second); core >= 0) {
    return Status::invalid("{}: {} and {} share core {}", option, first.name, second.name, core);
  }
  return {};
}

/// Those of --evaluator or --device; without it all devices, or one where a run takes no more.
Result<std::vector<std::string>> device_names(const TuneOptions& options, const Environment& environment) {
  if (!options.device.evaluators.empty()) return options.device.evaluators;
  const bool takes_one = options.in_process || options.compare || !options.record.empty();
  if (!options.device.device.empty() || takes_one) return split_devices(options.device.device);
  GEMMTUNE_TRY(const auto request, device_request(options.device, environment));
  return equal_devices(options.device.backend, request);
}

}  // namespace

Result<std::vector<std::unique_ptr<Device>>> open_tune_devices(const TuneOptions& options,
                                                               const Environment& environment) {
  GEMMTUNE_TRY(std::vector<std::string> names, device_names(options, environment));
  const auto wanted = static_cast<std::size_t>(std::max(0, options.workers));
  if (wanted > 0) names.resize(std::min(wanted, names.size()));
  if (names.size() > 1 && options.in_process)
    return Status::invalid("--in-process takes one device, not {}", names.size());
  const bool has_evaluators = !options.device.evaluators.empty();
  const double budget = options.request.budget_seconds;
  const Deadline deadline = budget > 0 ? Deadline::in(budget) : Deadline::never();
  std::vector<std::unique_ptr<Device>> devices;
  for (const std::string& name : names) {
    DeviceOptions one = options.device;
    if (has_evaluators) {
      one.evaluators = {name};
    } else {
      one.device = name;
    }
    GEMMTUNE_TRY(auto device, open_device(one, environment, options.in_process,
                                          std::clamp(deadline.seconds_left(), 0.0, hello_seconds)));
    for (const auto& other : devices) {
      GEMMTUNE_RETURN_IF_ERROR(
          check_partners(has_evaluators ? "--evaluator" : "--device", other->info(), device->info()));
    }
    devices.push_back(std::move(device));
  }
  return devices;
}

std::vector<std::unique_ptr<Evaluator>> make_evaluators(const TuneOptions& options,
                                                        const Environment& environment,
                                                        const std::vector<std::unique_ptr<Device>>& devices,
                                                        const TuneRequest& request,
                                                        const WorkerHooks& hooks) {
  std::vector<std::unique_ptr<Evaluator>> evaluators;
  const std::size_t free_bytes = free_host_memory_bytes();
  for (const auto& device : devices) {
    InProcessOptions evaluation = in_process_options(*device, request.policy, request.max_err_ratio);
    evaluation.bit_classes = request.invariant;
    evaluation.timing_lock = timing_lock_path(environment.runtime_folder, device->info());
    if (options.in_process) {
      evaluation.on_waited = hooks.on_waited;
      evaluators.push_back(std::make_unique<InProcessEvaluator>(*device, evaluation));
      continue;
    }
    const bool has_own_memory = !device->info().bus_id.empty();
    if (devices.size() > 1 && !has_own_memory)
      evaluation.policy.pool_limit_bytes = free_bytes / 4 / devices.size();
    evaluation.memory_limit_bytes = free_bytes / 2 / devices.size();
    evaluators.push_back(
        make_worker(*device, options.device, environment, evaluation, timeout_of(options).value(), hooks));
  }
  return evaluators;
}

}  // namespace gemmtune::cli
