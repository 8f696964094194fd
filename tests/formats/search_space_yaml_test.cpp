#include "formats/search_space/search_space_yaml.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune::search_space_yaml_test {
namespace {

using ::testing::HasSubstr;

TEST(SearchSpaceYaml, IsReadWithLines) {
  const auto read = parse_search_space("s.yaml",
                                       "# narrow\n"
                                       "tiled:\n"
                                       "  parameters:\n"
                                       "    mr: [8,\n"
                                       "         14]\n"
                                       "    split: mn\n"
                                       "  rules: {waste: off, lower isa: yes}\n"
                                       "skinny: {replace: true}\n");
  ASSERT_TRUE(read.ok()) << read.message();
  ASSERT_EQ(read->families.size(), 2U);
  const FamilySpace& tiled = *read->find("tiled");
  EXPECT_EQ(tiled.family.line, 2U);
  EXPECT_FALSE(tiled.replace);
  ASSERT_EQ(tiled.parameters.size(), 2U);
  EXPECT_EQ(tiled.parameters[0].key.text, "mr");
  ASSERT_EQ(tiled.parameters[0].values.size(), 2U);
  EXPECT_EQ(tiled.parameters[0].values[1].text, "14");
  EXPECT_EQ(tiled.parameters[0].values[1].line, 5U);
  ASSERT_EQ(tiled.parameters[1].values.size(), 1U);
  EXPECT_EQ(tiled.parameters[1].values[0].text, "mn");
  ASSERT_EQ(tiled.rules.size(), 2U);
  EXPECT_FALSE(tiled.rules[0].on);
  EXPECT_EQ(tiled.rules[1].name.text, "lower isa");
  EXPECT_TRUE(tiled.rules[1].on);
  EXPECT_TRUE(read->find("skinny")->replace);
  EXPECT_EQ(read->find("onednn"), nullptr);
  EXPECT_TRUE(parse_search_space("s.yaml", "")->families.empty());
}

TEST(SearchSpaceYaml, ErrorsNameFileLineAndWhatIsExpected) {
  const auto refused = [](const std::string& content) {
    const auto read = parse_search_space("s.yaml", content);
    return read.ok() ? "it was read" : read.message();
  };
  EXPECT_THAT(refused("\n- tiled\n"), HasSubstr("s.yaml:2: expected a map of families"));
  EXPECT_THAT(refused("tiled:\n  - mr\n"),
              HasSubstr("s.yaml:2: expected a map with parameters, rules or replace"));
  EXPECT_THAT(refused("tiled:\n  values: {}\n"),
              HasSubstr("s.yaml:2: 'values', expected parameters, rules or replace"));
  EXPECT_THAT(refused("tiled:\n  parameters: 3\n"),
              HasSubstr("s.yaml:2: expected a map of parameters with values"));
  EXPECT_THAT(refused("tiled:\n  parameters:\n    mr: []\n"),
              HasSubstr("s.yaml:3: parameter 'mr': expected a list of values"));
  EXPECT_THAT(refused("tiled:\n  parameters:\n    mr: [1, [2]]\n"), HasSubstr("s.yaml:3: parameter 'mr'"));
  EXPECT_THAT(refused("tiled:\n  rules:\n    waste: never\n"),
              HasSubstr("s.yaml:3: rule 'waste': value 'never', expected on or off"));
  EXPECT_THAT(refused("tiled: {replace: [1]}"), HasSubstr("s.yaml:1: replace: value '', expected on or off"));
  EXPECT_THAT(refused("a: {}\nb: {}\na: {}\n"), HasSubstr("s.yaml:3: family 'a' twice"));
  EXPECT_THAT(refused("a: {rules: {x: on,\n x: off}}"), HasSubstr("s.yaml:2: rule 'x' twice"));
  EXPECT_THAT(refused("a: [\n"), HasSubstr("s.yaml:2: no YAML"));
  EXPECT_THAT(refused("a: &x {}\nb: *x\n"), HasSubstr("s.yaml:1: an anchor or alias"));
  EXPECT_THAT(refused("a: {}\n---\nb: {}\n"), HasSubstr("s.yaml:2: a second document, expected one"));
  EXPECT_EQ(refused("---\na: {}\n...\n"), "it was read");
  EXPECT_THAT(read_search_space("/nowhere/s.yaml").message(), HasSubstr("/nowhere/s.yaml"));
}

}  // namespace
}  // namespace gemmtune::search_space_yaml_test
