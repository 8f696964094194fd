// Builds the report from the figures of rows, for the host's comparison and for the devices'.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "problem/problem.h"
#include "verify/output_check.h"
#include "verify/row_figures.h"

namespace gemmtune {

/// Builds the report on one output from the figures of its rows. Keeps references to both arguments.
class CheckReportBuilder {
 public:
  CheckReportBuilder(const Problem& problem, const Tolerance& tolerance);

  /// Figures of a row, or of some of its elements: a row may be added in parts, each of which must keep to
  /// the row's bound. In any order; of equal errors the first one added is named.
  void add(std::int64_t row, const RowFigures& figures);
  /// The random-vector check of one row: its error for its bound.
  void add_product(std::int64_t row, double excess);

  std::int64_t not_finite() const { return not_finite_; }
  CheckReport report() const;

 private:
  struct Place {
    std::int64_t row = -1;
    std::int64_t column = -1;
  };

  double allowed_misrounded() const;
  double aiter_err_ratio() const;
  std::string reason(double err_ratio) const;

  const Problem& problem_;
  const Tolerance& tolerance_;
  std::int64_t columns_;  // of y
  std::int64_t checked_ = 0;
  std::int64_t misrounded_ = 0;
  std::int64_t outside_ = 0;
  std::int64_t not_finite_ = 0;
  std::int64_t unwritten_ = 0;
  Place first_not_finite_;
  double max_output_ = 0;
  double max_error_ = 0;
  double max_exact_error_ = 0;
  double worst_element_ = -1;  // error / bound
  Place worst_place_;
  std::pair<double, double> worst_values_;
  double worst_row_excess_ = 0;
  std::int64_t worst_row_ = -1;
  double error_ = 0;  // sums of squares
  double reference_ = 0;
  double cosine_product_ = 0;
  double cosine_squares_ = 0;
  double worst_product_ = 0;
  std::int64_t worst_product_row_ = -1;
};

/// The report on all batches of a problem from those on each: wrong if one of them is, and why the first of these.
CheckReport report_of_batches(const Problem& problem, std::span<const CheckReport> reports);

}  // namespace gemmtune
