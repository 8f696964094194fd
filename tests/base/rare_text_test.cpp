#include "base/rare_text.h"

#include <gtest/gtest.h>

#include <utility>

namespace gemmtune {
namespace {

TEST(RareText, IsAValue) {
  RareText text;
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(text, RareText());
  text = "zipf";
  RareText copy = text;
  text = "uniform";
  EXPECT_EQ(copy, "zipf");
  copy = text;
  EXPECT_EQ(copy, text);
  text = "";
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(text.view(), "");
  EXPECT_NE(copy, text);
  const RareText moved = std::move(copy);
  EXPECT_EQ(moved, "uniform");
}

}  // namespace
}  // namespace gemmtune
