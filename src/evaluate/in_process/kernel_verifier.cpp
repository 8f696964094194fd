#include "evaluate/in_process/kernel_verifier.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "backends/traits.h"
#include "problem/operands.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

constexpr std::uint64_t second_seed_offset = 0x5eed2;
constexpr std::uint64_t one_sign_seed_offset = 0x5eed3;
constexpr std::int64_t pad_elements = 24;  // of each row of y, in the padded run
constexpr int repetitions = 3;             // on the same data

Outcome wrong(std::string reason) { return failed_outcome(OutcomeKind::wrong, std::move(reason)); }

/// Whether kernels of the problem may belong to different classes, which data of one sign tell apart.
bool has_classes(const Device& device, const Problem& problem) {
  return traits_of(device.info()).tensor_core_sums && traits(problem.x_type).fp8 && problem.scale_ab;
}

Result<OutputVerifier> output_verifier_for(Device& device, const Problem& problem,
                                           const KernelVerifierOptions& kernel_options, PlannedInputs& inputs,
                                           DeviceOperands& operands, std::uint64_t sampling_seed,
                                           Signs signs) {
  GEMMTUNE_TRY(const Operands plain, operands.operands(WeightLayout::plain));
  OutputVerifierOptions options;
  options.max_err_ratio = kernel_options.max_err_ratio;
  options.threads = kernel_options.reference_threads;
  options.sampling_seed = sampling_seed;  // other rows and columns, where they are sampled
  options.signs = signs;
  options.max_host_flops = kernel_options.max_host_flops;
  options.max_host_elements = kernel_options.max_host_elements;
  options.max_host_bytes = kernel_options.max_host_bytes;
  return OutputVerifier::make(device, problem, options, inputs, plain);
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
  GEMMTUNE_TRY(auto inputs, plan_inputs(problem, options.seed, Signs::both, options.init, options.routing));
  GEMMTUNE_TRY(auto operands, DeviceOperands::make(device, problem, Placement::plain));
  GEMMTUNE_RETURN_IF_ERROR(operands.fill(inputs, options.reference_threads));
  GEMMTUNE_TRY(auto verifier,
               output_verifier_for(device, problem, options, inputs, operands, 0, Signs::both));
  KernelVerifier made(device, problem, options, std::move(operands), std::move(verifier));
  GEMMTUNE_RETURN_IF_ERROR(made.renew_y());
  return made;
}

Status KernelVerifier::renew_y() {
  y_.reset();
  GEMMTUNE_TRY(y_, device_->allocate(static_cast<std::size_t>(operand_shapes(problem_).y.bytes()),
                                     Placement::guarded));
  return {};
}

