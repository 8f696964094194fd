// One problem tuned beside the service: within a budget, into the online file. In a worker process with all
// kernels; in the process that serves with proven ones.
#pragma once

#include <atomic>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "base/status.h"
#include "measure/policy.h"
#include "online/online_worker.h"
#include "tuning/budget.h"

namespace gemmtune {

/// A problem that no row answered, as dispatch reports it.
struct OnlineProblem {
  Problem problem;
  std::string file;                          // that its row goes into
  std::string fallback;                      // the kernel that runs meanwhile
  std::vector<std::string> proven_families;  // beside the vendors': rows of this device name them
  std::vector<std::string> tuned_files;      // whose journals know what fails
};

struct OnlineSettings {
  double budget_seconds = 2;     // of all of the machine's time: a worker with a share of it takes longer
  bool hipblaslt_table = false;  // the file is AITER's hip_online_tuning_res.csv
  double max_err_ratio = 0.05;
  std::string runtime_folder;           // for the lock that a GPU or the CPUs are timed under; empty: none
  SecondsClock clock = steady_seconds;  // of the budget
};

/// The policy of offline tuning on this device, so that rows and failures of both mean the same, with fewer
/// finalists and rounds and a small pool, of at most a quarter of the free memory.
Policy online_policy(Device& device);

enum class OnlineState {
  tuned,     // a row was published
  known,     // the file has a row of it that runs here
  declined,  // it is not tuned online, and need not be asked again
  failed,    // no candidate is right, or the file cannot be written
  stopped,
};

struct OnlineResult {
  OnlineState state = OnlineState::failed;
  std::string text;       // for the log
  bool hopeless = false;  // no other problem will fare better: the file cannot be written
};

/// A problem as its row will stand for it: the alignment is what AITER's columns hold.
Problem online_key_problem(const Problem& problem);

/// Requires the problem's claim. `device` is not used by anybody else. `worker`, of that device, measures; null: this
/// process does, with vendors' kernels and proven families alone. The result is checked by both gates,
/// and at the other M that its row answers (for AITER's table: with and without a bias, which its key does
/// not tell apart). What the budget cannot cut (the reference, one candidate, three rounds) may exceed it; a
/// problem whose checks alone are estimated above it is declined.
OnlineResult tune_online(Device& device, OnlineWorker* worker, const OnlineProblem& asked,
                         const OnlineSettings& settings, const std::atomic<bool>& stopping);

}  // namespace gemmtune
