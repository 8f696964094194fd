#include "verify/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "problem/operands.h"
#include "verify/element.h"

namespace gemmtune {
namespace {

struct Norms {
  double error = 0;  // sums of squares
  double reference = 0;
  double magnitude = 0;

  void add(const Norms& other) {
    error += other.error;
    reference += other.reference;
    magnitude += other.magnitude;
  }
};

struct Place {
  std::int64_t row = -1;
  std::int64_t column = -1;
};

class Checker {
 public:
  Checker(const Problem& problem, const Reference& reference, std::span<const std::byte> output,
          std::int64_t ldy, const Tolerance& tolerance)
      : problem_(problem),
        columns_(output_columns(problem)),
        reference_(reference),
        output_(output),
        ldy_(ldy),
        tolerance_(tolerance) {}

  CheckReport run() {
    line_.resize(static_cast<std::size_t>(columns_));
    scan_all();
    if (not_finite_ == 0) {
      if (reference_.complete) {
        for (std::int64_t row = 0; row < problem_.m; ++row) check_row(row, row * columns_);
      } else {
        check_samples();
      }
    }
    return report();
  }

 private:
  void read_row(std::int64_t row) { read_elements(problem_.y_type, output_, row * ldy_, line_); }

  // Every element of y: is it a number? (A reference that overflows y's type allows the infinity there.)
  void scan_all() {
    for (std::int64_t row = 0; row < problem_.m; ++row) {
      read_row(row);
      for (std::size_t column = 0; column < line_.size(); ++column) {
        if (std::isfinite(line_[column])) continue;
        if (infinity_expected(row, static_cast<std::int64_t>(column), line_[column])) continue;
        if (not_finite_++ == 0) first_not_finite_ = {row, static_cast<std::int64_t>(column)};
        if (is_poison(row, static_cast<std::int64_t>(column))) ++unwritten_;
      }
    }
  }

  bool is_poison(std::int64_t row, std::int64_t column) const {
    const std::size_t size = element_bytes(problem_.y_type);
    const auto element = output_.subspan(static_cast<std::size_t>(row * ldy_ + column) * size, size);
    return std::all_of(element.begin(), element.end(),
                       [](std::byte b) { return b == std::byte{poison_byte}; });
  }

  bool infinity_expected(std::int64_t row, std::int64_t column, float value) const {
    if (!reference_.complete || !std::isinf(value)) return false;
    const double exact = reference_.values[static_cast<std::size_t>(row * columns_ + column)];
    return round_to(problem_.y_type, exact) == static_cast<double>(value);
  }

  // One row of y against `n` reference elements from `at`.
  void check_row(std::int64_t row, std::int64_t at) {
    read_row(row);
    Norms norms;
    for (std::int64_t column = 0; column < columns_; ++column)
      check_element({row, column}, line_[static_cast<std::size_t>(column)],
                    static_cast<std::size_t>(at + column), norms);
    finish_row(row, norms);
  }

  void check_samples() {
    for (std::size_t i = 0; i < reference_.rows.size(); ++i)
      check_row(reference_.rows[i], static_cast<std::int64_t>(i) * columns_);
    if (reference_.columns.empty()) return;
    const auto columns_at = static_cast<std::int64_t>(reference_.rows.size()) * columns_;
    for (std::int64_t row = 0; row < problem_.m; ++row) {
      read_row(row);
      Norms norms;
      for (std::size_t j = 0; j < reference_.columns.size(); ++j) {
        const std::int64_t column = reference_.columns[j];
        check_element({row, column}, line_[static_cast<std::size_t>(column)],
                      static_cast<std::size_t>(columns_at + static_cast<std::int64_t>(j) * problem_.m + row),
                      norms);
      }
      finish_row(row, norms);
      check_product(row);
    }
  }

