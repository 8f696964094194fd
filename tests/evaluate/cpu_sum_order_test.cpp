// The order of sums that families of CPUs promise: kernels of one order are of one bit class, at every M, on this machine.
#include <fmt/format.h>
#include <gtest/gtest.h>

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

namespace gemmtune::cpu_sum_order_test {
namespace {

constexpr std::size_t drawn_kernels = 12;  // of a family at one M

std::unique_ptr<Device> open_cpu() {
  auto device = open_device("cpu", {});
  EXPECT_TRUE(device.ok()) << device.message();
  return device.ok() ? std::move(*device) : nullptr;
}

/// Kernels of every family that promises an order, drawn the same way each time.
std::vector<std::pair<Candidate, std::string>> promising_kernels(const Device& device,
                                                                 const Problem& problem) {
  std::vector<std::pair<Candidate, std::string>> kernels;
  for (const KernelFamily* const family : device.families()) {
    if (!family->accepts(problem).ok()) continue;
    std::vector<Config> configs = family->space(problem).enumerate();
    Random random(7);
    shuffle(configs, random);
    if (configs.size() > drawn_kernels) configs.resize(drawn_kernels);
    configs.push_back(family->default_config(problem));
    for (const Config& config : configs) {
      std::string order = family->sum_order(problem, config);
      if (!order.empty())
        kernels.push_back(
            {Candidate{std::string(family->name()), family->revision(), config}, std::move(order)});
    }
  }
  return kernels;
}

class SumOrder : public ::testing::TestWithParam<std::pair<DataType, WeightLayout>> {};

TEST_P(SumOrder, KernelsOfOneOrderAreOfOneClass) {
  const std::unique_ptr<Device> device = open_cpu();
  ASSERT_NE(device, nullptr);
  const auto [type, layout] = GetParam();
  Problem problem = dense(1, 96, 1100, type, type);
  problem.weight_layout = layout;
  std::map<std::string, std::pair<std::string, std::string>> class_of_order;  // and its first kernel
  std::set<std::string> seen;
  for (const std::int64_t m : {1, 5, 33}) {
    problem.m = m;
    const auto kernels = promising_kernels(*device, problem);
    ASSERT_FALSE(kernels.empty()) << print(problem);
    std::vector<Candidate> candidates;
    for (const auto& [candidate, order] : kernels) candidates.push_back(candidate);
    auto finder = BitClassFinder::make(*device, problem, 1, device->info().cu_num);
    ASSERT_TRUE(finder.ok()) << finder.message();
    const std::vector<BitClass> classes = finder->classes_of(candidates, [](std::size_t) {});
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const std::string name = fmt::format("{} at M = {}", candidates[i].kernel_name(), m);
      ASSERT_FALSE(classes[i].id.empty()) << name << ": " << classes[i].reason;
      const auto& [id, first] =
          class_of_order.try_emplace(kernels[i].second, std::pair(classes[i].id, name)).first->second;
      EXPECT_EQ(classes[i].id, id) << name << " promises " << kernels[i].second << ", as " << first;
      seen.insert(classes[i].id);
    }
  }
  // One core splits nothing.
  if (device->info().cu_num > 1) {
    EXPECT_GT(seen.size(), 1U) << "the operands tell no orders apart";
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

}  // namespace
}  // namespace gemmtune::cpu_sum_order_test
