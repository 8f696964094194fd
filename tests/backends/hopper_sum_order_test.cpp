// The order of sums that Hopper's kernels promise: which parts k has, and which kernels have the same ones.
#include <gtest/gtest.h>

#include "backends/cuda/families/hopper.h"
#include "support/dense_problem.h"

namespace gemmtune::cuda {
namespace {

TEST(HopperSumOrder, SplitsEndWhereTheKernelsDivideK) {
  EXPECT_EQ(ends_of_splits(64, 64, 1, 1), "64");
  EXPECT_EQ(ends_of_splits(64, 64, 1, 4), "16, 32, 48, 64");
  EXPECT_EQ(ends_of_splits(64, 64, 1, 3), "22, 43, 64");  // the first split has the stage that is left over
  EXPECT_EQ(ends_of_splits(64, 32, 2, 3), "22, 44, 64");
}

TEST(HopperSumOrder, AtomsPastTheEndOfKAreNoPartOfIt) {
  EXPECT_EQ(ends_of_splits(41, 21, 2, 1), "41");
  EXPECT_EQ(ends_of_splits(5, 3, 2, 3), "2, 4, 5");
}

TEST(HopperSumOrder, StagesOfOneAndTwoAtomsAreOneOrder) {
  const Problem problem = dense(16, 512, 2600);  // 40 5/8 atoms
  EXPECT_EQ(hopper_sum_order(problem, 41, 1, 1, 0), hopper_sum_order(problem, 21, 2, 1, 0));
  EXPECT_NE(hopper_sum_order(problem, 41, 1, 2, 0), hopper_sum_order(problem, 21, 2, 2, 0));
  EXPECT_NE(hopper_sum_order(problem, 41, 1, 2, 0), hopper_sum_order(problem, 41, 1, 1, 0));
}

TEST(HopperSumOrder, OfFp8AnAtomPastTheEndRoundsOnceMore) {
  const Problem problem = quantized(Operation::a8w8, 16, 512, 5200, DataType::f8_e4m3fn);
  EXPECT_NE(hopper_sum_order(problem, 41, 1, 1, 0), hopper_sum_order(problem, 21, 2, 1, 0));
  EXPECT_EQ(hopper_sum_order(problem, 41, 1, 1, 1), hopper_sum_order(problem, 21, 2, 1, 2));
  EXPECT_NE(hopper_sum_order(problem, 41, 1, 1, 0), hopper_sum_order(problem, 41, 1, 1, 1));
}

}  // namespace
}  // namespace gemmtune::cuda