  void check_element(Place place, float value, std::size_t index, Norms& norms) {
    const double out = value;
    const double exact = reference_.values[index];
    const double magnitude = reference_.magnitudes[index];
    const double rounded = round_to(problem_.y_type, exact);
    ++checked_;
    if (out != rounded) ++misrounded_;
    if (std::isinf(out) && out == rounded) return;
    if (!(std::fabs(rounded - out) <= tolerance_.absolute + tolerance_.relative * std::fabs(out))) ++outside_;
    largest_output_ = std::max(largest_output_, std::fabs(out));
    largest_error_ = std::max(largest_error_, std::fabs(rounded - out));
    const double error = std::fabs(out - exact);
    const double accumulated = tolerance_.element_factor * magnitude;
    const double bound =
        accumulated + tolerance_.output_epsilon * (std::fabs(exact) + accumulated) + tolerance_.output_tiny;
    if (error / bound > worst_element_) {
      worst_element_ = error / bound;
      worst_place_ = place;
      worst_values_ = {out, exact};
    }
    cosine_product_ += out * exact;
    cosine_squares_ += out * out + exact * exact;
    norms.error += error * error;
    norms.reference += exact * exact;
    norms.magnitude += magnitude * magnitude;
  }

  double bound_of(const Norms& norms, double elements) const {
    return tolerance_.largest_frobenius * std::sqrt(norms.reference) +
           tolerance_.accumulation * std::sqrt(norms.magnitude) +
           tolerance_.output_tiny * std::sqrt(elements);
  }

  void finish_row(std::int64_t row, const Norms& norms) {
    const double elements = static_cast<double>(columns_);
    const double excess = std::sqrt(norms.error) / bound_of(norms, elements);
    if (excess > worst_row_excess_) {
      worst_row_excess_ = excess;
      worst_row_ = row;
    }
    all_.add(norms);
  }

  // y[row] · vector against the reference's. The roundings of the elements are independent and have random
  // signs in this sum: their root sum of squares counts, 7 standard deviations of it (a rounding has about
  // 0.43·epsilon). Uses the row in line_.
  void check_product(std::int64_t row) {
    double product = 0;
    double squares = 0;
    for (std::size_t column = 0; column < line_.size(); ++column) {
      const double term = static_cast<double>(line_[column]) * reference_.vector[column];
      product += term;
      squares += term * term;
    }
    const auto index = static_cast<std::size_t>(row);
    const double bound = 3 * tolerance_.output_epsilon * std::sqrt(squares) +
                         1.5 * tolerance_.accumulation * reference_.product_magnitudes[index] +
                         3 * tolerance_.output_tiny * std::sqrt(static_cast<double>(columns_));
    const double excess = std::fabs(product - reference_.product[index]) / bound;
    if (excess > worst_product_) {
      worst_product_ = excess;
      worst_product_row_ = row;
    }
  }

  // A share of few elements is noise: three standard deviations and two elements are allowed on top.
  double allowed_misrounded() const {
    const double expected = tolerance_.largest_misrounded * static_cast<double>(checked_);
    return expected + 3 * std::sqrt(expected) + 2;
  }

  // As AITER has it. Of fused_moe the cosine difference 1 − 2Σab/Σ(a² + b²). Else the share, rounded to four
  // decimals; 1 for results that are hopeless (NaN, or an error above half of the largest output) although
  // the share is small.
  double aiter_err_ratio() const {
    if (not_finite_ > 0) return 1;
    if (problem_.operation == Operation::fused_moe) {
      const double difference = cosine_squares_ > 0 ? 1 - 2 * cosine_product_ / cosine_squares_ : 0;
      return std::round(difference * 1e4) / 1e4;
    }
    const double ratio = checked_ == 0 ? 0 : static_cast<double>(outside_) / static_cast<double>(checked_);
    if (ratio < tolerance_.largest_err_ratio && largest_error_ > 0.5 * std::max(largest_output_, 1.0))
      return 1;
    return std::round(ratio * 1e4) / 1e4;
  }

