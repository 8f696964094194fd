#include "tuning/correctness_gate.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "problem/operands.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

constexpr std::uint64_t second_seed_offset = 0x5eed2;
constexpr std::int64_t pad_elements = 24;  // of each row of y, in the padded run
constexpr int repetitions = 3;             // on the same data

Outcome failed(OutcomeKind kind, std::string reason) {
  Outcome outcome;
  outcome.kind = kind;
  outcome.reason = std::move(reason);
  return outcome;
}

Outcome not_launched(const Status& status) { return failed(OutcomeKind::launch_failed, status.message()); }

Outcome wrong(std::string reason) { return failed(OutcomeKind::wrong, std::move(reason)); }

}  // namespace

// One run of a kernel into a guarded output, and what it wrote.
struct CorrectnessGate::Run {
  Operands operands;
  std::unique_ptr<Buffer> padded_y;   // in the padded run; else the gate's own
  std::unique_ptr<Buffer> workspace;  // of exactly the size that the kernel asked for
  Buffer* y = nullptr;
  std::vector<std::byte> output;
};

Result<CorrectnessGate> CorrectnessGate::make(Device& device, const Problem& problem,
                                              const GateOptions& options) {
  const auto host = make_inputs(problem, options.seed);
  if (!host.ok()) return host.status();
  ReferenceOptions reference_options;
  reference_options.threads = options.reference_threads;
  auto reference = compute_reference(problem, *host, reference_options);
  if (!reference.ok()) return reference.status();
  auto operands = DeviceOperands::make(device, problem, Placement::plain);
  if (!operands.ok()) return operands.status();
  GEMMTUNE_RETURN_IF_ERROR(operands->fill(*host));
  CorrectnessGate gate(device, problem, options, std::move(operands).value());
  gate.reference_ = std::move(reference).value();
  GEMMTUNE_RETURN_IF_ERROR(gate.renew_y());
  return gate;
}

Status CorrectnessGate::renew_y() {
  y_.reset();
  auto y =
      device_->allocate(static_cast<std::size_t>(operand_shapes(problem_).y.bytes()), Placement::guarded);
  if (!y.ok()) return y.status();
  y_ = std::move(y).value();
  return {};
}

Status CorrectnessGate::prepare(Run& run, const Kernel& kernel, DeviceOperands& operands, std::int64_t ldy) {
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
  run.output.resize(run.y->bytes());
  if (kernel.workspace_bytes() > 0) {
    auto workspace = device_->allocate(kernel.workspace_bytes(), Placement::guarded);
    if (!workspace.ok()) return workspace.status();
    run.workspace = std::move(workspace).value();
    // Zero, as counters are in a fresh workspace; later runs find what the kernel left.
    GEMMTUNE_RETURN_IF_ERROR(device_->fill(run.workspace->data(), 0, run.workspace->bytes()));
  }
  return {};
}

// Poison, run, guards, read back. `ok` says only that the kernel ran and wrote nowhere else.
Outcome CorrectnessGate::execute(Run& run, const Kernel& kernel) {
  if (const Status filled = device_->fill(run.y->data(), poison_byte, run.y->bytes()); !filled.ok())
    return not_launched(filled);
  Status status = kernel.run(run.operands, run.workspace ? run.workspace->data() : nullptr, {});
  if (status.ok()) status = device_->synchronize();
  if (!status.ok()) return not_launched(status);
  if (const Status guards = run.y->guards_intact(); !guards.ok()) {
    if (run.y == y_.get()) {
      if (const Status renewed = renew_y(); !renewed.ok()) return not_launched(renewed);
    }
    return wrong("wrote outside of y: " + guards.message());
  }
  if (run.workspace) {
    if (const Status guards = run.workspace->guards_intact(); !guards.ok())
      return wrong("wrote outside of its workspace: " + guards.message());
  }
  if (const Status read = device_->copy_out(run.output.data(), run.y->data(), run.output.size()); !read.ok())
    return not_launched(read);
  return {};
}

Outcome CorrectnessGate::judge(const Run& run, const Reference& reference) const {
  const Accumulator accumulator =
      device_->info().backend == "cpu" ? Accumulator::float32 : Accumulator::matrix_unit;
  const Tolerance tolerance = tolerance_for(problem_, options_.largest_err_ratio, accumulator);
  const CheckReport report = check_output(problem_, reference, run.output, run.operands.ldy, tolerance);
  Outcome outcome;
  if (!report.right) outcome = wrong(report.reason);
  outcome.err_ratio = report.err_ratio;
  return outcome;
}

