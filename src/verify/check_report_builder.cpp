#include "verify/check_report_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace gemmtune {

CheckReportBuilder::CheckReportBuilder(const Problem& problem, const Tolerance& tolerance)
    : problem_(problem), tolerance_(tolerance), columns_(output_columns(problem)) {}

void CheckReportBuilder::add(std::int64_t row, const RowFigures& figures) {
  if (figures.not_finite > 0) {
    const bool first = not_finite_ == 0 || row < first_not_finite_.row;
    if (first) first_not_finite_ = {row, figures.first_not_finite};
    not_finite_ += figures.not_finite;
    unwritten_ += figures.unwritten;
  }
  if (figures.checked == 0) return;
  checked_ += figures.checked;
  misrounded_ += figures.misrounded;
  outside_ += figures.outside;
  max_output_ = std::max(max_output_, figures.max_output);
  max_error_ = std::max(max_error_, figures.max_error);
  max_exact_error_ = std::max(max_exact_error_, figures.max_exact_error);
  if (figures.worst_excess > worst_element_) {
    worst_element_ = figures.worst_excess;
    worst_place_ = {row, figures.worst_column};
    worst_values_ = {figures.worst_output, figures.worst_reference};
  }
  const double bound =
      tolerance_.max_frobenius * std::sqrt(figures.reference) +
      tolerance_.accumulation * std::sqrt(figures.magnitude) +
      tolerance_.short_row * std::sqrt(figures.magnitude / static_cast<double>(figures.checked)) +
      tolerance_.output_tiny * std::sqrt(static_cast<double>(columns_));
  const double excess = std::sqrt(figures.error) / bound;
  if (excess > worst_row_excess_) {
    worst_row_excess_ = excess;
    worst_row_ = row;
  }
  error_ += figures.error;
  reference_ += figures.reference;
  cosine_product_ += figures.product;
  cosine_squares_ += figures.output + figures.reference;
}

void CheckReportBuilder::add_product(std::int64_t row, double excess) {
  if (excess > worst_product_) {
    worst_product_ = excess;
    worst_product_row_ = row;
  }
}

// A share of few elements is noise: three standard deviations and two elements are allowed on top.
double CheckReportBuilder::allowed_misrounded() const {
  const double expected = tolerance_.max_misrounded * static_cast<double>(checked_);
  return expected + 3 * std::sqrt(expected) + 2;
}

// As AITER has it. Of fused_moe the cosine difference 1 − 2Σab/Σ(a² + b²). Else the share, rounded to four
// decimals; 1 for results that are hopeless (NaN, or an error above half of the largest output) although
// the share is small.
double CheckReportBuilder::aiter_err_ratio() const {
  if (not_finite_ > 0) return 1;
  if (is_mixture(problem_)) {
    const double difference = cosine_squares_ > 0 ? 1 - 2 * cosine_product_ / cosine_squares_ : 0;
    return std::round(difference * 1e4) / 1e4;
  }
  const double ratio = checked_ == 0 ? 0 : static_cast<double>(outside_) / static_cast<double>(checked_);
  if (ratio < tolerance_.max_err_ratio && max_error_ > 0.5 * std::max(max_output_, 1.0)) return 1;
  return std::round(ratio * 1e4) / 1e4;
}

std::string CheckReportBuilder::reason(double err_ratio) const {
  if (unwritten_ > 0)
    return fmt::format("{}: {} of {}, the first at row {}, column {}", check_phrase::unwritten, unwritten_,
                       problem_.m * columns_, first_not_finite_.row, first_not_finite_.column);
  if (not_finite_ > 0)
    return fmt::format("{}: {} of {}, the first at row {}, column {}", check_phrase::not_finite, not_finite_,
                       problem_.m * columns_, first_not_finite_.row, first_not_finite_.column);
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
  if (tolerance_.max_misrounded < 1 && static_cast<double>(misrounded_) > allowed_misrounded())
    return fmt::format("{}: {} of {}, allowed {:.4g} %", check_phrase::misrounded, misrounded_, checked_,
                       100 * tolerance_.max_misrounded);
  if (!(err_ratio <= tolerance_.max_err_ratio))
    return fmt::format("{}: {} > {}", check_phrase::err_ratio, err_ratio, tolerance_.max_err_ratio);
  return {};
}

CheckReport CheckReportBuilder::report() const {
  CheckReport report;
  report.err_ratio = aiter_err_ratio();
  report.reason = reason(report.err_ratio);
  report.right = report.reason.empty();
  // Where elements are no numbers, the others say nothing, and the host does not compare them.
  const bool compared = not_finite_ == 0;
  if (compared && reference_ > 0) {
    report.frobenius = std::sqrt(error_ / reference_);
    report.max_error = max_exact_error_ / std::sqrt(reference_ / static_cast<double>(checked_));
  }
  if (compared && checked_ > 0)
    report.misrounded = static_cast<double>(misrounded_) / static_cast<double>(checked_);
  const Place place = not_finite_ > 0 ? first_not_finite_ : worst_place_;
  report.worst_row = place.row;
  report.worst_column = place.column;
  return report;
}

CheckReport report_of_batches(const Problem& problem, std::span<const CheckReport> reports) {
  CheckReport all;
  all.right = true;
  all.err_ratio = 0;
  const auto count = static_cast<double>(reports.size());
  for (std::size_t batch = 0; batch < reports.size(); ++batch) {
    const CheckReport& report = reports[batch];
    if (all.right && !report.right) {
      all.right = false;
      all.reason = fmt::format("{} (batch {})", report.reason, batch);
      all.worst_row = static_cast<std::int64_t>(batch) * problem.m + report.worst_row;
      all.worst_column = report.worst_column;
    }
    all.err_ratio += report.err_ratio / count;
    all.frobenius = std::max(all.frobenius, report.frobenius);
    all.max_error = std::max(all.max_error, report.max_error);
    all.misrounded += report.misrounded / count;
  }
  all.err_ratio = std::round(all.err_ratio * 1e4) / 1e4;
  return all;
}

}  // namespace gemmtune
