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
  double share() const { return share_; }

 private:
  OnlineWorker(WorkerOptions options, double share)
      : policy_(options.evaluation.policy), share_(share), evaluator_(std::move(options)) {}

  Policy policy_;
  double share_;
  WorkerEvaluator evaluator_;
};

/// The gemmtune program for workers: `named` (GEMMTUNE_PROGRAM) if it is not empty, else the first that lies
/// around this library. An error says where it was looked for.
Result<std::string> worker_program_of(const std::string& named);

}  // namespace gemmtune
