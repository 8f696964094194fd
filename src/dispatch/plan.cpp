#include "dispatch/plan.h"

#include "dispatch/weights.h"

namespace gemmtune {

Plan::Plan(std::shared_ptr<const DispatchDevice> device, const Problem& problem, PlanAccount account,
           std::unique_ptr<Kernel> kernel, std::unique_ptr<UntunedGuard> guard)
    : device_(std::move(device)),
      problem_(problem),
      account_(std::move(account)),
      kernel_(std::move(kernel)),
      guard_(std::move(guard)),
      workspace_bytes_(kernel_ ? kernel_->workspace_bytes() : 0),
      on_cpu_(traits_of(device_->device->info()).runs_on_host),
      needs_(problem),
      // No table has a row of K = 0.
      miss_(is_miss(account_.match) && kernel_ != nullptr && problem.k != 0) {
  if (!kernel_ || kernel_->weight_layout() == WeightLayout::plain) return;
  const auto packed = packed_weight_bytes(*device_->device, problem_, kernel_->weight_layout());
  if (packed.ok()) needs_.w_bytes = static_cast<std::int64_t>(*packed);
}

}  // namespace gemmtune
