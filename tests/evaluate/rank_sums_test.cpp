// Parts of a weight, as ranks of tensor parallelism have them, beside the whole one.
#include "evaluate/in_process/rank_sums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "resolve/candidate_list.h"
#include "support/dense_problem.h"
#include "support/fake_device.h"

namespace gemmtune::rank_sums_test {
namespace {

using ::testing::ElementsAre;
using testing::FakeDevice;
using ::testing::IsEmpty;
using ::testing::StartsWith;

TEST(RankSums, SegmentsThatAreAddedInPairsGiveTheWholesBits) {
  DeviceRequest request;
  request.text = "cpu";
  request.threads = 1;
  const auto device = open_device("cpu", request);
  ASSERT_TRUE(device.ok()) << device.message();
  const Problem problem = dense(17, 72, 1024, DataType::bf16, DataType::bf16, true);
  CandidateFilter filter;
  filter.tree = true;
  filter.libtypes = {"tiled", "skinny"};
  const CandidateList list = list_candidates(**device, problem, filter);
  ASSERT_FALSE(list.candidates.empty());
  for (const char* const family : {"tiled", "skinny"}) {
    const auto listed = std::ranges::find_if(
        list.candidates, [&](const ListedCandidate& one) { return one.candidate.family == family; });
    ASSERT_NE(listed, list.candidates.end()) << family;
    EXPECT_TRUE(adds_in_pairs(listed->candidate.config));
    const auto found = check_ranks(**device, problem, listed->candidate, 1, 1);
    ASSERT_TRUE(found.ok()) << found.message();
    EXPECT_EQ(found->difference, "");
    EXPECT_THAT(found->by_n, ElementsAre(2, 4, 8)) << family;
    EXPECT_THAT(found->by_k, ElementsAre(2, 4)) << family << ": K has four segments";
  }
}

TEST(RankSums, AChainThatPromisesATreeIsFound) {
  FakeDevice device;
  const Candidate chain = device.add({.name = "chain", .sum_order = "tree"});
  const auto found = check_ranks(device, dense(3, 16, 512), chain, 1, 1);
  ASSERT_TRUE(found.ok()) << found.message();
  EXPECT_THAT(found->difference, StartsWith("2 ranks by K: M = 3, row "));
  EXPECT_THAT(found->by_k, IsEmpty());
  EXPECT_THAT(found->by_n, ElementsAre(2, 4, 8));
}

}  // namespace
}  // namespace gemmtune::rank_sums_test
