#include "evaluate/in_process/output_verifier.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>

#include "backends/traits.h"
#include "base/log.h"
#include "evaluate/in_process/memory_need.h"
#include "problem/mixture_routes.h"
#include "problem/operands.h"
#include "verify/check_report_builder.h"

namespace gemmtune {
namespace {

constexpr std::int64_t confirmed = 8;  // rows and columns of a device's reference that the host computes too
constexpr double confirmed_flops = 2e8;  // of a mixture: whole rows of as many of its tokens, of one at least
// Sums of K products in float64, in any order, are closer than this share of Σ|x||w| for all K in use.
constexpr double reference_error = 1e-11;
constexpr double magnitude_error = 1e-3;  // magnitudes are bounds, summed in float32

Outcome wrong_padding(std::int64_t row) {
  return failed_outcome(OutcomeKind::wrong, fmt::format("wrote between the rows of y: behind row {}", row));
}

/// A few indices below `count`, the first and the last among them, ascending.
std::vector<std::int64_t> spread(std::int64_t count, Random& random) {
  std::vector<std::int64_t> indices{0, count - 1};
  for (std::int64_t i = 2; i < confirmed; ++i)
    indices.push_back(static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(count))));
  std::ranges::sort(indices);
  indices.erase(std::unique(indices.begin(), indices.end()), indices.end());
  return indices;
}

/// Rows that share a scale; 1 where each has its own or all have one.
std::int64_t rows_of_a_scale(const MatrixShape& shape) {
  return shape.scale.rows > 1 ? shape.scale.row_block : 1;
}

/// A part of an operand, from byte `first` on: from `host` where it holds the operand.
void read_part(const RandomFill& operand, const std::vector<std::byte>& host, std::size_t first,
               std::span<std::byte> to, int threads = 1) {
  if (operand.count > 0) {
    fill_random(operand, first / operand.element_bytes, to, threads);
  } else {
    std::copy_n(host.begin() + static_cast<std::ptrdiff_t>(first), to.size(), to.begin());
  }
}

/// These rows of the matrix, row by row, whatever its order. Where rows share a scale, each is followed by zeros, so that it
/// has a scale of its own.
std::vector<std::byte> rows_of(const RandomFill& matrix, const std::vector<std::byte>& host,
                               const MatrixShape& shape, std::span<const std::int64_t> rows) {
  const std::int64_t leading = shape.line_elements();
  const std::int64_t step = shape.column_step(leading);
  const std::int64_t run = step == 1 ? shape.columns : 1;  // elements that lie side by side
  const auto bytes = [&shape](std::int64_t elements) {
    return static_cast<std::size_t>(bytes_of(shape.type, elements));
  };
  const auto apart = static_cast<std::size_t>(rows_of_a_scale(shape));
  std::vector<std::byte> chosen(((rows.size() - 1) * apart + 1) * bytes(shape.columns));
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const std::int64_t row = rows[i];
    auto to = std::span(chosen).subspan(i * apart * bytes(shape.columns));
    for (std::int64_t column = 0; column < shape.columns; column += run, to = to.subspan(bytes(run))) {
      const std::int64_t at = row * shape.row_step(leading) + column * step;
      read_part(matrix, host, bytes(at), to.first(bytes(run)));
    }
  }
  return chosen;
}

/// The scales, or the zero points, of these rows as rows_of() has them; `all_bytes`: of the matrix's.
std::vector<std::byte> scales_of_rows(const RandomFill& scales, const std::vector<std::byte>& host,
                                      const MatrixShape& matrix, std::int64_t all_bytes,
                                      std::span<const std::int64_t> rows) {
  if (all_bytes == 0) return {};
  const ScaleShape& shape = matrix.scale;
  const bool one = matrix.count * shape.rows == 1;
  const auto bytes = static_cast<std::size_t>(all_bytes / shape.rows);
  std::vector<std::byte> chosen((one ? 1 : rows.size()) * bytes);
  for (std::size_t i = 0; i * bytes < chosen.size(); ++i) {
    const auto first = one ? 0 : static_cast<std::size_t>(rows[i] / shape.row_block) * bytes;
    read_part(scales, host, first, std::span(chosen).subspan(i * bytes, bytes));
  }
  return chosen;
}

/// These of the matrices that an operand has, of `bytes` each: elements or scales.
std::vector<std::byte> matrices_of(const RandomFill& operand, const std::vector<std::byte>& host,
                                   std::int64_t bytes, std::span<const std::int32_t> chosen, int threads) {
  const auto each = static_cast<std::size_t>(bytes);
  std::vector<std::byte> all(chosen.size() * each);
  for (std::size_t i = 0; i < chosen.size() && each > 0; ++i)
    read_part(operand, host, static_cast<std::size_t>(chosen[i]) * each,
              std::span(all).subspan(i * each, each), threads);
  return all;
}

