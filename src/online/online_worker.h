// The worker process of online tuning: measures beside the service, within a share of the machine.
#pragma once

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>

#include "backends/backend.h"
#include "base/status.h"
#include "evaluate/worker/worker_evaluator.h"
#include "measure/policy.h"

namespace gemmtune {

/// The nice at which the scheduler gives a process this share of processors whose other threads have nice 0; 0 to 19. Each step
/// is a factor of 1.25 of its weight (sched(7)).
int nice_of_share(double share);

/// What a worker of online tuning is started with.
struct OnlineWorkerStart {
  std::string program;  // of gemmtune
  std::string backend;
  DeviceRequest device;  // equal to the tuner's own device
  double share = 1;      // of the device's processor time, above 0; 1: it never rests
  /// What a candidate may take at least: a worker that a busy service leaves little time is no hanging one.
  double min_deadline_seconds = 15;
  std::size_t memory_limit_bytes = 0;  // 0: half of what is free when it starts
};

/// A worker and how it measures. It is started by the constructing thread, which must outlive it.
class OnlineWorker {
 public:
  /// `device`: the tuner's own. An error where no worker of it can be started. All calls end with an error
  /// once `stopping` is set.
  static Result<std::unique_ptr<OnlineWorker>> start(const OnlineWorkerStart& start, Device& device,
                                                     const Policy& policy, double max_err_ratio,
                                                     const std::string& timing_lock,
                                                     const std::atomic<bool>& stopping);

  Evaluator& evaluator() { return evaluator_; }
  const Policy& policy() const { return policy_; }
  /// It has a share of the machine only.
  bool gives_way() const { return cores_ > 0; }
  /// What a worker that gives way has used, in seconds of the whole machine.
  double machine_seconds() const { return evaluator_.processor_seconds() / cores_; }

 private:
  /// `cores`: of the device; 0: the worker has all of them.
  OnlineWorker(WorkerOptions options, int cores)
      : policy_(options.evaluation.policy), cores_(cores), evaluator_(std::move(options)) {}

  Policy policy_;
  int cores_;
  WorkerEvaluator evaluator_;
};

/// The gemmtune program for workers: `named` (GEMMTUNE_PROGRAM) if it is not empty, else the first that lies
/// around this library. An error says where it was looked for.
Result<std::string> worker_program_of(const std::string& named);

}  // namespace gemmtune
