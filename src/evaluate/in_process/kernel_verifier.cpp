#include "evaluate/in_process/kernel_verifier.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "problem/operands.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

constexpr std::uint64_t second_seed_offset = 0x5eed2;
constexpr std::int64_t pad_elements = 24;  // of each row of y, in the padded run
constexpr int repetitions = 3;             // on the same data

Outcome wrong(std::string reason) { return failed_outcome(OutcomeKind::wrong, std::move(reason)); }

Result<OutputVerifier> output_verifier_for(Device& device, const Problem& problem,
                                           const KernelVerifierOptions& kernel_options, PlannedInputs& inputs,
                                           DeviceOperands& operands, std::uint64_t sampling_seed) {
  const Result<Operands> plain = operands.operands(WeightLayout::plain);
  if (!plain.ok()) return plain.status();
  OutputVerifierOptions options;
  options.max_err_ratio = kernel_options.max_err_ratio;
  options.threads = kernel_options.reference_threads;
  options.sampling_seed = sampling_seed;  // other rows and columns, where they are sampled
  options.max_host_flops = kernel_options.max_host_flops;
  options.max_host_elements = kernel_options.max_host_elements;
  return OutputVerifier::make(device, problem, options, inputs, *plain);
}

}  // namespace

// One run of a kernel into a guarded output, and what it wrote.
struct KernelVerifier::Run {
  Operands operands;
  std::unique_ptr<Buffer> padded_y;   // in the padded run; else the verifier's own
  std::unique_ptr<Buffer> workspace;  // of exactly the size that the kernel asked for
  Buffer* y = nullptr;
};

Result<KernelVerifier> KernelVerifier::make(Device& device, const Problem& problem,
                                            const KernelVerifierOptions& options) {
  auto inputs = plan_inputs(problem, options.seed);
  if (!inputs.ok()) return inputs.status();
  auto operands = DeviceOperands::make(device, problem, Placement::plain);
  if (!operands.ok()) return operands.status();
  GEMMTUNE_RETURN_IF_ERROR(operands->fill(*inputs, options.reference_threads));
  auto verifier = output_verifier_for(device, problem, options, *inputs, *operands, 0);
  if (!verifier.ok()) return verifier.status();
  KernelVerifier made(device, problem, options, std::move(operands).value(), std::move(verifier).value());
  GEMMTUNE_RETURN_IF_ERROR(made.renew_y());
  return made;
}

Status KernelVerifier::renew_y() {
  y_.reset();
  auto y =
      device_->allocate(static_cast<std::size_t>(operand_shapes(problem_).y.bytes()), Placement::guarded);
  if (!y.ok()) return y.status();
  y_ = std::move(y).value();
  return {};
}

Status KernelVerifier::prepare(Run& run, const Kernel& kernel, DeviceOperands& operands, std::int64_t ldy) {
  const Result<Operands> made = operands.operands(kernel.weight_layout());
  if (!made.ok()) return made.status();
  run.operands = *made;
  run.operands.ldy = ldy;
  run.operands.y_batch_stride = problem_.m * ldy;
  run.y = y_.get();
  if (ldy != output_columns(problem_)) {
    const std::int64_t rows = problem_.batch * problem_.m;
    auto y = device_->allocate(static_cast<std::size_t>(bytes_of(problem_.y_type, rows * ldy)),
                               Placement::guarded);
    if (!y.ok()) return y.status();
    run.padded_y = std::move(y).value();
    run.y = run.padded_y.get();
  }
  run.operands.y = run.y->data();
  if (kernel.workspace_bytes() > 0) {
    auto workspace = device_->allocate(kernel.workspace_bytes(), Placement::guarded);
    if (!workspace.ok()) return workspace.status();
    run.workspace = std::move(workspace).value();
    // Zero, as in a fresh workspace of counters; later runs find what the kernel left.
    GEMMTUNE_RETURN_IF_ERROR(device_->fill(run.workspace->data(), 0, run.workspace->bytes()));
  }
  return {};
}

// Poisons y, runs, checks the guards and reads y. `ok`: the kernel ran and wrote nowhere else; y is not
// compared.
Outcome KernelVerifier::execute(Run& run, const Kernel& kernel, OutputVerifier& verifier) {
  if (const Status filled = device_->fill(run.y->data(), poison_byte, run.y->bytes()); !filled.ok())
    return failed_launch(filled);
  Status status = kernel.run(run.operands, run.workspace ? run.workspace->data() : nullptr, {});
  if (status.ok()) status = device_->synchronize();
  if (!status.ok()) return failed_launch(status);
  if (const Status guards = run.y->guards_intact(); !guards.ok()) {
    if (run.y == y_.get()) {
      if (const Status renewed = renew_y(); !renewed.ok()) return failed_launch(renewed);
    }
    return wrong("wrote outside of y: " + guards.message());
  }
  if (run.workspace) {
    if (const Status guards = run.workspace->guards_intact(); !guards.ok())
      return wrong("wrote outside of its workspace: " + guards.message());
  }
  if (const Status read = verifier.read(*run.y, run.operands.ldy); !read.ok()) return failed_launch(read);
  return {};
}

