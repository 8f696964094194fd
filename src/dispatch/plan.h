// Plan: a problem bound to a kernel, ready to run. Immutable and shared by threads; counts its references.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "backends/backend.h"
#include "backends/host_executor.h"
#include "backends/traits.h"
#include "candidates/config.h"
#include "dispatch/untuned_guard.h"
#include "problem/operands.h"
#include "tuned/table.h"

namespace gemmtune {

/// Where kernels run. Plans keep it alive.
struct DispatchDevice {
  std::unique_ptr<Device> device;
  std::unique_ptr<HostExecutor> host_executor;  // null: the device's own threads

  Stream default_stream() const { return host_executor ? host_executor->stream() : Stream{}; }
};

/// What a call of a problem must bring, worked out once.
struct OperandNeeds {
  explicit OperandNeeds(const Problem& problem);
  OperandNeeds(const Problem& problem, const OperandShapes& shapes);

  std::int64_t x_lines = 0;          // rows of x, or columns of a column-major x
  std::int64_t x_line_elements = 0;  // what ldx is at least
  std::int64_t y_columns = 0;
  bool x_scale = false;
  bool w_scale = false;
  bool w2_scale = false;
  bool bias2 = false;
  bool mixture = false;   // w2 and routes
  bool x_or_one = false;  // one scale instead of a row's is allowed
  bool w_or_one = false;
  bool x_global_scale = false;
  bool w_global_scale = false;
  bool w_zero_points = false;
  bool w2_global_scale = false;
  bool w2_zero_points = false;
  bool halves = false;  // two elements to a byte of x: rows must begin at whole bytes
  bool reads = true;    // false with K = 0: nothing but the bias is read

  // What y must not overlap.
  int x_bits = 0;  // of an element
  int y_bits = 0;
  std::int64_t w_bytes = 0;
  std::int64_t w2_bytes = 0;
  std::int64_t bias_bytes = 0;
  std::int64_t bias2_bytes = 0;
  std::int64_t x_scale_bytes = 0;
  std::int64_t w_scale_bytes = 0;
  std::int64_t w2_scale_bytes = 0;
  std::int64_t x_global_bytes = 0;
  std::int64_t w_global_bytes = 0;
  std::int64_t zero_point_bytes = 0;
  std::int64_t w2_global_bytes = 0;
  std::int64_t w2_zero_point_bytes = 0;
  std::int64_t route_bytes = 0;  // of topk_ids, and of topk_weights
};

/// What the caller of a plan promises of every call. Both together allow a programmatic dependent launch: the
/// kernel then starts, and reads its weight, while the one in front of it on the stream still runs.
struct LaunchPromises {
  bool constant_weights = false;      // no kernel that may still run writes the weight or its scales
  bool predecessor_triggers = false;  // it lets dependent kernels start early; without that nothing is gained

  bool dependent() const { return constant_weights && predecessor_triggers; }
};

/// How a plan came about.
struct PlanAccount {
  Match match = Match::untuned;
  std::int64_t hit_m = 0;
  int cu_num = 0;  // of the row; 0 where it has none
  std::string kernel_name;
  std::string family;
  std::string rule;  // what decided, in words, rows passed over included
  std::string file;  // of the row; empty where untuned
  std::size_t line = 0;
  std::string bits;               // bit class of the row; empty: none
  std::string other_environment;  // what differs from the row's environment; empty: nothing
  int invalid_rows = 0;           // rows passed over because their kernel cannot run here
  bool callers_kernel = false;    // of the row: keeps_callers_kernel()
  bool fallback_erratum = false;  // untuned, and the device's own fallback was passed over for one
  std::string triton_only;        // the file of one of them: a configuration that only Triton can run
  std::string passed_file;        // the file of the first of the others
};

class CallCounts;

class Plan {
 public:
  /// `kernel` is null if y has no elements, or of a problem that no row answers where no fallback was wanted. `guard`: verifies the first run; null for none.
  Plan(std::shared_ptr<const DispatchDevice> device, const Problem& problem, PlanAccount account,
       std::unique_ptr<Kernel> kernel, std::unique_ptr<UntunedGuard> guard = nullptr);
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  const Problem& problem() const { return problem_; }
  const PlanAccount& account() const { return account_; }
  const Kernel* kernel() const { return kernel_.get(); }
  /// The kernel's contract, or that of UntunedGuard::run(). Requires a kernel.
  Status run(const Operands& operands, void* workspace, Stream stream) const {
    return guard_ ? guard_->run(*kernel_, operands, workspace, stream)
                  : kernel_->run(operands, workspace, stream);
  }
  const DispatchDevice& device() const { return *device_; }
  std::size_t workspace_bytes() const { return workspace_bytes_; }
  bool on_cpu() const { return on_cpu_; }
  const OperandNeeds& needs() const { return needs_; }
  /// Where the context that made the plan counts its calls; null: nowhere.
  CallCounts* call_counts() const { return call_counts_; }
  /// Before any other thread sees the plan.
  void count_calls_in(CallCounts* counts) const { call_counts_ = counts; }

  /// True once for a plan that no row of the device's own answered; that caller calls the context's miss handler.
  bool take_miss() const { return miss_.exchange(false, std::memory_order_relaxed); }
  /// The handler was not reached: the next caller calls it.
  void put_miss_back() const { miss_.store(true, std::memory_order_relaxed); }
  bool has_miss() const { return miss_.load(std::memory_order_relaxed); }

  void retain() const { references_.fetch_add(1, std::memory_order_relaxed); }
  void release() const {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) delete this;
  }

 private:
  ~Plan() = default;

  std::shared_ptr<const DispatchDevice> device_;  // before kernel_: outlives it
  Problem problem_;
  PlanAccount account_;
  std::unique_ptr<Kernel> kernel_;
  std::unique_ptr<UntunedGuard> guard_;
  std::size_t workspace_bytes_;
  bool on_cpu_;
  OperandNeeds needs_;
  mutable CallCounts* call_counts_ = nullptr;  // the context's
  mutable std::atomic<bool> miss_;
  mutable std::atomic<std::int64_t> references_{1};
};

/// One reference of a plan.
class PlanRef {
 public:
  PlanRef() = default;
  /// Takes over the caller's reference.
  explicit PlanRef(const Plan* plan) : plan_(plan) {}
  PlanRef(const PlanRef& other) : plan_(other.plan_) {
    if (plan_) plan_->retain();
  }
  PlanRef(PlanRef&& other) noexcept : plan_(std::exchange(other.plan_, nullptr)) {}
  PlanRef& operator=(PlanRef other) noexcept {
    std::swap(plan_, other.plan_);
    return *this;
  }
  ~PlanRef() {
    if (plan_) plan_->release();
  }

  explicit operator bool() const { return plan_ != nullptr; }
  const Plan* get() const { return plan_; }
  const Plan* operator->() const { return plan_; }
  const Plan& operator*() const { return *plan_; }
  /// Hands the reference to the caller.
  const Plan* release() { return std::exchange(plan_, nullptr); }

 private:
  const Plan* plan_ = nullptr;
};

}  // namespace gemmtune
