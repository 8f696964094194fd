#include "formats/models/serving_sizes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune {
namespace {

using testing::Contains;
using testing::Each;
using testing::ElementsAre;
using testing::Le;
using testing::Not;

TEST(ServingSizes, VllmCapturesUpToTwiceTheSequences) {
  const ServingSizes sizes =
      serving_sizes({.server = Server::vllm, .sequences = 16, .batched_tokens = 100, .drafted = 0});
  EXPECT_THAT(sizes.tokens, ElementsAre(1, 2, 4, 8, 16, 24, 32, 64, 100));
  EXPECT_THAT(sizes.sequences, ElementsAre(1, 2, 4, 8, 16));
}

TEST(ServingSizes, VllmCapturesAtMost512AndLargeOnesBy16) {
  const ServingSizes sizes = serving_sizes({});
  EXPECT_THAT(sizes.tokens, Contains(248));
  EXPECT_THAT(sizes.tokens, Contains(256));
  EXPECT_THAT(sizes.tokens, Not(Contains(264)));
  EXPECT_THAT(sizes.tokens, Contains(272));
  EXPECT_THAT(sizes.tokens, Contains(512));
  EXPECT_THAT(sizes.tokens, Not(Contains(528)));
  EXPECT_THAT(sizes.tokens, Contains(1024));
  EXPECT_EQ(sizes.tokens.back(), 8192);
  EXPECT_THAT(sizes.sequences, Each(Le(256)));
  EXPECT_EQ(serving_sizes({.sequences = 1024}).sequences.back(), 512);  // the largest graph
}

TEST(ServingSizes, SpeculativeDecodingOfVllmRunsMultiplesOfItsTokens) {
  const ServingSizes sizes =
      serving_sizes({.server = Server::vllm, .sequences = 2, .batched_tokens = 12, .drafted = 2});
  EXPECT_THAT(sizes.tokens, ElementsAre(3, 6, 9, 12));  // 1, 2 → 3; 4 → 6; 8 → 9; at most 12
  EXPECT_THAT(sizes.sequences, ElementsAre(3, 6));
}

TEST(ServingSizes, SglangCapturesBatches) {
  const ServingSizes sizes =
      serving_sizes({.server = Server::sglang, .sequences = 24, .batched_tokens = 64, .drafted = 0});
  EXPECT_THAT(sizes.tokens, ElementsAre(1, 2, 4, 8, 12, 16, 24, 32, 64));
  const ServingSizes drafted =
      serving_sizes({.server = Server::sglang, .sequences = 4, .batched_tokens = 32, .drafted = 3});
  EXPECT_THAT(drafted.tokens, ElementsAre(4, 8, 12, 16, 32));
}

TEST(ServingSizes, Words) {
  EXPECT_EQ(parse_server("sglang"), Server::sglang);
  EXPECT_FALSE(parse_server("tgi"));
}

}  // namespace
}  // namespace gemmtune
