// The order of sums that families of CPUs promise: kernels of one order are of one bit class, at every M, on this machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "backends/backend.h"
#include "base/random.h"
#include "evaluate/in_process/bit_class_finder.h"
#include "support/dense_problem.h"
#include "support/operation_problems.h"

namespace gemmtune::cpu_sum_order_test {
namespace {

std::unique_ptr<Device> open_cpu() {
  auto device = open_device("cpu", {});
  EXPECT_TRUE(device.ok()) << device.message();
  return device.ok() ? std::move(*device) : nullptr;
}

struct PromisingKernel {
  Candidate candidate;
  std::string order;
};

/// Of every family that promises an order, at most `most` and the default one, drawn the same way each time.
std::vector<PromisingKernel> promising_kernels(const Device& device, const Problem& problem,
                                               std::size_t most) {
  std::vector<PromisingKernel> kernels;
  for (const KernelFamily* const family : device.families()) {
    if (!family->accepts(problem).ok()) continue;
    std::vector<Config> configs = family->space(problem).enumerate();
    std::erase_if(configs, [&](const Config& config) { return family->sum_order(problem, config).empty(); });
    Random random(7);
    shuffle(configs, random);
    if (configs.size() > most) configs.resize(most);
    configs.push_back(family->default_config(problem));
    for (const Config& config : configs) {
      std::string order = family->sum_order(problem, config);
      if (order.empty()) continue;
      kernels.push_back(
          {Candidate{std::string(family->name()), family->revision(), config}, std::move(order)});
    }
  }
  return kernels;
}

/// What kernels of a weight were seen to be.
struct Seen {
  std::set<std::string> classes;
  std::set<std::string> families;
};

/// Finds the bit class of promising kernels of the problem at each M of `rows`; those of one order are of one class.
Seen check_promises(Device& device, Problem problem, const std::vector<std::int64_t>& rows,
                    std::size_t most) {
  Seen seen;
  std::map<std::string, std::pair<std::string, std::string>> class_of_order;  // and its first kernel
  for (const std::int64_t m : rows) {
    problem.m = m;
    const auto kernels = promising_kernels(device, problem, most);
    if (kernels.empty()) continue;
    std::vector<Candidate> candidates;
    for (const PromisingKernel& kernel : kernels) candidates.push_back(kernel.candidate);
    auto finder = BitClassFinder::make(device, problem, 1, device.info().cu_num);
    EXPECT_TRUE(finder.ok()) << finder.message();
    if (!finder.ok()) return seen;
    const std::vector<BitClass> classes = finder->classes_of(candidates, [](std::size_t) {});
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const std::string name = fmt::format("{} of {}", candidates[i].kernel_name(), print(problem));
      EXPECT_FALSE(classes[i].id.empty()) << name << ": " << classes[i].reason;
      const auto& [id, first] =
          class_of_order.try_emplace(kernels[i].order, std::pair(classes[i].id, name)).first->second;
      EXPECT_EQ(classes[i].id, id) << name << " promises " << kernels[i].order << ", as " << first;
      seen.classes.insert(classes[i].id);
      seen.families.insert(candidates[i].family);
    }
  }
  return seen;
}

class SumOrder : public ::testing::TestWithParam<std::pair<DataType, WeightLayout>> {};

TEST_P(SumOrder, KernelsForFewAndForManyRowsShareOrders) {
  const std::unique_ptr<Device> device = open_cpu();
  ASSERT_NE(device, nullptr);
  const auto [type, layout] = GetParam();
  Problem problem = dense(1, 90, 1100, type, type);
  problem.weight_layout = layout;
  const Seen seen = check_promises(*device, problem, {1, 5, 33}, 16);
  EXPECT_TRUE(seen.families.contains("skinny"));
  EXPECT_TRUE(seen.families.contains("tiled"));
  // One core splits nothing.
  if (device->info().cu_num > 1) {
    EXPECT_GT(seen.classes.size(), 1U) << "the operands tell no orders apart";
  }
}

INSTANTIATE_TEST_SUITE_P(, SumOrder,
                         ::testing::Values(std::pair(DataType::bf16, WeightLayout::plain),
                                           std::pair(DataType::bf16, WeightLayout::panel16),
                                           std::pair(DataType::f16, WeightLayout::plain),
                                           std::pair(DataType::f32, WeightLayout::plain),
                                           std::pair(DataType::f32, WeightLayout::panel16)),
                         [](const auto& one) {
                           return std::string(to_string(one.param.first)) +
                                  (one.param.second == WeightLayout::plain ? "Plain" : "Packed");
                         });

/// Every operation with each of its types of operands, by the operation of a plain weight.
std::map<std::string, std::vector<Problem>> problems_by_operation() {
  std::map<std::string, std::vector<Problem>> all;
  const testing_problems::Shape shape{1, 48, 300};
  for (const Problem& problem : testing_problems::dense_problems(shape))
    all[std::string(to_string(OperationForm(problem.operation, false)))].push_back(problem);
  for (const Problem& problem : testing_problems::mixtures(shape))
    all[std::string(to_string(OperationForm(problem.operation, false)))].push_back(problem);
  return all;
}

std::vector<std::string> operations() {
  std::vector<std::string> names;
  for (const auto& [name, problems] : problems_by_operation()) names.push_back(name);
  return names;
}

class OperationSumOrder : public ::testing::TestWithParam<std::string> {};

TEST_P(OperationSumOrder, KernelsOfOneOrderAreOfOneClass) {
  const std::unique_ptr<Device> device = open_cpu();
  ASSERT_NE(device, nullptr);
  const std::vector<Problem> problems = problems_by_operation().at(GetParam());
  for (const Problem& plain : problems)
    for (const WeightLayout layout : {WeightLayout::plain, WeightLayout::panel16}) {
      Problem problem = plain;
      if (!testing_problems::in_layout(problem, layout)) continue;
      if (is_mixture(problem) && layout != WeightLayout::plain) continue;
      const Seen seen = check_promises(*device, problem, {1, 20}, 3);
      // Rows of x with powers of two of the whole range: kernels that multiply them as they are promise nothing.
      if (operand_shapes(problem).x.scale.type == ScaleType::e8m0) continue;
      EXPECT_FALSE(seen.classes.empty()) << print(problem) << ": no kernel promises an order";
    }
}

INSTANTIATE_TEST_SUITE_P(, OperationSumOrder, ::testing::ValuesIn(operations()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace gemmtune::cpu_sum_order_test
