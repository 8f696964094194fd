// The cost model's shape: more waste is never faster, and each term is what its formula says.
#include "candidates/cost_model.h"

#include <gtest/gtest.h>

namespace gemmtune {
namespace {

MachineRates machine() {
  return {.units = 4,
          .flops_per_microsecond = 1000,
          .memory_bytes_per_microsecond = 100,
          .shared_bytes_per_microsecond = 250,
          .cache_bytes_per_microsecond = 500,
          .start_microseconds = 2};
}

KernelWork work() {
  return {.tiles = 8, .tiles_at_once = 4, .flops = 80'000, .efficiency = 0.5, .memory_bytes = 1000};
}

TEST(CostModel, ComputesARoofline) {
  // 80 000 / (4 · 1000 · 0.5) = 40 µs of arithmetic, 1000 / 250 = 4 µs of memory, 2 µs of a start.
  EXPECT_DOUBLE_EQ(predicted_microseconds(work(), machine()), 42);
  KernelWork bound_by_memory = work();
  bound_by_memory.memory_bytes = 25'000;
  EXPECT_DOUBLE_EQ(predicted_microseconds(bound_by_memory, machine()), 102);
}

TEST(CostModel, ATailWaveCostsAWholeOne) {
  EXPECT_EQ(waves(8, 4), 2);
  EXPECT_EQ(waves(9, 4), 3);
  EXPECT_EQ(waves(0, 0), 1);
  KernelWork nine = work();
  nine.tiles = 9;
  nine.flops *= 9.0 / 8;
  EXPECT_DOUBLE_EQ(predicted_microseconds(nine, machine()), 2 + 60) << "as twelve tiles";
}

TEST(CostModel, FewTilesLeaveUnitsIdleAndMemoryUndrawn) {
  KernelWork two = work();
  two.tiles = 2;
  EXPECT_DOUBLE_EQ(predicted_microseconds(two, machine()), 2 + 80);
  two.memory_bytes = 40'000;
  EXPECT_DOUBLE_EQ(predicted_microseconds(two, machine()), 2 + 200) << "two units draw 200 a microsecond";
}

TEST(CostModel, MoreWasteIsSlower) {
  const double base = predicted_microseconds(work(), machine());
  const auto worse = [&](auto change) {
    KernelWork changed = work();
    change(changed);
    return predicted_microseconds(changed, machine()) - base;
  };
  EXPECT_GT(worse([](KernelWork& w) { w.flops *= 1.1; }), 0) << "padding";
  EXPECT_GT(worse([](KernelWork& w) { w.efficiency *= 0.9; }), 0);
  EXPECT_GT(worse([](KernelWork& w) { w.cache_bytes += 1000; }), 0) << "packing, another pass over the sums";
  EXPECT_GT(worse([](KernelWork& w) { w.tail_microseconds += 1; }), 0) << "sums of splits";
  EXPECT_GT(worse([](KernelWork& w) { w.tiles_at_once = 3; }), 0);
  EXPECT_GT(worse([](KernelWork& w) { w.memory_bytes = 50'000; }), 0);
  EXPECT_EQ(worse([](KernelWork& w) { w.memory_bytes += 10; }), 0) << "hidden behind the arithmetic";
}

}  // namespace
}  // namespace gemmtune