// On the first seed's data. With ldy above N, the kernel must not write between the rows of y.
Outcome KernelVerifier::verify_once(const Kernel& kernel, DeviceOperands& operands, std::int64_t ldy) {
  Run run;
  if (const Status prepared = prepare(run, kernel, operands, ldy); !prepared.ok())
    return failed_launch(prepared);
  const Outcome ran = execute(run, kernel, verifier_);
  return ran.kind == OutcomeKind::ok ? verifier_.verify() : ran;
}

Outcome KernelVerifier::verify_quickly(const Kernel& kernel) {
  return verify_once(kernel, operands_, output_columns(problem_));
}

Outcome KernelVerifier::verify_odd_strides(const Kernel& kernel) {
  const std::int64_t columns = output_columns(problem_);
  auto operands = DeviceOperands::make(*device_, problem_, Placement::plain);
  Status status = operands.status();
  if (status.ok()) status = operands->fill(operands_);
  if (status.ok()) status = operands->spread_x(problem_.k + 1 + problem_.k % 2);
  if (!status.ok()) return failed_launch(status);
  Outcome outcome = verify_once(kernel, *operands, columns + 1 + columns % 2);
  if (outcome.kind != OutcomeKind::launch_failed || !device_->health().ok()) return outcome;
  return {};
}

Outcome KernelVerifier::verify_repeated(const Kernel& kernel, DeviceOperands& operands,
                                        OutputVerifier& verifier) {
  Run run;
  if (const Status prepared = prepare(run, kernel, operands, output_columns(problem_)); !prepared.ok())
    return failed_launch(prepared);
  Outcome worst;
  worst.err_ratio = 0;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const Outcome ran = execute(run, kernel, verifier);
    if (ran.kind != OutcomeKind::ok) return ran;
    if (repetition > 0) {
      const Result<bool> same = verifier.equals_kept();
      if (!same.ok()) return failed_launch(same.status());
      if (*same) continue;
      worst.deterministic = false;
    }
    const Outcome verified = verifier.verify();
    if (verified.kind != OutcomeKind::ok) return verified;
    worst.err_ratio = std::max(worst.err_ratio, verified.err_ratio);
    if (const Status kept = verifier.keep(); !kept.ok()) return failed_launch(kept);
  }
  return worst;
}

Result<std::vector<Outcome>> KernelVerifier::verify_fully(
    std::span<const Kernel* const> kernels, const std::function<void(const Kernel*)>& on_kernel) {
  const auto announce = [&](const Kernel* kernel) {
    if (on_kernel) on_kernel(kernel);
  };
  announce(nullptr);
  auto edge = DeviceOperands::make(*device_, problem_, Placement::page_end);
  if (!edge.ok()) return edge.status();
  GEMMTUNE_RETURN_IF_ERROR(edge->fill(operands_));
  std::vector<Outcome> outcomes;
  for (const Kernel* kernel : kernels) {
    announce(kernel);
    const std::int64_t columns = output_columns(problem_);
    outcomes.push_back(verify_once(*kernel, *edge, columns));
    if (outcomes.back().kind == OutcomeKind::ok)
      outcomes.back() = verify_once(*kernel, *edge, columns + pad_elements);
    const bool odd = options_.odd_strides && bits(problem_.x_type) >= 8;
    if (outcomes.back().kind == OutcomeKind::ok && odd) {
      const double err_ratio = outcomes.back().err_ratio;
      outcomes.back() = verify_odd_strides(*kernel);
      if (outcomes.back().kind == OutcomeKind::ok) outcomes.back().err_ratio = err_ratio;
    }
  }
  // Other data at the same addresses: detects a kernel that keeps something of an earlier call.
  announce(nullptr);
  std::optional<OutputVerifier> second;
  {
    auto inputs = plan_inputs(problem_, options_.seed + second_seed_offset);
    if (!inputs.ok()) return inputs.status();
    GEMMTUNE_RETURN_IF_ERROR(edge->fill(*inputs, options_.reference_threads));
    auto made = output_verifier_for(*device_, problem_, options_, *inputs, *edge, second_seed_offset);
    if (!made.ok()) return made.status();
    second = std::move(made).value();
  }
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (outcomes[i].kind != OutcomeKind::ok) continue;
    announce(kernels[i]);
    const double err_ratio = outcomes[i].err_ratio;
    outcomes[i] = verify_repeated(*kernels[i], *edge, *second);
    outcomes[i].err_ratio = std::max(outcomes[i].err_ratio, err_ratio);
  }
  return outcomes;
}

}  // namespace gemmtune