Outcome CorrectnessGate::check_dense(const Kernel& kernel, DeviceOperands& operands,
                                     const Reference& reference) {
  Run run;
  if (const Status prepared = prepare(run, kernel, operands, output_columns(problem_)); !prepared.ok())
    return not_launched(prepared);
  const Outcome ran = execute(run, kernel);
  return ran.kind == OutcomeKind::ok ? judge(run, reference) : ran;
}

Outcome CorrectnessGate::quick(const Kernel& kernel) { return check_dense(kernel, operands_, reference_); }

// Rows of y that are longer than N: what lies between them belongs to somebody else.
Outcome CorrectnessGate::check_padded(const Kernel& kernel, DeviceOperands& operands) {
  Run run;
  if (const Status prepared = prepare(run, kernel, operands, output_columns(problem_) + pad_elements);
      !prepared.ok())
    return not_launched(prepared);
  const Outcome ran = execute(run, kernel);
  if (ran.kind != OutcomeKind::ok) return ran;
  const auto used = static_cast<std::size_t>(bytes_of(problem_.y_type, output_columns(problem_)));
  const auto pitch = static_cast<std::size_t>(bytes_of(problem_.y_type, run.operands.ldy));
  for (std::int64_t row = 0; row < problem_.batch * problem_.m; ++row) {
    const auto pad =
        std::span(run.output).subspan(static_cast<std::size_t>(row) * pitch + used, pitch - used);
    if (std::any_of(pad.begin(), pad.end(), [](std::byte b) { return b != std::byte{poison_byte}; }))
      return wrong(fmt::format("wrote between the rows of y: behind row {}", row));
  }
  return judge(run, reference_);
}

Outcome CorrectnessGate::check_repeated(const Kernel& kernel, DeviceOperands& operands,
                                        const Reference& reference) {
  Run run;
  if (const Status prepared = prepare(run, kernel, operands, output_columns(problem_)); !prepared.ok())
    return not_launched(prepared);
  Outcome worst;
  worst.err_ratio = 0;
  std::vector<std::byte> first;
  for (int repetition = 0; repetition < repetitions; ++repetition) {
    const Outcome ran = execute(run, kernel);
    if (ran.kind != OutcomeKind::ok) return ran;
    if (repetition > 0 && run.output == first) continue;
    const Outcome judged = judge(run, reference);
    if (judged.kind != OutcomeKind::ok) return judged;
    worst.err_ratio = std::max(worst.err_ratio, judged.err_ratio);
    if (repetition > 0) worst.deterministic = false;
    first = run.output;
  }
  return worst;
}

Result<std::vector<Outcome>> CorrectnessGate::full(std::span<const Kernel* const> kernels,
                                                   const std::function<void(const Kernel*)>& on_kernel) {
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
    outcomes.push_back(check_dense(*kernel, *edge, reference_));
    if (outcomes.back().kind == OutcomeKind::ok) outcomes.back() = check_padded(*kernel, *edge);
  }
  // Other data behind the same pointers: a kernel that keeps something of an earlier call is found out.
  announce(nullptr);
  Reference second;
  {
    const auto host = make_inputs(problem_, options_.seed + second_seed_offset);
    if (!host.ok()) return host.status();
    ReferenceOptions reference_options;
    reference_options.threads = options_.reference_threads;
    reference_options.seed += second_seed_offset;  // other rows and columns, where they are sampled
    auto reference = compute_reference(problem_, *host, reference_options);
    if (!reference.ok()) return reference.status();
    second = std::move(reference).value();
    GEMMTUNE_RETURN_IF_ERROR(edge->fill(*host));
  }
  for (std::size_t i = 0; i < kernels.size(); ++i) {
    if (outcomes[i].kind != OutcomeKind::ok) continue;
    announce(kernels[i]);
    const double err_ratio = outcomes[i].err_ratio;
    outcomes[i] = check_repeated(*kernels[i], *edge, second);
    outcomes[i].err_ratio = std::max(outcomes[i].err_ratio, err_ratio);
  }
  return outcomes;
}

}  // namespace gemmtune
