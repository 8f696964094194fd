#include "base/number_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "base/fields.h"

namespace gemmtune {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WholeNumber, IsWholeFiniteAndInRange) {
  EXPECT_EQ(*whole_number("--tp", "8", 1, 64), 8);
  EXPECT_EQ(*whole_number("--tp", "1", 1, 64), 1);
  EXPECT_EQ(*whole_number("--tp", "64", 1, 64), 64);
  for (const char* text :
       {"", "abc", "0", "65", "-1", "1.5", "4294967297", "99999999999999999999", "inf", "nan", "8x", "0x8"}) {
    const auto value = whole_number("--tp", text, 1, 64);
    EXPECT_EQ(value.code(), StatusCode::invalid_argument) << text;
    EXPECT_THAT(value.message(), AllOf(HasSubstr("--tp " + std::string(text)), HasSubstr("from 1 to 64")))
        << text;
  }
}

TEST(FiniteNumber, IsFiniteAndInRange) {
  EXPECT_EQ(*finite_number("--errRatio", "0.05", 0, 1), 0.05);
  EXPECT_EQ(*finite_number("--errRatio", "1e-3", 0, 1), 1e-3);
  for (const char* text : {"", "nan", "NaN", "inf", "-inf", "1.01", "-0.1", "5%"}) {
    const auto value = finite_number("--errRatio", text, 0, 1);
    EXPECT_EQ(value.code(), StatusCode::invalid_argument) << text;
    EXPECT_THAT(value.message(), HasSubstr("--errRatio " + std::string(text))) << text;
  }
  constexpr double no_limit = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(finite_number("--budget", "inf", 0, no_limit).ok());
}

TEST(NumberVariable, IsCheckedWhereItIsUsed) {
  NumberVariable variable{"GEMMTUNE_NUM_THREADS"};
  EXPECT_EQ(*variable.read(0, 8), std::nullopt);
  variable.text = "4";
  EXPECT_EQ(*variable.read(0, 8), 4);
  variable.text = "abc";
  EXPECT_THAT(variable.read(0, 8).message(),
              AllOf(HasSubstr("GEMMTUNE_NUM_THREADS abc"), HasSubstr("from 0 to 8")));
}

struct Listed {
  int first = 1;
  std::function<void()> call;
  std::string second = "x";
  int unwritten_third = 3;
};
GEMMTUNE_FIELDS(Listed, first, call, second, unwritten_third);

TEST(Fields, NamesBelongToTheirMembers) {
  std::vector<std::string> names;
  const Listed object;
  const auto visit = [&](std::string_view name, const auto& member) {
    names.emplace_back(name);
    if constexpr (std::is_same_v<decltype(member), const int&>) {
      EXPECT_EQ(member, 1);
    }
  };
  visit_fields(object, visit);
  EXPECT_THAT(names, ElementsAre("first", "second"));
}

}  // namespace
}  // namespace gemmtune
