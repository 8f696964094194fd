// Conditions of errata, and what an erratum covers.
#include "candidates/erratum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::map<std::string, std::int64_t, std::less<>> values{
    {"k", 11528}, {"sk", 9}, {"m", 8}, {"zero", 0}, {"huge", std::int64_t{1} << 62}};

std::optional<std::int64_t> value_of(const std::string& text) {
  const auto expression = IntegerExpression::parse(text);
  EXPECT_TRUE(expression.ok()) << expression.message();
  if (!expression.ok()) return std::nullopt;
  return expression->evaluate([](std::string_view name) -> std::optional<std::int64_t> {
    const auto found = values.find(name);
    return found == values.end() ? std::nullopt : std::optional(found->second);
  });
}

TEST(IntegerExpression, CalculatesWithThePrecedenceOfCpp) {
  EXPECT_EQ(value_of("1 + 2 * 3"), 7);
  EXPECT_EQ(value_of("(1 + 2) * 3"), 9);
  EXPECT_EQ(value_of("7 - 2 - 1"), 4);
  EXPECT_EQ(value_of("k / sk"), 1280);
  EXPECT_EQ(value_of("k % sk"), 8);
  EXPECT_EQ(value_of("k / sk % 64"), 0);
  EXPECT_EQ(value_of("m < 8"), 0);
  EXPECT_EQ(value_of("m <= 8 and m >= 8 and m == 8 and not (m != 8)"), 1);
  EXPECT_EQ(value_of("m > 8 or k == 11528 and sk == 9"), 1);
  EXPECT_EQ(value_of("not m"), 0);
  EXPECT_EQ(value_of("not zero"), 1);
}

TEST(IntegerExpression, HasNoValueWhereCppHasNone) {
  for (const char* text : {"k / zero", "k % zero", "huge + huge", "huge * 4", "unknown", "unknown and 1"})
    EXPECT_EQ(value_of(text), std::nullopt) << text;
  EXPECT_EQ(value_of("zero != 0 and k / zero == 1"), 0) << "the right side is not evaluated";
  EXPECT_EQ(value_of("zero == 0 or k / zero == 1"), 1);
}

TEST(IntegerExpression, NamesItsNamesOnce) {
  EXPECT_THAT(IntegerExpression::parse("sk > 1 and k % sk == 0 and android == 1")->names(),
              ElementsAre("sk", "k", "android"));
}

TEST(IntegerExpression, RefusesWithThePosition) {
  const auto message = [](const std::string& text) { return IntegerExpression::parse(text).message(); };
  EXPECT_THAT(message(""), HasSubstr("character 1: expected a number, a name or '('"));
  EXPECT_THAT(message("m >"), HasSubstr("character 4: expected a number"));
  EXPECT_THAT(message("m > 1)"), HasSubstr("character 6: expected an operator or the end"));
  EXPECT_THAT(message("(m > 1"), HasSubstr("expected ')'"));
  EXPECT_THAT(message("m = 1"), HasSubstr("character 3: expected an operator"));
  EXPECT_THAT(message("m && 1"), HasSubstr("character 3"));
  EXPECT_THAT(message("m > 12x"), HasSubstr("character 5: expected a number"));
  EXPECT_THAT(message("m > 99999999999999999999"), HasSubstr("character 5: expected a number"));
  EXPECT_THAT(message(std::string(100, '(')), HasSubstr("at most 64 levels"));
}