bool is_close(double value, double size, double expected, double magnitude) {
  // A magnitude below the range of float32 is zero.
  const double bound = std::max(magnitude, static_cast<double>(std::numeric_limits<float>::min()));
  return std::fabs(value - expected) <= reference_error * bound &&
         std::fabs(size - magnitude) <= magnitude_error * bound;
}

}  // namespace

OutputVerifier::OutputVerifier(Device& device, const Problem& problem, const OutputVerifierOptions& options)
    : device_(&device), problem_(problem), max_err_ratio_(options.max_err_ratio), signs_(options.signs) {}

Tolerance OutputVerifier::tolerance(Accuracy accuracy) const {
  return tolerance_for(problem_, max_err_ratio_,
                       {accuracy, traits_of(device_->info()).tensor_core_sums, signs_});
}

Outcome OutputVerifier::outcome_of(const CheckReport& report) const {
  Outcome outcome;
  if (!report.right) outcome = failed_outcome(OutcomeKind::wrong, report.reason);
  outcome.err_ratio = report.err_ratio;
  if (signs_ == Signs::one) {
    outcome.error.one_sign = report.frobenius;
  } else {
    outcome.error.rms = report.frobenius;
    outcome.error.max = report.max_error;
  }
  return outcome;
}

Result<OutputVerifier> OutputVerifier::make(Device& device, const Problem& problem,
                                            const OutputVerifierOptions& options, PlannedInputs& inputs,
                                            const Operands& device_operands) {
  OutputVerifier verifier(device, problem, options);
  const bool large = flops(problem) > options.max_host_flops ||
                     problem.batch * problem.m * output_columns(problem) > options.max_host_elements ||
                     bytes(problem) > options.max_host_bytes;
  if (large) {
    auto checker = device.output_checker(problem);
    if (checker.ok()) {
      verifier.device_checker_ = std::move(*checker);
      GEMMTUNE_RETURN_IF_ERROR(verifier.device_checker_->compute_reference(device_operands));
      GEMMTUNE_RETURN_IF_ERROR(is_mixture(problem) ? verifier.confirm_mixture(inputs, options.threads)
                                                   : verifier.confirm(inputs));
      return verifier;
    }
    log(LogLevel::debug, "outputs of {} are checked on the host: {}", short_name(problem), checker.message());
    GEMMTUNE_RETURN_IF_ERROR(device.health());
  }
  // On a CPU the whole need was checked before its operands were made.
  if (!traits_of(device.info()).runs_on_host) GEMMTUNE_RETURN_IF_ERROR(check_host_memory(problem));
  GEMMTUNE_RETURN_IF_ERROR(inputs.fill_all(options.threads));
  ReferenceOptions reference_options;
  reference_options.threads = options.threads;
  reference_options.seed += options.sampling_seed;
  GEMMTUNE_TRY(verifier.reference_, compute_reference(problem, inputs.host, reference_options));
  return verifier;
}

// The device's reference is one more kernel of ours, so the host computes some of its elements itself.
Status OutputVerifier::confirm(const PlannedInputs& inputs) const {
  Random random(static_cast<std::uint64_t>(problem_.m * 31 + problem_.n * 17 + problem_.k));
  for (const std::int64_t batch : spread(problem_.batch, random))
    GEMMTUNE_RETURN_IF_ERROR(confirm_batch(inputs, batch, random));
  return {};
}

