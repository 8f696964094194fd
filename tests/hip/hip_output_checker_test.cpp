// Comparing outputs where they lie, on doubles of AMD's libraries, whose kernels run on the emulation: NaN, infinities and sums
// that pass float32 as the host's comparison has them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "backends/hip/hip_backend.h"
#include "backends/output_checker.h"
#include "evaluate/in_process/kernel_verifier.h"
#include "support/elements.h"
#include "verify/check_report_builder.h"
#include "verify/inputs.h"
#include "verify/reference.h"

namespace gemmtune::hip_output_checker_test {
namespace {

using testing::load_element;
using testing::store;

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

struct Element {
  std::int64_t row, column;
  float value;
};

class HipOutputChecker : public ::testing::Test {
 protected:
  HipOutputChecker() {
    problem_.m = 5;
    problem_.n = 34;
    problem_.k = 64;
    problem_.y_type = DataType::f32;
    host_ = *make_inputs(problem_, 1);
  }
  void x(const Element& element) {
    store(problem_.x_type, host_.x.data(), element.row * problem_.k + element.column, element.value);
  }
  void w(const Element& element) {
    store(problem_.w_type, host_.w.data(), element.row * problem_.k + element.column, element.value);
  }
  /// By float32 sums.
  std::vector<float> right() const {
    std::vector<float> y;
    for (std::int64_t row = 0; row < problem_.m; ++row)
      for (std::int64_t column = 0; column < problem_.n; ++column) {
        float sum = 0;
        for (std::int64_t k = 0; k < problem_.k; ++k)
          sum += load_element(problem_.x_type, host_.x.data(), row * problem_.k + k) *
                 load_element(problem_.w_type, host_.w.data(), column * problem_.k + k);
        y.push_back(sum);
      }
    return y;
  }
  /// The reasons of both comparisons where they disagree about the right y with these elements in it, or differ from `is_right`.
  std::string disagreement(const std::vector<Element>& changed, bool is_right) {
    const auto device = hip::hip_backend().open({});
    if (!device.ok()) return device.message();
    auto operands = DeviceOperands::make(**device, problem_, Placement::plain);
    if (!operands.ok()) return operands.message();
    if (const Status filled = operands->fill(host_); !filled.ok()) return filled.message();
    const auto checker = (*device)->output_checker(problem_);
    if (!checker.ok()) return checker.message();
    const Status computed = (*checker)->compute_reference(*operands->operands(WeightLayout::plain));
    if (!computed.ok()) return computed.message();
    std::vector<float> y = right();
    for (const Element& element : changed)
      y[static_cast<std::size_t>(element.row * problem_.n + element.column)] = element.value;
    const std::size_t bytes = y.size() * sizeof(float);
    const auto buffer = (*device)->allocate(bytes, Placement::plain);
    if (!buffer.ok()) return buffer.message();
    if (const Status copied = (*device)->copy_in((*buffer)->data(), y.data(), bytes); !copied.ok())
      return copied.message();
    Tolerance tolerance = tolerance_for(problem_, 1);
    const auto rows = (*checker)->compare((*buffer)->data(), problem_.n, tolerance);
    if (!rows.ok()) return rows.message();
    CheckReportBuilder of_device(problem_, tolerance);
    for (std::size_t row = 0; row < rows->size(); ++row)
      of_device.add(static_cast<std::int64_t>(row), (*rows)[row]);
    ReferenceOptions options;
    options.any_numbers = true;
    const Reference reference = *compute_reference(problem_, host_, options);
    const auto* const first = reinterpret_cast<const std::byte*>(y.data());
    const CheckReport of_host = check_output(problem_, reference, {first, bytes}, problem_.n, tolerance);
    if (of_device.report().right == is_right && of_host.right == is_right) return {};
    return "device: \"" + of_device.report().reason + "\", host: \"" + of_host.reason + "\"";
  }

  Problem problem_;
  HostOperands host_;
};

TEST_F(HipOutputChecker, NanIsDueWhereTheOperandsHaveIt) {
  x({2, 5, nan});
  EXPECT_EQ(disagreement({}, true), "");
  EXPECT_EQ(disagreement({{2, 7, 1}}, false), "");
  EXPECT_EQ(disagreement({{2, 7, infinity}}, false), "");
  EXPECT_EQ(disagreement({{3, 7, nan}}, false), "");
  EXPECT_EQ(disagreement({{3, 7, 1000}}, false), "");
}

TEST_F(HipOutputChecker, InfinitiesHaveTheirSign) {
  x({2, 5, infinity});
  w({7, 5, 0});
  w({8, 5, -1});
  EXPECT_EQ(disagreement({}, true), "");
  EXPECT_EQ(disagreement({{2, 7, infinity}}, false), "");
  EXPECT_EQ(disagreement({{2, 8, infinity}}, false), "");
  EXPECT_EQ(disagreement({{2, 8, nan}}, false), "");
  EXPECT_EQ(disagreement({{2, 8, -1}}, false), "");
}

TEST_F(HipOutputChecker, SumsThatPassFloat32AreWhatSomeOrderGives) {
  for (std::int64_t k = 0; k < 8; ++k) {
    x({0, k, k % 2 == 0 ? 1e38F : -1e38F});
    w({8, k, (k < 4) == (k % 2 == 0) ? 2.0F : -2.0F});
  }
  EXPECT_EQ(disagreement({}, true), "");
  EXPECT_EQ(disagreement({{0, 8, infinity}}, true), "");
  EXPECT_EQ(disagreement({{0, 8, -infinity}}, true), "");
  EXPECT_EQ(disagreement({{0, 8, nan}}, true), "");
  EXPECT_EQ(disagreement({{3, 8, nan}}, false), "");
}

}  // namespace
}  // namespace gemmtune::hip_output_checker_test