TEST(IntegerExpression, ItsLengthIsLimited) {
  std::string sum = "1";
  while (sum.size() + 2 <= IntegerExpression::max_characters) sum += "+1";
  EXPECT_EQ(value_of(sum), static_cast<std::int64_t>(sum.size() / 2 + 1));
  std::string endless = "k == 1";
  for (int i = 0; i < 500'000; ++i) endless += " or k == 1";
  const Status refused = IntegerExpression::parse(endless).status();
  EXPECT_EQ(refused.message(),
            "'k == 1 or k == 1 or k == 1 or k == 1 or …' has 5000006 characters, expected at most 1024");
}

Erratum tail() {
  Erratum erratum;
  erratum.family = "cublaslt";
  erratum.operations = {Operation::a16w16};
  erratum.types = {"bf16", "f16"};
  erratum.parameters = {"algo", "sk"};
  erratum.condition =
      *IntegerExpression::parse("algo == 66 and sk >= 2 and k % sk != 0 and (k / sk) % 64 == 0");
  return erratum;
}

Candidate algorithm(int algo, int splits) {
  Candidate candidate{"cublaslt", 1, {}};
  candidate.config.set("algo", std::int64_t{algo});
  if (splits > 0) candidate.config.set("sk", std::int64_t{splits});
  return candidate;
}

// The sizes that were verified with cuBLASLt 13.1: docs/lab/cublaslt_split_k.md.
TEST(Erratum, HoldsForTheSizesThatWereWrongAndForNoOther) {
  struct Case {
    std::int64_t k;
    int splits;
    bool wrong;
  };
  for (const Case& one : {Case{11528, 9, true},
                          {25608, 20, true},
                          {11536, 9, false},
                          {11544, 9, false},
                          {11560, 9, false},
                          {7688, 6, false},
                          {6152, 4, false},
                          {4104, 3, false},
                          {11520, 9, false},
                          {11528, 1, false},
                          {11528, 0, false}}) {
    Problem problem;
    problem.m = 8;
    problem.n = 16;
    problem.k = one.k;
    EXPECT_EQ(holds(tail(), "sm_90", problem, algorithm(66, one.splits)), one.wrong)
        << one.k << " sk" << one.splits;
    EXPECT_FALSE(holds(tail(), "sm_90", problem, algorithm(21, one.splits))) << "another algorithm";
  }
}

TEST(Erratum, HoldsForItsFamilyOperationsAndTypesOnly) {
  Problem problem;
  problem.m = 8;
  problem.n = 16;
  problem.k = 11528;
  EXPECT_TRUE(holds(tail(), "sm_90", problem, algorithm(66, 9)));
  Candidate other = algorithm(66, 9);
  other.family = "skinny";
  EXPECT_FALSE(holds(tail(), "sm_90", problem, other));
  problem.x_type = problem.w_type = DataType::f32;
  EXPECT_FALSE(holds(tail(), "sm_90", problem, algorithm(66, 9)));
  problem = default_problem(Operation::batched_bf16);
  problem.m = 8;
  problem.n = 16;
  problem.k = 11528;
  EXPECT_FALSE(holds(tail(), "sm_90", problem, algorithm(66, 9)));
}

TEST(Erratum, Fp8IsTheDevices) {
  Erratum erratum = tail();
  erratum.types = {"fp8"};
  erratum.operations.clear();
  Problem problem = default_problem(Operation::a8w8);
  problem.m = 8;
  problem.n = 16;
  problem.k = 11528;
  for (const auto& [architecture, type] :
       {std::pair{"sm_90", DataType::f8_e4m3fn}, std::pair{"gfx942", DataType::f8_e4m3fnuz},
        std::pair{"gfx950", DataType::f8_e4m3fn}}) {
    for (const DataType x : {DataType::f8_e4m3fn, DataType::f8_e4m3fnuz}) {
      problem.x_type = problem.w_type = x;
      EXPECT_EQ(holds(erratum, architecture, problem, algorithm(66, 9)), x == type) << architecture;
    }
  }
}

TEST(Erratum, CoversVersionsAsFarAsTheyAreWritten) {
  Erratum erratum;
  EXPECT_TRUE(covers_version(erratum, "")) << "no limits";
  erratum.first_version = "12.9";
  erratum.last_version = "13.1";
  for (const char* inside : {"12.9", "12.9.0", "12.10", "13.0.7", "13.1", "13.1.99"})
    EXPECT_TRUE(covers_version(erratum, inside)) << inside;
  for (const char* outside : {"12.8.99", "13.2", "13.10", "14", "", "unknown", "13.x"})
    EXPECT_FALSE(covers_version(erratum, outside)) << outside;
  erratum.last_version.clear();
  EXPECT_TRUE(covers_version(erratum, "99.0"));
}

TEST(Erratum, DoesNotCoverLinesFromTheirRepairOn) {
  Erratum erratum;
  erratum.first_version = "12.8";
  erratum.last_version = "13.1";
  erratum.repaired = {"12.9.2", "13.1.1"};
  for (const char* wrong : {"12.8.4", "12.9", "12.9.0", "12.9.1", "13.0.2", "13.1", "13.1.0"})
    EXPECT_TRUE(covers_version(erratum, wrong)) << wrong;
  for (const char* right : {"12.9.2", "12.9.3", "12.9.10", "12.9.2.10", "13.1.1", "13.1.2", "13.2.0"})
    EXPECT_FALSE(covers_version(erratum, right)) << right;
}

}  // namespace
}  // namespace gemmtune
