// What the speed table times: operands of one problem in cold pools, the kernel of ours that is fastest
// there, and the kernels that it is held against.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "evaluate/in_process/weight_pools.h"
#include "measure/policy.h"
#include "measure/sampler.h"

namespace gemmtune::speed {

/// One thing that is sampled in every round.
struct RoundMember {
  std::string name;
  std::unique_ptr<Kernel> kernel;
  std::string thread_pool = "own";
  std::unique_ptr<Buffer> workspace;
  Timed timed;
  std::shared_ptr<void> holds = {};  // what the kernel's rotation is made of, where no workplace has it
};

/// Operands of one problem, which also serve any smaller M.
class Workplace {
 public:
  static Result<std::unique_ptr<Workplace>> make(Device& device, const Problem& largest,
                                                 const Policy& policy);

  const Problem& largest() const { return largest_; }
  Device& device() { return device_; }
  /// Of the plain weight.
  Result<Operands> operands() { return operands_.operands(WeightLayout::plain); }
  const Policy& policy() const { return policy_; }
  /// Over the weights in the kernel's layout; warmed up, its sample length set.
  Status enter(RoundMember& member);
  /// Workspace, warm-up and sample length of a member that has a rotation.
  Status prepare(RoundMember& member);
  /// The fastest of our families' kernels for `m` rows by two short looks at the `tries` configs that the
  /// cost model likes best of each family.
  Result<RoundMember> fastest(std::int64_t m, int tries);
  /// The library's kernel; `not_found` where there is none.
  Result<RoundMember> library(std::int64_t m, WeightLayout layout);
  /// OpenBLAS on the plain weight (it knows no packed one); `not_found` where there is none.
  Result<RoundMember> blas(std::int64_t m);
  /// A streaming read of the weights in `layout`, by all threads.
  Result<RoundMember> roofline(WeightLayout layout);
  Result<double> sample(RoundMember& member);

 private:
  Workplace(Device& device, const Problem& largest, const Policy& policy, DeviceOperands operands)
      : device_(device),
        largest_(largest),
        policy_(policy),
        operands_(std::move(operands)),
        pools_(device, largest, policy_),
        sampler_(device, policy_) {}
  Result<RoundMember> make_member(const KernelFamily& family, const Problem& problem, const Config& config);

  Device& device_;
  Problem largest_;
  Policy policy_;
  DeviceOperands operands_;
  WeightPools pools_;
  Sampler sampler_;
};

/// Announces the member that runs next to the device; waits where the thread pool changes.
class PoolTurns {
 public:
  explicit PoolTurns(Device& device) : device_(device) {}
  void next(const RoundMember& member);

 private:
  Device& device_;
  std::string current_;
};

}  // namespace gemmtune::speed
