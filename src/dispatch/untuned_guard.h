// Verifies a plan that no row answered in its first run, on the caller's own operands.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "problem/problem.h"
#include "resolve/bind.h"

namespace gemmtune {

/// Safe from any thread. The device must outlive it.
class UntunedGuard {
 public:
  /// What a wrong result leads to.
  enum class WrongResult { runs_the_next_kernel, is_an_error };
  /// What of y is compared. One block: the last 128 rows of 128 columns, which are others at another M. It is for a kernel that
  /// was verified at another M of the same weight: little of a plain weight [N, K] is copied.
  enum class Compared { all_columns, one_block };

  /// `candidate`: what the plan runs.
  UntunedGuard(Device& device, const Problem& problem, Candidate candidate,
               WrongResult wrong = WrongResult::runs_the_next_kernel,
               Compared compared = Compared::all_columns)
      : device_(device),
        problem_(problem),
        candidate_(std::move(candidate)),
        wrong_(wrong),
        compared_(compared) {}

  /// Runs the kernel. The first call waits for it, copies the operands to the host and compares y with a
  /// float64 reference: every element if M is 1, else a random-vector check and a few rows and columns. If y
  /// is wrong, the next kernel of the fallback that has the same weight layout and needs no larger workspace
  /// runs in its place, is verified alike and serves all further calls; `internal` if none is right or none is wanted
  /// (WrongResult). A call
  /// whose stream is being captured runs unverified. What cannot be verified (no reference, no memory) is
  /// logged and stays.
  Status run(const Kernel& kernel, const Operands& operands, void* workspace, Stream stream);

 private:
  Status run_first(const Kernel& kernel, const Operands& operands, void* workspace, Stream stream);
  /// The kernel after those that failed.
  Result<BoundKernel> next_kernel(const Kernel& first, const std::vector<Candidate>& failed) const;
  /// Empty if y is right, else what is wrong with it.
  Result<std::string> fault_of(const Operands& operands, const Candidate& candidate, WeightLayout layout);
  /// The same; `out_of_memory` in place of an exception.
  Result<std::string> fault_if_memory(const Operands& operands, const Candidate& candidate,
                                      WeightLayout layout);

  Device& device_;
  Problem problem_;
  Candidate candidate_;
  WrongResult wrong_;
  Compared compared_;
  std::mutex mutex_;
  std::atomic<const Kernel*> verified_{nullptr};
  std::unique_ptr<Kernel> replacement_;
};

}  // namespace gemmtune
