// Files of errata: what is read, and every mistake with its line.
#include "formats/errata/erratum_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

const std::string good_erratum = R"({
  "name": "lib-odd-k",
  "family": "lib",
  "first_version": "2.6",
  "architectures": ["x86-amx"],
  "operations": ["a16w16"],
  "types": ["bf16"],
  "parameters": ["sk"],
  "condition": "k % 2 == 1 and sk >= 2",
  "effect": "crash",
  "what": "it \"crashes\": {badly}",
  "found": "by hand",
  "repro": "gemmtune check -m 1"
}
)";

/// `good_erratum` with one text replaced.
std::string with(const std::string& from, const std::string& to) {
  std::string text = good_erratum;
  const auto at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

std::string message(const std::string& text) { return parse_erratum("e.json", text).message(); }

TEST(ErratumFile, ReadsEveryField) {
  const auto erratum = parse_erratum("e.json", good_erratum);
  ASSERT_TRUE(erratum.ok()) << erratum.message();
  EXPECT_EQ(erratum->name, "lib-odd-k");
  EXPECT_EQ(erratum->first_version, "2.6");
  EXPECT_EQ(erratum->last_version, "");
  EXPECT_TRUE(erratum->repaired.empty());
  EXPECT_EQ(erratum->operations.front(), OperationForm(Operation::a16w16));
  EXPECT_EQ(erratum->types.front(), "bf16");
  EXPECT_EQ(erratum->condition.text(), "k % 2 == 1 and sk >= 2");
  EXPECT_EQ(erratum->effect, ErratumEffect::crash);
  EXPECT_EQ(erratum->what, "it \"crashes\": {badly}");
}

TEST(ErratumFile, PrintsWhatItReads) {
  EXPECT_EQ(print_erratum(*parse_erratum("e.json", good_erratum)),
            print_erratum(*parse_erratum("e.json", print_erratum(*parse_erratum("e.json", good_erratum)))));
  EXPECT_THAT(print_erratum(*parse_erratum("e.json", good_erratum)),
              HasSubstr("\"condition\": \"k % 2 == 1 and"));
}

TEST(ErratumFile, ReadsAndPrintsRepairs) {
  const auto erratum =
      parse_erratum("e.json", with("\"2.6\",", "\"2.6\",\n  \"repaired\": [\"2.6.9\", \"2.7.1\"],"));
  ASSERT_TRUE(erratum.ok()) << erratum.message();
  EXPECT_THAT(erratum->repaired, ::testing::ElementsAre("2.6.9", "2.7.1"));
  EXPECT_EQ(parse_erratum("e.json", print_erratum(*erratum))->repaired, erratum->repaired);
}

TEST(ErratumFile, NamesTheLineOfAConditionWithoutAnEndAndOfANulByte) {
  std::string condition = "k == 1";
  for (int i = 0; i < 1000; ++i) condition += " or k == 1";
  EXPECT_THAT(
      message(with("k % 2 == 1 and sk >= 2", condition)),
      HasSubstr("e.json:9: condition: 'k == 1 or k == 1 or k == 1 or k == 1 or …' has 10006 characters"));
  EXPECT_THAT(message(good_erratum + std::string("\n\0{", 3)), HasSubstr("a NUL byte, expected JSON"));
  EXPECT_THAT(message(std::string("{\n\0}", 4)), HasSubstr("e.json:2: a NUL byte, expected JSON"));
}

TEST(ErratumFile, NamesTheLineOfEachMistake) {
  EXPECT_THAT(message(with("\"types\"", "\"type\"")),
              HasSubstr("e.json:7: field 'type' is unknown, expected name"));
  EXPECT_THAT(message(with("\"what\": ", "\"name\": \"b\", \"what\": ")),
              HasSubstr("e.json:11: field 'name' is there twice"));
  EXPECT_THAT(message(with("  \"effect\": \"crash\",\n", "")),
              HasSubstr("e.json:1: field 'effect' is missing"));
  EXPECT_THAT(message(with("\"crash\"", "\"hang\"")), HasSubstr("e.json:10: effect: expected \"wrong\" or"));
  EXPECT_THAT(message(with("\"2.6\"", "\"2.x\"")), HasSubstr("e.json:4: first_version: expected a version"));
  EXPECT_THAT(message(with("\"2.6\"", "2.6")), HasSubstr("e.json:4: first_version: expected a version"));
  EXPECT_THAT(message(with("\"2.6\",", "\"2.6\", \"repaired\": [\"2.y\"],")),
              HasSubstr("e.json:4: repaired: \"2.y\" is unknown, expected versions"));
  EXPECT_THAT(message(with("[\"bf16\"]", "[\"bf17\"]")), HasSubstr("e.json:7: types: \"bf17\" is unknown"));
  EXPECT_THAT(message(with("[\"bf16\"]", "\"bf16\"")), HasSubstr("e.json:7: types: expected a list"));
  EXPECT_THAT(message(with("k % 2 == 1", "k % 2 = 1")), HasSubstr("e.json:9: condition: 'k % 2 = 1 and"));
  EXPECT_THAT(message(with("k % 2 == 1", "kk % 2 == 1")),
              HasSubstr("e.json:9: condition: 'kk' is unknown, expected m, n, k"));
  EXPECT_THAT(message(with("\"lib\"", "\"\"")), HasSubstr("e.json:3: family: expected a text"));
  EXPECT_THAT(message(with("\"a16w16\"]", "\"a16w16\"")), HasSubstr("e.json:7: no JSON"));
  EXPECT_THAT(message("[]"), HasSubstr("e.json:1: expected a JSON object"));
}

}  // namespace
}  // namespace gemmtune
