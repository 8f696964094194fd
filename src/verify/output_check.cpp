#include "verify/output_check.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "problem/operands.h"
#include "verify/check_report_builder.h"
#include "verify/line_numbers.h"

namespace gemmtune {
namespace {

/// The host's comparison: figures of each row, for the CheckReportBuilder.
class Checker {
 public:
  Checker(const Problem& problem, const Reference& reference, std::span<const std::byte> output,
          std::int64_t ldy, const Tolerance& tolerance)
      : problem_(problem),
        columns_(output_columns(problem)),
        reference_(reference),
        output_(output),
        ldy_(ldy),
        tolerance_(tolerance),
        report_(problem, tolerance) {}

  CheckReport run() {
    line_.resize(static_cast<std::size_t>(columns_));
    for (std::int64_t row = 0; row < problem_.m; ++row) scan_row(row);
    if (report_.not_finite() == 0) {
      if (reference_.complete) {
        for (std::int64_t row = 0; row < problem_.m; ++row) check_row(row, row * columns_);
      } else {
        check_samples();
      }
    }
    return report_.report();
  }

 private:
  void read_row(std::int64_t row) { traits(problem_.y_type).widen(output_, row * ldy_, line_); }

  // Checks that every element of y is a number where it must be one, and is none where it must not.
  void scan_row(std::int64_t row) {
    read_row(row);
    RowFigures figures;
    for (std::int64_t column = 0; column < columns_; ++column) {
      const auto value = static_cast<double>(line_[static_cast<std::size_t>(column)]);
      switch (expected_at(row, column, value)) {
        case Expected::anything:
          continue;
        case Expected::number:
          if (std::isfinite(value)) continue;
          break;
        case Expected::number_or_infinity:
          if (!std::isnan(value)) continue;
          break;
        case Expected::not_finite:
          if (!std::isfinite(value)) continue;
          add_wrong_kind(column, value, std::numeric_limits<double>::infinity(), figures);
          continue;
        case Expected::nan:
          if (std::isnan(value)) continue;
          add_wrong_kind(column, value, std::numeric_limits<double>::quiet_NaN(), figures);
          continue;
      }
      if (figures.not_finite++ == 0) figures.first_not_finite = column;
      if (is_poison(row, column)) ++figures.unwritten;
    }
    report_.add(row, figures);
  }

  // What a complete reference has is compared element by element; here it decides where y must be a number.
  Expected expected_at(std::int64_t row, std::int64_t column, double value) const {
    if (reference_.complete) {
      const auto at = static_cast<std::size_t>(row * columns_ + column);
      const bool is_number = std::isfinite(reference_.values[at]) &&
                             (std::isfinite(value) || !may_be(value, exact_at(at), problem_.y_type));
      return is_number ? Expected::number : Expected::anything;
    }
    if (reference_.x_lines.empty()) return Expected::number;
    static const LineNumbers one = [] {
      LineNumbers line;
      line.norm = 1;
      return line;
    }();
    return expected_of(
        reference_.x_lines[static_cast<std::size_t>(row)],
        reference_.w_lines.empty() ? one : reference_.w_lines[static_cast<std::size_t>(column)],
        problem_.y_type);
  }

  ExactElement exact_at(std::size_t index) const {
    const double magnitude = reference_.magnitudes[index];
    return {reference_.values[index], tolerance_.element_factor * magnitude,
            reference_.reaches.empty() ? magnitude : reference_.reaches[index]};
  }

  // An infinity, NaN or a number in place of another of these.
  static void add_wrong_kind(std::int64_t column, double out, double expected, RowFigures& figures) {
    ++figures.checked;
    ++figures.misrounded;
    ++figures.outside;
    if (std::isinf(figures.worst_excess)) return;
    figures.worst_excess = std::numeric_limits<double>::infinity();
    figures.worst_column = column;
    figures.worst_output = out;
    figures.worst_reference = expected;
  }

  bool is_poison(std::int64_t row, std::int64_t column) const {
    const std::size_t size = static_cast<std::size_t>(bits(problem_.y_type)) / 8;
    const auto element = output_.subspan(static_cast<std::size_t>(row * ldy_ + column) * size, size);
    return std::ranges::all_of(element, [](std::byte b) { return b == std::byte{poison_byte}; });
  }

  // One row of y against `n` reference elements from `at`.
  void check_row(std::int64_t row, std::int64_t at) {
    read_row(row);
    RowFigures figures;
    for (std::int64_t column = 0; column < columns_; ++column)
      check_element(column, line_[static_cast<std::size_t>(column)], static_cast<std::size_t>(at + column),
                    figures);
    report_.add(row, figures);
  }

