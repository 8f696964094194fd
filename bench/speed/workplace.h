// Operands of one problem in cold pools, and what is timed on them: the fastest kernel of ours and the
// kernels that it is compared with.
#pragma once

#include <memory>

#include "evaluate/in_process/kernel_verifier.h"
#include "evaluate/in_process/weight_pools.h"
#include "measure/policy.h"
#include "speed/round_member.h"

namespace gemmtune::speed {

/// Operands of one problem, which also serve any smaller M.
class Workplace {
 public:
  /// `device`, `sampler` and `policy` must outlive it.
  static Result<std::unique_ptr<Workplace>> make(Device& device, Sampler& sampler, const Problem& largest,
                                                 const Policy& policy);

  const Problem& largest() const { return largest_; }
  Device& device() { return device_; }
  Sampler& sampler() { return sampler_; }
  const Policy& policy() const { return policy_; }
  /// Of the plain weight.
  Result<Operands> operands() { return operands_.operands(WeightLayout::plain); }
  /// The fastest of our families' kernels for `m` rows (fastest_of_ours).
  Result<RoundMember> fastest(std::int64_t m, int tries);
  /// The library's kernel; `not_found` where there is none.
  Result<RoundMember> library(std::int64_t m, WeightLayout layout);
  /// OpenBLAS on the plain weight (it knows no packed one); `not_found` where there is none.
  Result<RoundMember> blas(std::int64_t m);
  /// A streaming read of the weights in `layout`, by all threads.
  Result<RoundMember> roofline(WeightLayout layout);

 private:
  Workplace(Device& device, Sampler& sampler, const Problem& largest, const Policy& policy,
            DeviceOperands operands)
      : device_(device),
        sampler_(sampler),
        largest_(largest),
        policy_(policy),
        operands_(std::move(operands)),
        pools_(device, largest, policy) {}
  /// Of `m` rows and a weight of this layout.
  Problem problem_of(std::int64_t m, WeightLayout layout) const;
  Result<Rotation*> rotation_of(const Kernel& kernel) {
    return pools_.rotation(kernel.weight_layout(), RoutingKind::uniform, operands_);
  }
  Result<RoundMember> make_member(const Problem& problem, const Candidate& candidate);

  Device& device_;
  Sampler& sampler_;
  Problem largest_;
  const Policy& policy_;
  DeviceOperands operands_;
  WeightPools pools_;
};

}  // namespace gemmtune::speed