  std::string reason(double err_ratio) const {
    if (unwritten_ > 0)
      return fmt::format("{}: {} of {}, the first at row {}, column {}", check_phrase::unwritten, unwritten_,
                         problem_.m * columns_, first_not_finite_.row, first_not_finite_.column);
    if (not_finite_ > 0)
      return fmt::format("{}: {} of {}, the first at row {}, column {}", check_phrase::not_finite,
                         not_finite_, problem_.m * columns_, first_not_finite_.row, first_not_finite_.column);
    if (!(worst_element_ <= 1))
      return fmt::format("{}: {:.6g} instead of {:.6g} at row {}, column {} ({:.3g} times the bound)",
                         check_phrase::element, worst_values_.first, worst_values_.second, worst_place_.row,
                         worst_place_.column, worst_element_);
    if (!(worst_row_excess_ <= 1))
      return fmt::format("{}: row {} ({:.3g} times the bound)", check_phrase::row, worst_row_,
                         worst_row_excess_);
    if (!(worst_product_ <= 1))
      return fmt::format("{}: row {} ({:.3g} times the bound)", check_phrase::product, worst_product_row_,
                         worst_product_);
    if (tolerance_.largest_misrounded < 1 && static_cast<double>(misrounded_) > allowed_misrounded())
      return fmt::format("{}: {} of {}, allowed {:.4g} %", check_phrase::misrounded, misrounded_, checked_,
                         100 * tolerance_.largest_misrounded);
    if (!(err_ratio <= tolerance_.largest_err_ratio))
      return fmt::format("{}: {} > {}", check_phrase::err_ratio, err_ratio, tolerance_.largest_err_ratio);
    return {};
  }

  CheckReport report() const {
    CheckReport report;
    report.err_ratio = aiter_err_ratio();
    report.reason = reason(report.err_ratio);
    report.right = report.reason.empty();
    if (all_.reference > 0) report.frobenius = std::sqrt(all_.error / all_.reference);
    if (checked_ > 0) report.misrounded = static_cast<double>(misrounded_) / static_cast<double>(checked_);
    const Place place = not_finite_ > 0 ? first_not_finite_ : worst_place_;
    report.worst_row = place.row;
    report.worst_column = place.column;
    return report;
  }

  const Problem& problem_;
  std::int64_t columns_;  // of y
  const Reference& reference_;
  std::span<const std::byte> output_;
  std::int64_t ldy_;
  const Tolerance& tolerance_;
  std::vector<float> line_;  // the row that is looked at
  std::int64_t not_finite_ = 0;
  std::int64_t unwritten_ = 0;
  Place first_not_finite_;
  std::int64_t checked_ = 0;
  std::int64_t misrounded_ = 0;
  std::int64_t outside_ = 0;
  double largest_output_ = 0;
  double largest_error_ = 0;
  double worst_element_ = -1;  // error / bound
  Place worst_place_;
  std::pair<double, double> worst_values_;
  double worst_row_excess_ = 0;
  std::int64_t worst_row_ = -1;
  Norms all_;
  double cosine_product_ = 0;
  double cosine_squares_ = 0;
  double worst_product_ = 0;
  std::int64_t worst_product_row_ = -1;
};

/// Each batch is judged alone: one that is wrong must not hide among right ones.
CheckReport check_batches(const Problem& problem, const Reference& reference,
                          std::span<const std::byte> output, std::int64_t ldy, const Tolerance& tolerance) {
  Problem one = problem;
  one.batch = 1;
  const std::size_t step = static_cast<std::size_t>(problem.m * ldy) * element_bytes(problem.y_type);
  CheckReport all;
  all.right = true;
  all.err_ratio = 0;
  const auto count = static_cast<double>(reference.batches.size());
  for (std::size_t batch = 0; batch < reference.batches.size(); ++batch) {
    CheckReport report =
        Checker(one, reference.batches[batch], output.subspan(batch * step), ldy, tolerance).run();
    if (all.right && !report.right) {
      all.right = false;
      all.reason = fmt::format("{} (batch {})", report.reason, batch);
      all.worst_row = static_cast<std::int64_t>(batch) * problem.m + report.worst_row;
      all.worst_column = report.worst_column;
    }
    all.err_ratio += report.err_ratio / count;
    all.frobenius = std::max(all.frobenius, report.frobenius);
    all.misrounded += report.misrounded / count;
  }
  all.err_ratio = std::round(all.err_ratio * 1e4) / 1e4;
  return all;
}

}  // namespace

CheckReport check_output(const Problem& problem, const Reference& reference,
                         std::span<const std::byte> output, std::int64_t ldy, const Tolerance& tolerance) {
  if (!reference.batches.empty()) return check_batches(problem, reference, output, ldy, tolerance);
  return Checker(problem, reference, output, ldy, tolerance).run();
}

}  // namespace gemmtune