  void check_samples() {
    for (std::size_t i = 0; i < reference_.rows.size(); ++i)
      check_row(reference_.rows[i], static_cast<std::int64_t>(i) * columns_);
    if (reference_.columns.empty()) return;
    const auto columns_at = static_cast<std::int64_t>(reference_.rows.size()) * columns_;
    for (std::int64_t row = 0; row < problem_.m; ++row) {
      read_row(row);
      RowFigures figures;
      for (std::size_t j = 0; j < reference_.columns.size(); ++j) {
        const std::int64_t column = reference_.columns[j];
        check_element(column, line_[static_cast<std::size_t>(column)],
                      static_cast<std::size_t>(columns_at + static_cast<std::int64_t>(j) * problem_.m + row),
                      figures);
      }
      report_.add(row, figures);
      check_product(row);
    }
  }

  // backends/gpu/verify/compare.cu does the same on a device.
  void check_element(std::int64_t column, float value, std::size_t index, RowFigures& figures) {
    const double out = value;
    const double exact = reference_.values[index];
    const double magnitude = reference_.magnitudes[index];
    if (!std::isfinite(out) || !std::isfinite(exact)) {
      const bool right = !std::isfinite(out) && may_be(out, exact_at(index), problem_.y_type);
      if (!right) return add_wrong_kind(column, out, exact, figures);
      ++figures.checked;
      return;
    }
    const double rounded = round_to(problem_.y_type, exact);
    ++figures.checked;
    if (out != rounded) ++figures.misrounded;
    if (!(std::fabs(rounded - out) <= tolerance_.absolute + tolerance_.relative * std::fabs(out)))
      ++figures.outside;
    figures.max_output = std::max(figures.max_output, std::fabs(out));
    figures.max_error = std::max(figures.max_error, std::fabs(rounded - out));
    const double error = std::fabs(out - exact);
    figures.max_exact_error = std::max(figures.max_exact_error, error);
    const double accumulated = tolerance_.element_factor * magnitude;
    const double bound =
        accumulated + tolerance_.output_epsilon * (std::fabs(exact) + accumulated) + tolerance_.output_tiny;
    if (error / bound > figures.worst_excess) {
      figures.worst_excess = error / bound;
      figures.worst_column = column;
      figures.worst_output = out;
      figures.worst_reference = exact;
    }
    figures.product += out * exact;
    figures.output += out * out;
    figures.error += error * error;
    figures.reference += exact * exact;
    figures.magnitude += magnitude * magnitude;
  }

  // y[row] · vector against the reference's. The roundings of the elements are independent and have random
  // signs in this sum: their root sum of squares counts, 7 standard deviations of it (a rounding has about
  // 0.43·epsilon). Uses the row in line_.
  void check_product(std::int64_t row) {
    double product = 0;
    double squares = 0;
    for (std::size_t column = 0; column < line_.size(); ++column) {
      if (reference_.vector[column] == 0) continue;
      const double term = static_cast<double>(line_[column]) * reference_.vector[column];
      product += term;
      squares += term * term;
    }
    const auto index = static_cast<std::size_t>(row);
    // A row with other than numbers was looked at element by element.
    if (!std::isfinite(product) || !std::isfinite(reference_.product[index])) return;
    const double bound = 3 * tolerance_.output_epsilon * std::sqrt(squares) +
                         1.5 * tolerance_.accumulation * reference_.product_magnitudes[index] +
                         3 * tolerance_.output_tiny * std::sqrt(static_cast<double>(columns_));
    report_.add_product(row, std::fabs(product - reference_.product[index]) / bound);
  }

  const Problem& problem_;
  std::int64_t columns_;  // of y
  const Reference& reference_;
  std::span<const std::byte> output_;
  std::int64_t ldy_;
  const Tolerance& tolerance_;
  CheckReportBuilder report_;
  std::vector<float> line_;  // the current row
};

/// Checks each batch alone: a wrong one must not hide among right ones.
CheckReport check_batches(const Problem& problem, const Reference& reference,
                          std::span<const std::byte> output, std::int64_t ldy, const Tolerance& tolerance) {
  Problem one = problem;
  one.batch = 1;
  const std::size_t step =
      static_cast<std::size_t>(problem.m * ldy) * static_cast<std::size_t>(bits(problem.y_type)) / 8;
  std::vector<CheckReport> reports;
  for (std::size_t batch = 0; batch < reference.batches.size(); ++batch)
    reports.push_back(
        Checker(one, reference.batches[batch], output.subspan(batch * step), ldy, tolerance).run());
  return report_of_batches(problem, reports);
}

}  // namespace

CheckReport check_output(const Problem& problem, const Reference& reference,
                         std::span<const std::byte> output, std::int64_t ldy, const Tolerance& tolerance) {
  if (!reference.batches.empty()) return check_batches(problem, reference, output, ldy, tolerance);
  return Checker(problem, reference, output, ldy, tolerance).run();
}

}  // namespace gemmtune