Status OutputVerifier::confirm_batch(const PlannedInputs& inputs, std::int64_t batch, Random& random) const {
  const std::vector<std::int64_t> columns = spread(problem_.n, random);
  // Among the rows of all batches.
  std::vector<std::int64_t> rows = spread(problem_.m, random);
  for (std::int64_t& row : rows) row += batch * problem_.m;
  std::vector<std::int64_t> w_rows = columns;
  for (std::int64_t& row : w_rows) row += batch * problem_.n;
  const OperandShapes shapes = operand_shapes(problem_);
  const std::int64_t apart = rows_of_a_scale(shapes.w);
  Problem small = problem_;
  small.m = static_cast<std::int64_t>(rows.size());
  small.n = (static_cast<std::int64_t>(columns.size()) - 1) * apart + 1;
  small.batch = 1;
  small.x_order = small.w_order = Order::row_major;
  HostOperands operands;
  operands.x = rows_of(inputs.x, inputs.host.x, shapes.x, rows);
  operands.w = rows_of(inputs.w, inputs.host.w, shapes.w, w_rows);
  if (problem_.bias) {
    const std::int64_t size = bytes_of(problem_.y_type, 1);
    operands.bias.resize(static_cast<std::size_t>(small.n * size));
    for (std::size_t j = 0; j < columns.size(); ++j)
      std::copy_n(inputs.host.bias.begin() + columns[j] * size, size,
                  operands.bias.begin() + static_cast<std::int64_t>(j) * apart * size);
  }
  operands.x_scale =
      scales_of_rows(inputs.x_scale, inputs.host.x_scale, shapes.x, shapes.x.scale.bytes(), rows);
  operands.w_scale =
      scales_of_rows(inputs.w_scale, inputs.host.w_scale, shapes.w, shapes.w.scale.bytes(), w_rows);
  operands.w_zero_points = scales_of_rows(inputs.w_zero_points, inputs.host.w_zero_points, shapes.w,
                                          shapes.w.scale.zero_point_bytes(), w_rows);
  operands.x_global_scale = inputs.host.x_global_scale;
  operands.w_global_scale = inputs.host.w_global_scale;
  GEMMTUNE_TRY(const auto expected, compute_reference(small, operands, {}));
  std::vector<double> values(static_cast<std::size_t>(problem_.n));
  std::vector<float> magnitudes(values.size());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    GEMMTUNE_RETURN_IF_ERROR(device_checker_->read_row(rows[i], values, magnitudes));
    for (std::size_t j = 0; j < columns.size(); ++j) {
      const auto column = static_cast<std::size_t>(columns[j]);
      const std::size_t at = i * static_cast<std::size_t>(small.n) + j * static_cast<std::size_t>(apart);
      const double value = expected.values[at];
      const double magnitude = expected.magnitudes[at];
      const double size = static_cast<double>(magnitudes[column]);
      if (!is_close(values[column], size, value, magnitude))
        return differs(rows[i], columns[j], {values[column], size}, {value, magnitude});
    }
  }
  return {};
}

// Some tokens, of which the host computes all of y from the weights of their experts alone.
Status OutputVerifier::confirm_mixture(const PlannedInputs& inputs, int threads) const {
  const MoeShape& moe = problem_.moe;
  Random random(static_cast<std::uint64_t>(problem_.m * 31 + problem_.n * 17 + problem_.k));
  std::vector<std::int64_t> tokens = spread(problem_.m, random);
  const double affordable = confirmed_flops * static_cast<double>(problem_.m) / flops(problem_);
  const auto last = tokens.back();
  tokens.resize(std::min(tokens.size(), static_cast<std::size_t>(std::max(1.0, affordable))));
  tokens.back() = last;
  const MixtureRoutes routes(moe, inputs.host.topk_ids.data(), inputs.host.topk_weights.data());
  std::vector<std::int32_t> experts;  // of these tokens, and the shared ones: the last of all
  for (const std::int64_t token : tokens)
    for (std::int64_t slot = 0; slot < moe.topk; ++slot) {
      const std::int32_t expert = routes.expert(token * moe.topk + slot);
      if (expert != empty_slot) experts.push_back(expert);
    }
  if (experts.empty()) experts.push_back(0);  // a mixture has one
  std::ranges::sort(experts);
  experts.erase(std::unique(experts.begin(), experts.end()), experts.end());
  const OperandShapes shapes = operand_shapes(problem_);
  Problem small = problem_;
  small.m = static_cast<std::int64_t>(tokens.size());
  small.moe.experts = static_cast<std::int32_t>(experts.size());
  const auto weights = [&](const RandomFill& fill, const std::vector<std::byte>& host,
                           std::int64_t bytes_each) {
    return matrices_of(fill, host, bytes_each, experts, threads);
  };
  const HostOperands& host = inputs.host;
  HostOperands operands;
  operands.x = rows_of(inputs.x, host.x, shapes.x, tokens);
  operands.x_scale = scales_of_rows(inputs.x_scale, host.x_scale, shapes.x, shapes.x.scale.bytes(), tokens);
  operands.w = weights(inputs.w, host.w, shapes.w.bytes() / shapes.w.count);
  operands.w_scale = weights(inputs.w_scale, host.w_scale, shapes.w.scale.bytes());
  operands.w2 = weights(inputs.w2, host.w2, shapes.w2.bytes() / shapes.w2.count);
  operands.w2_scale = weights(inputs.w2_scale, host.w2_scale, shapes.w2.scale.bytes());
  operands.w_global_scale = weights({}, host.w_global_scale, shapes.w.scale.global_bytes());
  operands.w2_global_scale = weights({}, host.w2_global_scale, shapes.w2.scale.global_bytes());
  operands.w_zero_points =
      weights(inputs.w_zero_points, host.w_zero_points, shapes.w.scale.zero_point_bytes());
  operands.w2_zero_points =
      weights(inputs.w2_zero_points, host.w2_zero_points, shapes.w2.scale.zero_point_bytes());
  if (problem_.bias) {
    operands.bias = weights({}, host.bias, shapes.bias.bytes() / shapes.bias.count);
    operands.bias2 = weights({}, host.bias2, shapes.bias2.bytes() / shapes.bias2.count);
  }
  for (const std::int64_t token : tokens)
    for (std::int64_t slot = 0; slot < moe.routed_topk(); ++slot) {
      const std::int64_t pair = token * moe.topk + slot;
      const auto at = std::lower_bound(experts.begin(), experts.end(), routes.expert(pair));
      operands.topk_ids.push_back(
          routes.expert(pair) == empty_slot ? empty_slot : static_cast<std::int32_t>(at - experts.begin()));
      operands.topk_weights.push_back(routes.weight(pair));
    }
  ReferenceOptions options;
  options.threads = threads;
  options.sampled_rows = small.m;  // all of them
  GEMMTUNE_TRY(const auto expected, compute_reference(small, operands, options));
  std::vector<double> values(static_cast<std::size_t>(output_columns(problem_)));
  std::vector<float> magnitudes(values.size());
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    GEMMTUNE_RETURN_IF_ERROR(device_checker_->read_row(tokens[i], values, magnitudes));
    for (std::size_t column = 0; column < values.size(); ++column) {
      const std::size_t at = i * values.size() + column;
      const auto size = static_cast<double>(magnitudes[column]);
      if (!is_close(values[column], size, expected.values[at], expected.magnitudes[at]))
        return differs(tokens[i], static_cast<std::int64_t>(column), {values[column], size},
                       {expected.values[at], expected.magnitudes[at]});
    }
  }
  return {};
}

