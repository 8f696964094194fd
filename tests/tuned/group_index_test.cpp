// Keys as words, and the flat table of a table's groups.
#include "tuned/group_index.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

namespace gemmtune {
namespace {

/// One change for each member of Problem that some operation's key may hold, and of those that none does.
const std::vector<std::function<void(Problem&)>>& changes() {
  static const std::vector<std::function<void(Problem&)>> all{
      [](Problem& p) { p.m += 1; },
      [](Problem& p) { p.n += 1; },
      [](Problem& p) { p.n += std::int64_t{1} << 32; },
      [](Problem& p) { p.k += 1; },
      [](Problem& p) { p.k += std::int64_t{1} << 32; },
      [](Problem& p) { p.batch += 1; },
      [](Problem& p) { p.batch += std::int64_t{1} << 32; },
      [](Problem& p) { p.x_type = DataType::f32; },
      [](Problem& p) { p.w_type = DataType::f32; },
      [](Problem& p) { p.y_type = DataType::f32; },
      [](Problem& p) { p.bias = !p.bias; },
      [](Problem& p) { p.scale_ab = !p.scale_ab; },
      [](Problem& p) { p.e8m0_scales = !p.e8m0_scales; },
      [](Problem& p) { p.weight_layout = is_packed(p) ? WeightLayout::plain : WeightLayout::any; },
      [](Problem& p) { p.weight_layout = WeightLayout::fragment64; },
      [](Problem& p) { p.x_order = Order::column_major; },
      [](Problem& p) { p.w_order = Order::column_major; },
      [](Problem& p) { p.alignment = 2; },
      [](Problem& p) { p.w_group = 64; },
      [](Problem& p) { p.zero_points = true; },
      [](Problem& p) { p.moe.experts += 1; },
      [](Problem& p) { p.moe.topk += 1; },
      [](Problem& p) { p.moe.shared_experts += 1; },
      [](Problem& p) { p.moe.activation = Activation::situv2; },
      [](Problem& p) { p.moe.quant_type = QuantType::per_1x32; },
      [](Problem& p) { p.moe.gated = !p.moe.gated; },
      [](Problem& p) { p.moe.doweight_stage1 = !p.moe.doweight_stage1; },
  };
  return all;
}

TEST(KeyWords, AreEqualWhereTheGroupsAre) {
  for (const OperationForm operation : all_operation_forms()) {
    Problem problem = default_problem(operation);
    problem.n = 64;
    problem.k = 128;
    for (std::size_t one = 0; one < changes().size(); ++one) {
      for (std::size_t other = 0; other < changes().size(); ++other) {
        Problem a = problem;
        Problem b = problem;
        changes()[one](a);
        changes()[other](b);
        EXPECT_EQ(key_words(2, a) == key_words(2, b), group_of(a) == group_of(b))
            << to_string(operation) << " changes " << one << " and " << other;
      }
    }
    EXPECT_NE(key_words(2, problem), key_words(3, problem));
    EXPECT_NE(key_words({{}, 2, group_of(problem), false}), key_words({{}, 2, group_of(problem), true}));
  }
}

TEST(KeyWords, ARowOfAMixtureAnswersWithBiasesAndWithout) {
  for (const OperationForm operation : all_operation_forms()) {
    if (!traits(operation.operation).bias) continue;
    const Problem without = default_problem(operation);
    Problem with = without;
    with.bias = true;
    EXPECT_EQ(same_key(without, with), !traits(operation.operation).key_switches) << to_string(operation);
  }
}

TEST(GroupIndex, FindsEachKeyByItsNumber) {
  constexpr int sizes = 50;
  constexpr int architectures = 20;  // more than are compared one by one
  std::vector<std::string> names;
  for (int name = 0; name < architectures; ++name) names.push_back("gfx" + std::to_string(name));
  const auto key_of = [&](int name, int size, std::string_view types) {
    GroupKey key;
    key.gfx = names[static_cast<std::size_t>(name)];
    key.group.n = key.group.k = 64 * (1 + size);
    key.unknown_types = types;
    return key;
  };
  GroupIndex index;
  EXPECT_EQ(index.find(index.flat(key_of(0, 0, ""))), GroupIndex::none);
  std::uint32_t number = 0;
  for (int name = 0; name < architectures; ++name) {
    for (int size = 0; size < sizes; ++size) {
      EXPECT_EQ(index.insert(key_of(name, size, "")), number);
      EXPECT_EQ(index.insert(key_of(name, size, "q_dtype_w=x")), number + 1);
      EXPECT_EQ(index.insert(key_of(name, size, "")), number) << "known";
      number += 2;
    }
  }
  EXPECT_EQ(index.size(), number);
  number = 0;
  for (int name = 0; name < architectures; ++name) {
    for (int size = 0; size < sizes; ++size) {
      ASSERT_EQ(index.find(index.flat(key_of(name, size, ""))), number);
      ASSERT_EQ(index.find(index.flat(key_of(name, size, "q_dtype_w=x"))), number + 1);
      number += 2;
    }
  }
  EXPECT_EQ(index.find(index.flat(key_of(0, sizes, ""))), GroupIndex::none);
  EXPECT_EQ(index.find(index.flat(key_of(0, 0, "q_dtype_w=y"))), GroupIndex::none);
  GroupKey elsewhere = key_of(0, 0, "");
  for (const std::string_view gfx : {"", "gfx", "gfx21", "gfx0 "}) {
    elsewhere.gfx = gfx;
    EXPECT_EQ(index.find(index.flat(elsewhere)), GroupIndex::none) << gfx;
  }
}

}  // namespace
}  // namespace gemmtune
