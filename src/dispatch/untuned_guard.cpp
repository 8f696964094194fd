#include "dispatch/untuned_guard.h"

#include <algorithm>
#include <cstddef>
#include <new>
#include <string>
#include <thread>

#include "backends/traits.h"
#include "base/log.h"
#include "problem/operands.h"
#include "resolve/errata.h"
#include "verify/output_check.h"
#include "verify/reference.h"

namespace gemmtune {
namespace {

using Bytes = std::vector<std::byte>;

/// Rows on the device that begin `step` elements apart, in batches `stride` elements apart.
struct StridedRows {
  const void* data;
  DataType type;
  std::int64_t batches;
  std::int64_t stride;
  std::int64_t rows;
  std::int64_t step;
  std::int64_t columns;
};

Status copy_rows(Device& device, const StridedRows& from, Bytes& to) {
  const auto row_bytes = static_cast<std::size_t>(bytes_of(from.type, from.columns));
  to.resize(static_cast<std::size_t>(from.batches * from.rows) * row_bytes);
  std::byte* target = to.data();
  for (std::int64_t batch = 0; batch < from.batches; ++batch) {
    const auto* start = static_cast<const std::byte*>(from.data) + bytes_of(from.type, batch * from.stride);
    const bool dense = from.step == from.columns;
    const std::int64_t copies = dense ? 1 : from.rows;
    const std::size_t size = dense ? static_cast<std::size_t>(from.rows) * row_bytes : row_bytes;
    for (std::int64_t row = 0; row < copies; ++row) {
      GEMMTUNE_RETURN_IF_ERROR(device.copy_out(target, start + bytes_of(from.type, row * from.step), size));
      target += size;
    }
  }
  return {};
}

template <typename Value>
Status copy_dense(Device& device, const void* from, std::int64_t bytes, std::vector<Value>& to) {
  to.resize(static_cast<std::size_t>(bytes) / sizeof(Value));
  return bytes == 0 ? Status() : device.copy_out(to.data(), from, static_cast<std::size_t>(bytes));
}

/// Scales; one alone (`step` 0) is repeated for every row.
Status copy_scales(Device& device, const void* from, std::int64_t bytes, std::int64_t step, Bytes& to) {
  if (step != 0 || bytes == 0) return copy_dense(device, from, bytes, to);
  Bytes one;
  GEMMTUNE_RETURN_IF_ERROR(copy_dense(device, from, sizeof(float), one));
  for (std::int64_t at = 0; at < bytes; at += static_cast<std::int64_t>(one.size()))
    to.insert(to.end(), one.begin(), one.end());
  return {};
}

/// The weight, unpacked on the device if it is packed.
Status copy_weight(Device& device, const Problem& problem, const void* from, WeightLayout layout,
                   std::int64_t bytes, Bytes& to) {
  if (layout == WeightLayout::plain) return copy_dense(device, from, bytes, to);
  GEMMTUNE_TRY(const auto plain, device.allocate(static_cast<std::size_t>(bytes), Placement::plain));
  GEMMTUNE_RETURN_IF_ERROR(device.unpack_weight(problem, layout, from, plain->data()));
  GEMMTUNE_RETURN_IF_ERROR(device.synchronize());
  return copy_dense(device, plain->data(), bytes, to);
}

Result<HostOperands> host_operands(Device& device, const Problem& problem, const Operands& o,
                                   WeightLayout layout) {
  const OperandShapes shapes = operand_shapes(problem);
  HostOperands host;
  GEMMTUNE_RETURN_IF_ERROR(copy_rows(device,
                                     {o.x, problem.x_type, problem.batch, o.x_batch_stride, shapes.x.lines(),
                                      o.ldx, shapes.x.line_elements()},
                                     host.x));
  GEMMTUNE_RETURN_IF_ERROR(copy_weight(device, problem, o.w, layout, shapes.w.bytes(), host.w));
  GEMMTUNE_RETURN_IF_ERROR(copy_dense(device, o.bias, shapes.bias.bytes(), host.bias));
  GEMMTUNE_RETURN_IF_ERROR(copy_dense(device, o.bias2, shapes.bias2.bytes(), host.bias2));
  GEMMTUNE_RETURN_IF_ERROR(
      copy_scales(device, o.x_scale, shapes.x.scale_bytes(), o.x_scale_step, host.x_scale));
  GEMMTUNE_RETURN_IF_ERROR(
      copy_scales(device, o.w_scale, shapes.w.scale_bytes(), o.w_scale_step, host.w_scale));
  GEMMTUNE_RETURN_IF_ERROR(
      copy_dense(device, o.x_global_scale, shapes.x.global_scale_bytes(), host.x_global_scale));
  GEMMTUNE_RETURN_IF_ERROR(
      copy_dense(device, o.w_global_scale, shapes.w.global_scale_bytes(), host.w_global_scale));
  GEMMTUNE_RETURN_IF_ERROR(
      copy_dense(device, o.w_zero_points, shapes.w.zero_point_bytes(), host.w_zero_points));
  GEMMTUNE_RETURN_IF_ERROR(copy_dense(device, o.w2, shapes.w2.bytes(), host.w2));
  GEMMTUNE_RETURN_IF_ERROR(copy_dense(device, o.w2_scale, shapes.w2.scale_bytes(), host.w2_scale));
  GEMMTUNE_RETURN_IF_ERROR(
      copy_dense(device, o.w2_global_scale, shapes.w2.global_scale_bytes(), host.w2_global_scale));
  GEMMTUNE_RETURN_IF_ERROR(
      copy_dense(device, o.w2_zero_points, shapes.w2.zero_point_bytes(), host.w2_zero_points));
  const std::int64_t pairs = given_pairs(problem);
  GEMMTUNE_RETURN_IF_ERROR(copy_dense(device, o.topk_ids, pairs * 4, host.topk_ids));
  GEMMTUNE_RETURN_IF_ERROR(copy_dense(device, o.topk_weights, pairs * 4, host.topk_weights));
  return host;
}

/// Bounds on errors alone: what a caller's numbers may be is not known, so shares of elements prove nothing, and
/// fp8 operands may have one sign.
Tolerance bounds_for(const Problem& problem, const Device& device, const Candidate& candidate) {
  SumRules sums{device.accuracy(candidate, problem), traits_of(device.info()).tensor_core_sums};
  if (sums.tensor_core_sums && traits(problem.x_type).fp8) sums.signs = Signs::one;
  Tolerance tolerance = tolerance_for(problem, 1, sums);
  tolerance.max_misrounded = 1;
  return tolerance;
}

/// A product and where its operands are.
struct Product {
  Problem problem;
  Operands operands;
};

const std::byte* forward(const void* from, std::int64_t bytes) {
  return from == nullptr ? nullptr : static_cast<const std::byte*>(from) + bytes;
}

/// The columns [first, first + count) of y. Blocks of scales begin at `first`. Requires one plain row-major weight.
Product columns_of(const Product& whole, std::int64_t first, std::int64_t count) {
  const OperandShapes shapes = operand_shapes(whole.problem);
  const ScaleShape& scale = shapes.w.scale;
  Product part = whole;
  part.problem.n = count;
  part.operands.w = forward(whole.operands.w, bytes_of(whole.problem.w_type, first * whole.problem.k));
  part.operands.bias = forward(whole.operands.bias, bytes_of(whole.problem.y_type, first));
  part.operands.y = static_cast<std::byte*>(whole.operands.y) + bytes_of(whole.problem.y_type, first);
  if (scale.rows > 1 && whole.operands.w_scale_step != 0) {
    const std::int64_t scales = first / scale.row_block * scale.columns;
    part.operands.w_scale = forward(whole.operands.w_scale, scales * bytes_of(scale.type));
    part.operands.w_zero_points = forward(whole.operands.w_zero_points, scales);
  }
  return part;
}

/// The last `count` rows of y. Requires row-major operands.
Product last_rows_of(const Product& whole, std::int64_t count) {
  const ScaleShape scale = operand_shapes(whole.problem).x.scale;
  const std::int64_t first = whole.problem.m - count;
  Product part = whole;
  part.problem.m = count;
  part.operands.x = forward(whole.operands.x, bytes_of(whole.problem.x_type, first * whole.operands.ldx));
  part.operands.y =
      static_cast<std::byte*>(whole.operands.y) + bytes_of(whole.problem.y_type, first * whole.operands.ldy);
  if (scale.rows > 1 && whole.operands.x_scale_step != 0)
    part.operands.x_scale =
        forward(whole.operands.x_scale, first / scale.row_block * scale.columns * bytes_of(scale.type));
  return part;
}

/// The last rows, which are another tail at another M, of columns that another M does not get.
Product one_block(const Product& whole) {
  constexpr std::int64_t block = 128;  // that of block scales
  const std::int64_t blocks = (whole.problem.n + block - 1) / block;
  const std::int64_t first = whole.problem.m * 31 % blocks * block;
  return last_rows_of(columns_of(whole, first, std::min(block, whole.problem.n - first)),
                      std::min(block, whole.problem.m));
}

}  // namespace

Result<std::string> UntunedGuard::fault_of(const Operands& operands, const Candidate& candidate,
                                           WeightLayout layout) {
  Product product{problem_, operands};
  const bool has_blocks = layout == WeightLayout::plain && all_row_major(problem_) && problem_.batch == 1 &&
                          problem_.operation != Operation::fused_moe;
  if (compared_ == Compared::one_block && has_blocks) product = one_block(product);
  const Problem& problem = product.problem;
  const std::int64_t columns = output_columns(problem);
  Bytes y;
  GEMMTUNE_RETURN_IF_ERROR(
      copy_rows(device_,
                {product.operands.y, problem.y_type, problem.batch, product.operands.y_batch_stride,
                 problem.m, product.operands.ldy, columns},
                y));
  GEMMTUNE_TRY(const auto host, host_operands(device_, problem, product.operands, layout));
  ReferenceOptions options;
  options.threads = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  options.max_complete_flops = 0;
  options.sampled_rows = 1;
  options.sampled_columns = 4;
  options.any_numbers = true;
  GEMMTUNE_TRY(const auto reference, compute_reference(problem, host, options));
  return check_output(problem, reference, y, columns, bounds_for(problem, device_, candidate)).reason;
}

Result<std::string> UntunedGuard::fault_if_memory(const Operands& operands, const Candidate& candidate,
                                                  WeightLayout layout) {
  try {
    return fault_of(operands, candidate, layout);
  } catch (const std::bad_alloc&) {  // the result is there all the same
    return Status::out_of_memory("no memory for copies of the operands");
  }
}

Result<BoundKernel> UntunedGuard::next_kernel(const Kernel& first,
                                              const std::vector<Candidate>& failed) const {
  std::vector<Candidate> passed = failed;
  while (true) {
    GEMMTUNE_TRY(auto next, usable_fallback(device_, problem_, [&](const Candidate& candidate) {
                   return std::find(passed.begin(), passed.end(), candidate) == passed.end();
                 }));
    auto kernel = device_.build(next.candidate, problem_);
    if (kernel.ok() && (*kernel)->weight_layout() == first.weight_layout() &&
        (*kernel)->workspace_bytes() <= first.workspace_bytes()) {
      return BoundKernel{std::move(next.candidate), std::move(kernel).value()};
    }
    passed.push_back(std::move(next.candidate));
  }
}

Status UntunedGuard::run_first(const Kernel& kernel, const Operands& operands, void* workspace,
                               Stream stream) {
  std::vector<Candidate> failed;
  Candidate candidate = candidate_;
  const Kernel* running = &kernel;
  std::unique_ptr<Kernel> replacement;
  while (true) {
    GEMMTUNE_RETURN_IF_ERROR(running->run(operands, workspace, stream));
    GEMMTUNE_RETURN_IF_ERROR(device_.synchronize());
    const auto fault = fault_if_memory(operands, candidate, running->weight_layout());
    if (!fault.ok()) {
      log(LogLevel::warning, "{}: {} runs unverified: {}", short_name(problem_), candidate.kernel_name(),
          fault.message());
    } else if (!fault->empty()) {
      if (wrong_ == WrongResult::is_an_error) {
        return Status::internal("{}: {} is wrong on the caller's operands: {}", short_name(problem_),
                                candidate.kernel_name(), *fault);
      }
      log(LogLevel::warning, "{}: {}, which runs untuned, is wrong on the caller's operands: {}",
          short_name(problem_), candidate.kernel_name(), *fault);
      failed.push_back(candidate);
      auto next = next_kernel(kernel, failed);
      if (!next.ok()) {
        return Status::internal("{}: {} is wrong ({}), and no other kernel can run: {}", short_name(problem_),
                                candidate.kernel_name(), *fault, next.message());
      }
      candidate = std::move(next->candidate);
      replacement = std::move(next->kernel);
      running = replacement.get();
      continue;
    } else if (!failed.empty()) {
      log(LogLevel::warning, "{}: {} runs in its place", short_name(problem_), candidate.kernel_name());
    }
    replacement_ = std::move(replacement);
    verified_.store(running, std::memory_order_release);
    return {};
  }
}

Status UntunedGuard::run(const Kernel& kernel, const Operands& operands, void* workspace, Stream stream) {
  if (const Kernel* verified = verified_.load(std::memory_order_acquire); verified != nullptr)
    return verified->run(operands, workspace, stream);
  if (device_.is_capturing(stream)) return kernel.run(operands, workspace, stream);
  const std::lock_guard lock(mutex_);
  if (const Kernel* verified = verified_.load(std::memory_order_acquire); verified != nullptr)
    return verified->run(operands, workspace, stream);
  return run_first(kernel, operands, workspace, stream);
}

}  // namespace gemmtune
