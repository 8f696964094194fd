// The report from figures of rows alone, as a device gives them.
#include "verify/check_report_builder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune {
namespace {

using ::testing::StartsWith;

Problem problem_of(DataType y_type = DataType::bf16) {
  Problem problem;
  problem.m = 4;
  problem.n = 1000;
  problem.k = 512;
  problem.y_type = y_type;
  return problem;
}

/// A row as right kernels have it: Σ over its 1000 elements of size 1, with errors a quarter of the bound.
RowFigures right_row(const Tolerance& tolerance) {
  RowFigures figures;
  figures.checked = 1000;
  figures.reference = 1000;
  figures.magnitude = 1000 * 16.0 * 16.0;
  figures.error = 1000 * 0.25 * tolerance.output_epsilon * 0.25 * tolerance.output_epsilon;
  figures.max_output = 3;
  figures.max_error = 0.01;
  figures.worst_excess = 0.5;
  figures.worst_column = 7;
  figures.worst_output = 1.5;
  figures.worst_reference = 1.4;
  figures.misrounded = 2;
  return figures;
}

class CheckReportTest : public ::testing::Test {
 protected:
  /// The report on four rows, of which the third was altered.
  template <typename Alter>
  CheckReport report(const Alter& alter) const {
    CheckReportBuilder report(problem_, tolerance_);
    for (std::int64_t row = 0; row < 4; ++row) {
      RowFigures figures = right_row(tolerance_);
      if (row == 2) alter(figures);
      report.add(row, figures);
    }
    return report.report();
  }

  const Problem problem_ = problem_of();
  const Tolerance tolerance_ = tolerance_for(problem_, 0.05);
};

TEST_F(CheckReportTest, right_rows_are_right) {
  const CheckReport all = report([](RowFigures&) {});
  EXPECT_TRUE(all.right) << all.reason;
  EXPECT_EQ(all.err_ratio, 0);
  EXPECT_DOUBLE_EQ(all.misrounded, 0.002);
  EXPECT_DOUBLE_EQ(all.frobenius, 0.25 * tolerance_.output_epsilon);
  EXPECT_EQ(all.worst_row, 0);
  EXPECT_EQ(all.worst_column, 7);
}

TEST_F(CheckReportTest, each_figure_has_its_phrase) {
  EXPECT_THAT(
      report([](RowFigures& row) {
        row.not_finite = 3;
        row.unwritten = 1;
        row.first_not_finite = 17;
      }).reason,
      StartsWith(std::string(check_phrase::unwritten) + ": 1 of 4000, the first at row 2, column 17"));
  EXPECT_THAT(
      report([](RowFigures& row) {
        row.not_finite = 3;
        row.first_not_finite = 17;
      }).reason,
      StartsWith(std::string(check_phrase::not_finite) + ": 3 of 4000, the first at row 2, column 17"));
  const CheckReport element = report([](RowFigures& row) {
    row.worst_excess = 1.5;
    row.worst_column = 999;
  });
  EXPECT_EQ(element.reason, std::string(check_phrase::element) +
                                ": 1.5 instead of 1.4 at row 2, column 999 (1.5 times the bound)");
  EXPECT_EQ(element.worst_row, 2);
  EXPECT_THAT(report([](RowFigures& row) { row.error *= 100; }).reason,
              StartsWith(std::string(check_phrase::row) + ": row 2"));
  EXPECT_THAT(report([](RowFigures& row) { row.misrounded = 900; }).reason,
              StartsWith(std::string(check_phrase::misrounded) + ": 906 of 4000"));
  const CheckReport outside = report([](RowFigures& row) { row.outside = 400; });
  EXPECT_EQ(outside.reason, std::string(check_phrase::err_ratio) + ": 0.1 > 0.05");
  EXPECT_EQ(outside.err_ratio, 0.1);
}

TEST_F(CheckReportTest, a_hopeless_error_counts_as_all) {
  const CheckReport far_off = report([](RowFigures& row) {
    row.outside = 1;
    row.max_error = 2;
  });
  EXPECT_EQ(far_off.err_ratio, 1);
  EXPECT_FALSE(far_off.right);
}

TEST_F(CheckReportTest, what_is_no_number_says_nothing_of_the_rest) {
  const CheckReport nan = report([](RowFigures& row) {
    row.not_finite = 1;
    row.first_not_finite = 5;
  });
  EXPECT_EQ(nan.err_ratio, 1);
  EXPECT_EQ(nan.frobenius, 0);
  EXPECT_EQ(nan.misrounded, 0);
  EXPECT_EQ(nan.worst_row, 2);
  EXPECT_EQ(nan.worst_column, 5);
}

TEST_F(CheckReportTest, the_random_vector_check_counts_too) {
  CheckReportBuilder report(problem_, tolerance_);
  report.add(0, right_row(tolerance_));
  report.add_product(1, 0.5);
  EXPECT_TRUE(report.report().right);
  report.add_product(3, 2);
  EXPECT_EQ(report.report().reason, std::string(check_phrase::product) + ": row 3 (2 times the bound)");
}

}  // namespace
}  // namespace gemmtune