Status KernelVerifier::prepare(Run& run, const Kernel& kernel, DeviceOperands& operands, std::int64_t ldy) {
  GEMMTUNE_TRY(const Operands made, operands.operands(kernel.weight_layout()));
  run.operands = made;
  run.operands.ldy = ldy;
  run.operands.y_batch_stride = problem_.m * ldy;
  run.y = y_.get();
  if (ldy != output_columns(problem_)) {
    const std::int64_t rows = problem_.batch * problem_.m;
    GEMMTUNE_TRY(run.padded_y,
                 device_->allocate(static_cast<std::size_t>(bytes_of(problem_.y_type, rows * ldy)),
                                   Placement::guarded));
    run.y = run.padded_y.get();
  }
  run.operands.y = run.y->data();
  if (kernel.workspace_bytes() > 0) {
    GEMMTUNE_TRY(run.workspace, device_->allocate(kernel.workspace_bytes(), Placement::guarded));
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

// `operands`: the verifier's. With ldy above N, the kernel must not write between the rows of y.
Outcome KernelVerifier::verify_once(const KernelOfClass& kernel, DeviceOperands& operands,
                                    OutputVerifier& verifier, std::int64_t ldy) {
  Run run;
  if (const Status prepared = prepare(run, *kernel.kernel, operands, ldy); !prepared.ok())
    return failed_launch(prepared);
  const Outcome ran = execute(run, *kernel.kernel, verifier);
  return ran.kind == OutcomeKind::ok ? verifier.verify(kernel.accuracy) : ran;
}

Outcome KernelVerifier::verify_quickly(const KernelOfClass& kernel) {
  return verify_once(kernel, operands_, verifier_, output_columns(problem_));
}

Outcome KernelVerifier::verify_odd_strides(const KernelOfClass& kernel) {
  const std::int64_t columns = output_columns(problem_);
  auto operands = DeviceOperands::make(*device_, problem_, Placement::plain);
  Status status = operands.status();
  if (status.ok()) status = operands->fill(operands_);
  const std::int64_t line = operand_shapes(problem_).x.line_elements();
  if (status.ok()) status = operands->spread_x(line + 1 + line % 2);
  if (!status.ok()) return failed_launch(status);
  Outcome outcome = verify_once(kernel, *operands, verifier_, columns + 1 + columns % 2);
  if (outcome.kind != OutcomeKind::launch_failed || !device_->health().ok()) return outcome;
  return {};
}

Outcome KernelVerifier::verify_repeated(const KernelOfClass& kernel, DeviceOperands& operands,
                                        OutputVerifier& verifier) {
  Run run;
  if (const Status prepared = prepare(run, *kernel.kernel, operands, output_columns(problem_));
      !prepared.ok())
    return failed_launch(prepared);
  Outcome worst;
  worst.err_ratio = 0;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const Outcome ran = execute(run, *kernel.kernel, verifier);
    if (ran.kind != OutcomeKind::ok) return ran;
    if (repetition > 0) {
      const Result<bool> same = verifier.equals_kept();
      if (!same.ok()) return failed_launch(same.status());
      if (*same) continue;
      worst.deterministic = false;
    }
    const Outcome verified = verifier.verify(kernel.accuracy);
    if (verified.kind != OutcomeKind::ok) return verified;
    worst.err_ratio = std::max(worst.err_ratio, verified.err_ratio);
    worst.error = worst_of(worst.error, verified.error);
    if (const Status kept = verifier.keep(); !kept.ok()) return failed_launch(kept);
  }
  return worst;
}

Result<OutputVerifier> KernelVerifier::refill(DeviceOperands& operands, std::uint64_t seed_offset,
                                              Signs signs) {
  const RoutingKind routing =
      options_.routing.kind == RoutingKind::zipf ? RoutingKind::uniform : RoutingKind::zipf;
  GEMMTUNE_TRY(auto inputs, plan_inputs(problem_, options_.seed + seed_offset, signs, InitType::randn,
                                        {routing, nullptr, true}, ScaleCodes::whole));
  GEMMTUNE_RETURN_IF_ERROR(operands.fill(inputs, options_.reference_threads));
  return output_verifier_for(*device_, problem_, options_, inputs, operands, seed_offset, signs);
}

Result<std::vector<Outcome>> KernelVerifier::verify_fully(
    std::span<const KernelOfClass> kernels, const std::function<void(const Kernel*)>& on_kernel) {
  const auto announce = [&](const Kernel* kernel) {
    if (on_kernel) on_kernel(kernel);
  };
  announce(nullptr);
  GEMMTUNE_TRY(auto edge, DeviceOperands::make(*device_, problem_, Placement::page_end));
  GEMMTUNE_RETURN_IF_ERROR(edge.fill(operands_));
  std::vector<Outcome> outcomes;
  for (const KernelOfClass& kernel : kernels) {
    announce(kernel.kernel);
    const std::int64_t columns = output_columns(problem_);
    outcomes.push_back(verify_once(kernel, edge, verifier_, columns));
    if (outcomes.back().kind == OutcomeKind::ok)
      outcomes.back() = verify_once(kernel, edge, verifier_, columns + pad_elements);
    const bool odd = options_.odd_strides && bits(problem_.x_type) >= 8;
    if (outcomes.back().kind == OutcomeKind::ok && odd) {
      const Outcome even = outcomes.back();
      outcomes.back() = verify_odd_strides(kernel);
      if (outcomes.back().kind == OutcomeKind::ok) outcomes.back() = even;
    }
  }
  // Other data at the same addresses: detects a kernel that keeps something of an earlier call.
  announce(nullptr);
  GEMMTUNE_TRY(auto second, refill(edge, second_seed_offset, Signs::both));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (outcomes[i].kind != OutcomeKind::ok) continue;
    announce(kernels[i].kernel);
    const Outcome first = outcomes[i];
    outcomes[i] = verify_repeated(kernels[i], edge, second);
    outcomes[i].err_ratio = std::max(outcomes[i].err_ratio, first.err_ratio);
    outcomes[i].error = worst_of(outcomes[i].error, first.error);
  }
  if (!has_classes(*device_, problem_)) return outcomes;
  announce(nullptr);
  GEMMTUNE_TRY(auto one_sign, refill(edge, one_sign_seed_offset, Signs::one));
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (outcomes[i].kind != OutcomeKind::ok) continue;
    announce(kernels[i].kernel);
    const Outcome outcome = verify_once(kernels[i], edge, one_sign, output_columns(problem_));
    if (outcome.kind != OutcomeKind::ok) {
      const MeasuredError before = outcomes[i].error;
      outcomes[i] = outcome;
      outcomes[i].reason =
          fmt::format("operands of one sign, class {}: {}", to_string(kernels[i].accuracy), outcome.reason);
      outcomes[i].error = before;
    }
    outcomes[i].error.one_sign = outcome.error.one_sign;
  }
  return outcomes;
}

}  // namespace gemmtune