Status OutputVerifier::differs(std::int64_t row, std::int64_t column, std::pair<double, double> device,
                               std::pair<double, double> host) const {
  return Status::internal(
      "{}: the device's reference of {} has {} (magnitude {}) at row {}, column {}, the host's {} ({})",
      device_->info().name, short_name(problem_), device.first, device.second, row, column, host.first,
      host.second);
}

Status OutputVerifier::read(const Buffer& y, std::int64_t ldy) {
  y_ = &y;
  ldy_ = ldy;
  if (on_device()) return {};
  output_.resize(y.bytes());
  return device_->copy_out(output_.data(), y.data(), y.bytes());
}

Outcome OutputVerifier::verify(Accuracy accuracy) {
  return on_device() ? verify_on_device(tolerance(accuracy)) : verify_on_host(tolerance(accuracy));
}

Outcome OutputVerifier::verify_on_host(const Tolerance& tolerance) const {
  const auto used = static_cast<std::size_t>(bytes_of(problem_.y_type, output_columns(problem_)));
  const auto pitch = static_cast<std::size_t>(bytes_of(problem_.y_type, ldy_));
  for (std::int64_t row = 0; used < pitch && row < problem_.batch * problem_.m; ++row) {
    const auto pad = std::span(output_).subspan(static_cast<std::size_t>(row) * pitch + used, pitch - used);
    if (std::ranges::any_of(pad, [](std::byte b) { return b != std::byte{poison_byte}; }))
      return wrong_padding(row);
  }
  return outcome_of(check_output(problem_, reference_, output_, ldy_, tolerance));
}

Outcome OutputVerifier::verify_on_device(const Tolerance& tolerance) {
  const auto rows = device_checker_->compare(y_->data(), ldy_, tolerance);
  if (!rows.ok()) return failed_launch(rows.status());
  Problem one = problem_;
  one.batch = 1;
  std::vector<CheckReport> reports;
  auto next = rows->begin();
  for (std::int64_t batch = 0; batch < problem_.batch; ++batch) {
    CheckReportBuilder report(one, tolerance);
    for (std::int64_t row = 0; row < problem_.m; ++row, ++next) {
      if (next->padding_written > 0) return wrong_padding(batch * problem_.m + row);
      report.add(row, *next);
    }
    reports.push_back(report.report());
  }
  return outcome_of(problem_.batch == 1 ? reports.front() : report_of_batches(problem_, reports));
}

Result<bool> OutputVerifier::equals_kept() {
  if (!on_device()) return output_ == kept_;
  return device_checker_->same(y_->data(), kept_on_device_->data(), y_->bytes());
}

Status OutputVerifier::keep() {
  if (!on_device()) {
    kept_ = output_;
    return {};
  }
  if (!kept_on_device_ || kept_on_device_->bytes() != y_->bytes()) {
    GEMMTUNE_TRY(kept_on_device_, device_->allocate(y_->bytes(), Placement::plain));
  }
  return device_->copy_within(kept_on_device_->data(), y_->data(), y_->bytes());
}

}  // namespace gemmtune
