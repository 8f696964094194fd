#include "cli/shared/worker_evaluator.h"

#include <utility>

#include "evaluate/in_process/in_process_evaluator.h"

namespace gemmtune::cli {

std::unique_ptr<WorkerEvaluator> make_worker(const Device& device, const DeviceOptions& options,
                                             const Environment& environment,
                                             const InProcessOptions& evaluation, double timeout_seconds,
                                             WorkerHooks hooks) {
  WorkerOptions worker;
  worker.launch = {"/proc/self/exe", {"worker"}};
  worker.backend = device.info().backend;
  worker.device = device_request(options, environment).value();  // it opened the device
  worker.device.text = device.info().name;
  worker.device.threads = 0;  // the name holds the cores that were chosen
  worker.device.pin_threads = true;
  worker.evaluation = evaluation;
  worker.device_of_run = &device;
  worker.timeout_seconds = timeout_seconds;
  worker.memory_limit_bytes = evaluation.memory_limit_bytes;
  worker.cancelled = std::move(hooks.cancelled);
  worker.is_spent = std::move(hooks.is_spent);
  worker.on_waited = std::move(hooks.on_waited);
  return std::make_unique<WorkerEvaluator>(std::move(worker));
}

std::unique_ptr<WorkerEvaluator> make_verifying_worker(Device& device, const DeviceOptions& options,
                                                       const Environment& environment, double max_err_ratio) {
  InProcessOptions evaluation = in_process_options(device, default_policy(device.info()), max_err_ratio);
  evaluation.odd_strides = true;
  return make_worker(device, options, environment, evaluation);
}

}  // namespace gemmtune::cli
