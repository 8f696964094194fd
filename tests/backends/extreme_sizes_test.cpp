// Legal problems of extreme sizes, of every operation, on every family of a CPU: what a family builds has a
// workspace that no product of sizes has wrapped. GEMMTUNE_SOAK=1 draws many more.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "problem/operands.h"
#include "support/operation_problems.h"

namespace gemmtune {
namespace {

constexpr std::int64_t extremes[] = {1,
                                     2,
                                     31,
                                     32,
                                     4095,
                                     65535,
                                     65536,
                                     1 << 20,
                                     (1 << 24) + 1,
                                     (1 << 29) - 1,
                                     1 << 29,
                                     (1 << 30) - 1,
                                     1 << 30,
                                     max_dimension - 31,
                                     max_dimension - 1,
                                     max_dimension};

int draws() { return std::getenv("GEMMTUNE_SOAK") != nullptr ? 300000 : 8000; }

std::int64_t drawn(Random& random) { return extremes[random.below(std::size(extremes))]; }

/// A problem of any operation, type and layout, whose sizes are extreme; not always a legal one.
Problem drawn_problem(Random& random) {
  static const std::vector<Problem> all = [] {
    auto list = testing_problems::dense_problems({3, 64, 64});
    const auto mixtures = testing_problems::mixtures({3, 64, 64});
    list.insert(list.end(), mixtures.begin(), mixtures.end());
    for (const DataType type : {DataType::bf16, DataType::f16, DataType::f32}) {
      list.push_back(default_problem(Operation::a16w16));
      list.back().x_type = list.back().w_type = list.back().y_type = type;
    }
    return list;
  }();
  Problem problem = all[random.below(all.size())];
  problem.m = drawn(random);
  problem.n = drawn(random);
  problem.k = drawn(random);
  if (traits(problem.operation).batched) problem.batch = drawn(random);
  if (is_mixture(problem)) {
    problem.moe.experts = static_cast<std::int32_t>(drawn(random));
    problem.moe.topk = static_cast<std::int32_t>(std::min<std::int64_t>(drawn(random), problem.moe.experts));
  }
  if (random.below(2) == 0) (void)testing_problems::in_layout(problem, WeightLayout::panel16);
  return problem;
}

/// The same a thousand times smaller in every size.
Problem much_smaller(Problem problem) {
  const auto shrink = [](std::int64_t size) {
    return size >= (1 << 15) ? size / 1024 / 32 * 32 : std::min<std::int64_t>(size, 32);
  };
  for (std::int64_t* size : {&problem.m, &problem.n, &problem.k, &problem.batch}) *size = shrink(*size);
  problem.moe.experts = static_cast<std::int32_t>(shrink(problem.moe.experts));
  problem.moe.topk =
      static_cast<std::int32_t>(std::min<std::int64_t>(shrink(problem.moe.topk), problem.moe.experts));
  return problem;
}

Result<std::unique_ptr<Kernel>> built(const KernelFamily& family, const Problem& problem) {
  if (const Status accepted = family.accepts(problem); !accepted.ok()) return accepted;
  return family.build(problem, family.default_config(problem));
}

class ExtremeSizes : public ::testing::Test {
 protected:
  void SetUp() override {
    DeviceRequest request;
    request.text = "cpu";
    request.threads = 2;
    auto opened = open_device("cpu", request);
    ASSERT_TRUE(opened.ok()) << opened.message();
    device_ = std::move(*opened);
  }
  std::unique_ptr<Device> device_;
};

TEST_F(ExtremeSizes, NoWorkspaceWraps) {
  Random random(7);
  int kernels = 0;
  int legal = 0;
  for (int i = 0; i < draws(); ++i) {
    const Problem problem = drawn_problem(random);
    if (!check(problem).ok()) continue;
    ++legal;
    for (const KernelFamily* family : device_->families()) {
      if (family->tie_rank() < 10) continue;  // a vendor's library: its own arithmetic
      const auto kernel = built(*family, problem);
      if (!kernel.ok()) {
        EXPECT_FALSE(kernel.message().empty());
        continue;
      }
      ++kernels;
      const std::size_t bytes = (*kernel)->workspace_bytes();
      EXPECT_LE(bytes, static_cast<std::size_t>(max_tensor_bytes))
          << family->name() << ": " << print(problem);
      const Problem smaller = much_smaller(problem);
      if (!check(smaller).ok()) continue;
      const auto other = built(*family, smaller);
      if (!other.ok()) continue;
      EXPECT_GE(bytes, (*other)->workspace_bytes() / 64)
          << family->name() << ": " << print(problem) << " has less than " << print(smaller);
    }
  }
  EXPECT_GT(legal, draws() / 10);
  EXPECT_GT(kernels, draws() / 10);
}

TEST_F(ExtremeSizes, NoPackedWeightWraps) {
  Random random(11);
  for (int i = 0; i < draws(); ++i) {
    const Problem problem = drawn_problem(random);
    if (!check(problem).ok()) continue;
    for (const WeightLayout layout : {WeightLayout::plain, WeightLayout::panel16, WeightLayout::aiter16x16}) {
      const auto bytes = device_->packed_bytes(problem, layout);
      if (!bytes.ok()) continue;
      EXPECT_GE(static_cast<std::int64_t>(*bytes), weight_bytes(problem) / (is_mixture(problem) ? 3 : 1))
          << print(problem) << " in " << to_string(layout);
      EXPECT_LE(*bytes, static_cast<std::size_t>(max_tensor_bytes));
    }
  }
}

/// It wrapped: 2^22 tokens with 2^22 experts each.
TEST_F(ExtremeSizes, TheReferenceRefusesAMixtureWithoutEnd) {
  Problem problem = testing_problems::mixtures({3, 64, 64}).front();
  problem.m = problem.n = 1 << 22;
  problem.k = 1;
  problem.moe.experts = problem.moe.topk = 1 << 22;
  ASSERT_TRUE(check(problem).ok()) << check(problem).message();
  const KernelFamily* reference = device_->find_family("reference");
  ASSERT_NE(reference, nullptr);
  const auto kernel = built(*reference, problem);
  ASSERT_FALSE(kernel.ok());
  EXPECT_EQ(kernel.code(), StatusCode::unsupported);
  EXPECT_NE(kernel.message().find("workspace"), std::string::npos) << kernel.message();
}

}  // namespace
}  // namespace gemmtune
