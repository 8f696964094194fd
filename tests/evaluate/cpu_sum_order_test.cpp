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
#include "evaluate/in_process/kernel_verifier.h"
#include "support/dense_problem.h"
#include "support/operation_problems.h"
#include "verify/inputs.h"

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

/// y of token 0 of a mixture, all of whose tokens go to the experts of that token.
std::vector<std::byte> first_of_crowd(Device& device, Problem problem, const Candidate& candidate,
                                      HostOperands operands, std::int64_t tokens) {
  const MatrixShape all = operand_shapes(problem).x;
  const auto cut = [&](auto& rows) {
    rows.resize(rows.size() / static_cast<std::size_t>(all.rows) * static_cast<std::size_t>(tokens));
  };
  cut(operands.x);
  if (all.scale.rows == all.rows) cut(operands.x_scale);
  problem.m = tokens;
  const auto slots = static_cast<std::size_t>(problem.moe.routed_topk());
  operands.topk_ids.resize(static_cast<std::size_t>(tokens) * slots);
  operands.topk_weights.resize(operands.topk_ids.size());
  for (std::size_t i = slots; i < operands.topk_ids.size(); ++i)
    operands.topk_ids[i] = operands.topk_ids[i % slots];
  const auto kernel = device.build(candidate, problem);
  EXPECT_TRUE(kernel.ok()) << kernel.message();
  auto placed = DeviceOperands::make(device, problem, Placement::plain);
  if (!kernel.ok() || !placed.ok() || !placed->fill(operands).ok()) return {};
  Operands given = placed->operands(WeightLayout::plain).value();
  const auto y =
      device.allocate(static_cast<std::size_t>(operand_shapes(problem).y.bytes()), Placement::plain);
  const auto workspace = device.allocate((*kernel)->workspace_bytes() + 1, Placement::plain);
  given.y = (*y)->data();
  given.ldy = problem.k;
  EXPECT_TRUE((*kernel)->run(given, (*workspace)->data(), {}).ok());
  const auto* const bytes = static_cast<const std::byte*>((*y)->data());
  return {bytes, bytes + bytes_of(problem.y_type, problem.k)};
}

/// Of kernels that promise, or of those that do not, how many give a token other bits in some crowd.
std::size_t moved_by_a_crowd(Device& device, const Problem& problem, bool promising) {
  constexpr std::size_t most = 24;
  const KernelFamily& family = *device.find_family("moe");
  std::vector<Config> configs = family.space(problem).enumerate();
  std::erase_if(configs,
                [&](const Config& config) { return family.sum_order(problem, config).empty() == promising; });
  Random random(7);
  shuffle(configs, random);
  if (configs.size() > most) configs.resize(most);
  const auto operands = make_inputs(problem, 1);
  EXPECT_TRUE(operands.ok()) << operands.message();
  std::size_t moved = 0;
  for (const Config& config : configs) {
    const Candidate candidate{std::string(family.name()), family.revision(), config};
    const auto alone = first_of_crowd(device, problem, candidate, *operands, 1);
    bool is_moved = false;
    for (const std::int64_t tokens : {2, 5, 8, 9, 16, 17, 33})
      is_moved = is_moved || first_of_crowd(device, problem, candidate, *operands, tokens) != alone;
    moved += is_moved ? 1 : 0;
    EXPECT_TRUE(!promising || !is_moved) << candidate.kernel_name() << " of " << print(problem);
  }
  return moved;
}

TEST(MixtureCrowds, ATokensBitsDoNotDependOnHowManyRowsItsExpertsHave) {
  const std::unique_ptr<Device> device = open_cpu();
  ASSERT_NE(device, nullptr);
  for (Problem problem : testing_problems::mixtures({33, 48, 300})) {
    if (!device->find_family("moe")->accepts(problem).ok() ||
        operand_shapes(problem).x.scale.type == ScaleType::e8m0)
      continue;
    problem.y_type = DataType::f32;
    EXPECT_EQ(moved_by_a_crowd(*device, problem, true), 0U);
  }
}

TEST(MixtureCrowds, KernelsThatAddLanesOfEachTilePromiseNothingForAReason) {
  const std::unique_ptr<Device> device = open_cpu();
  ASSERT_NE(device, nullptr);
  if (!device->info().gfx.starts_with("x86-avx")) GTEST_SKIP() << "their register tiles have one order";
  Problem problem =
      testing_problems::moe_problem(DataType::bf16, DataType::bf16, QuantType::none, {33, 48, 300});
  problem.y_type = DataType::f32;
  EXPECT_GT(moved_by_a_crowd(*device, problem, false), 0U);
}

}  // namespace
}  // namespace gemmtune::cpu_sum_order_test
