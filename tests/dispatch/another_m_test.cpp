// A row of a bit class at another M: its first run is compared on the last rows of one block of columns, and which block depends on M.
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "backends/device_request.h"
#include "dispatch/untuned_guard.h"
#include "problem/operands.h"
#include "support/elements.h"
#include "support/operands_on_host.h"
#include "support/operation_problems.h"
#include "verify/inputs.h"

namespace gemmtune {
namespace {

constexpr std::int64_t columns = 328;  // three blocks, the last one of 72

/// A right kernel that then spoils one column of y's last row; -1: none.
class Spoiling : public Kernel {
 public:
  Spoiling(const Kernel& kernel, const Problem& problem, std::int64_t column)
      : kernel_(kernel), problem_(problem), column_(column) {}
  std::size_t workspace_bytes() const override { return kernel_.workspace_bytes(); }
  WeightLayout weight_layout() const override { return kernel_.weight_layout(); }
  Status run(const Operands& operands, void* workspace, Stream stream) const override {
    const Status status = kernel_.run(operands, workspace, stream);
    if (column_ >= 0)
      testing::store(problem_.y_type, operands.y, (problem_.m - 1) * operands.ldy + column_, 30000);
    return status;
  }

 private:
  const Kernel& kernel_;
  Problem problem_;
  std::int64_t column_;
};

class AnotherM : public ::testing::Test {
 protected:
  AnotherM() {
    DeviceRequest request;
    request.threads = 1;
    auto opened = open_device("cpu", request);
    EXPECT_TRUE(opened.ok()) << opened.message();
    if (opened.ok()) device_ = std::move(*opened);
  }

  /// What the guard says of the first kernel of a plain weight; nothing is run if there is none.
  Status guarded(const Problem& problem, std::int64_t spoiled) {
    for (const KernelFamily* family : device_->families()) {
      if (!family->accepts(problem).ok()) continue;
      const Candidate candidate{std::string(family->name()), family->revision(),
                                family->default_config(problem)};
      const auto kernel = device_->build(candidate, problem);
      if (!kernel.ok() || (*kernel)->weight_layout() != WeightLayout::plain) continue;
      ++kernels_;
      return run(candidate, Spoiling(**kernel, problem, spoiled), problem);
    }
    return {};
  }
  int kernels() const { return kernels_; }

 private:
  Status run(const Candidate& candidate, const Kernel& kernel, const Problem& problem) {
    const HostOperands host = *make_inputs(problem, 3);
    std::vector<std::byte> y(static_cast<std::size_t>(operand_shapes(problem).y.bytes()));
    const auto workspace = device_->allocate(kernel.workspace_bytes() + 64, Placement::plain);
    EXPECT_TRUE(workspace.ok());
    const Operands operands = testing::operands_on_host(problem, host, y.data());
    UntunedGuard guard(*device_, problem, candidate, UntunedGuard::WrongResult::is_an_error,
                       UntunedGuard::Compared::one_block);
    return guard.run(kernel, operands, (*workspace)->data(), {});
  }

  std::unique_ptr<Device> device_;
  int kernels_ = 0;
};

TEST_F(AnotherM, EveryOperationsBlockHasItsOwnScalesAndBias) {
  for (const std::int64_t m : {1, 2, 201}) {
    std::vector<Problem> problems = testing_problems::dense_problems({m, columns, 256});
    for (const Problem& problem : testing_problems::weight_format_problems({m, columns, 256}))
      problems.push_back(problem);
    for (Problem& problem : problems) {
      problem.bias = problem.bias || problem.operation == Operation::a16w16;
      const Status status = guarded(problem, -1);
      EXPECT_TRUE(status.ok()) << print(problem) << ": " << status.message();
    }
  }
  EXPECT_GT(kernels(), 60);
}

TEST_F(AnotherM, EachColumnIsInTheBlockOfSomeM) {
  for (const std::int64_t column : {std::int64_t{0}, std::int64_t{200}, columns - 1}) {
    int found = 0;
    for (std::int64_t m = 1; m <= 6; ++m) {
      Problem problem = default_problem(Operation::a16w16);
      problem.m = m;
      problem.n = columns;
      problem.k = 256;
      found += guarded(problem, column).ok() ? 0 : 1;
    }
    EXPECT_EQ(found, 2) << column;
  }
}

}  // namespace
}  // namespace gemmtune
