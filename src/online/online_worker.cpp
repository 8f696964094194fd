#include "online/online_worker.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/shared_library.h"
#include "base/text.h"

namespace gemmtune {
namespace {

bool is_program(const std::string& path) {
  struct stat status {};
  return stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && access(path.c_str(), X_OK) == 0;
}

}  // namespace

int nice_of_share(double share) {
  if (share >= 1) return 0;
  const double steps = std::log((1 - share) / share) / std::log(1.25);
  return static_cast<int>(std::lround(std::clamp(steps, 0.0, 19.0)));
}

Result<std::unique_ptr<OnlineWorker>> OnlineWorker::start(const OnlineWorkerStart& start, Device& device,
                                                          const Policy& policy, double max_err_ratio,
                                                          const std::string& timing_lock,
                                                          const std::atomic<bool>& stopping) {
  WorkerOptions options;
  options.launch = {start.program, {"worker"}};
  options.backend = start.backend;
  options.device = start.device;
  options.evaluation = in_process_options(device, policy, max_err_ratio);
  options.device_of_run = &device;
  options.evaluation.timing_lock = timing_lock;
  options.evaluation.share = start.share;
  // Else a kernel's time would be how long the worker's threads wait for processors that the service has.
  options.evaluation.policy.processor_time = start.share < 1;
  options.evaluation.reference_threads =
      std::max(1, static_cast<int>(start.share * options.evaluation.reference_threads));
  options.min_deadline_seconds = start.min_deadline_seconds;
  options.memory_limit_bytes = start.memory_limit_bytes;
  options.cancelled = options.is_spent = [&stopping] { return stopping.load(std::memory_order_relaxed); };
  const int cores = start.share < 1 ? std::max(1, device.info().cu_num) : 0;
  std::unique_ptr<OnlineWorker> worker(new OnlineWorker(std::move(options), cores));
  GEMMTUNE_RETURN_IF_ERROR(worker->evaluator_.start());
  return worker;
}

Result<std::string> worker_program_of(const std::string& named) {
  if (!named.empty()) {
    if (is_program(named)) return named;
    return Status::not_found("GEMMTUNE_PROGRAM {}: expected the gemmtune program", named);
  }
  const std::vector<std::string> paths = program_paths();
  const auto found = std::ranges::find_if(paths, is_program);
  if (found != paths.end()) return *found;
  return Status::not_found("no program gemmtune is at {}; set GEMMTUNE_PROGRAM to its path",
                           joined(paths, ", "));
}

}  // namespace gemmtune
