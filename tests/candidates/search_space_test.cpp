#include "candidates/search_space.h"

#include <gtest/gtest.h>

namespace gemmtune {
namespace {

/// 3 x 2 x 2 points; a + b is never 4, a is below 3 unless its rule is off, c divides only where its rule is on.
Space family_space() {
  Space space;
  space.add(Parameter{"a", {"1", "2", "3"}, "1", ""});
  space.add(Parameter{"b", {"1", "2"}, "1", ""});
  space.add(Parameter{"c", {"1", "2"}, "1", ""});
  space.add(Constraint{
      "sum",
      [](const Config& config) { return config.number("a") + config.number("b") == 4 ? "a + b is 4" : ""; },
      Rule::build,
      {"a", "b"}});
  space.add(Constraint{"large",
                       [](const Config& config) { return config.number("a") == 3 ? "a is 3" : ""; },
                       Rule::search,
                       {"a"}});
  space.add(split_k_divides(96, "c", 64));
  return space;
}

FamilySpace chosen_values(const std::string& key, const std::vector<std::string>& values) {
  FamilySpace chosen;
  ChosenParameter parameter;
  parameter.key.text = key;
  for (const std::string& value : values) parameter.values.push_back({value, 1});
  chosen.parameters.push_back(parameter);
  return chosen;
}

std::vector<std::string> texts(const Space& space) {
  std::vector<std::string> texts;
  for (const Config& config : space.enumerate()) texts.push_back(config.text());
  return texts;
}

using Texts = std::vector<std::string>;

TEST(SearchSpace, NarrowsToValuesOfTheFamilyInItsOrder) {
  Space space = family_space();
  choose(chosen_values("a", {"7", "2", "1"}), Config(), space);
  EXPECT_EQ(space.points(), 8);
  EXPECT_EQ(texts(space), (Texts{"a1_b1_c1", "a1_b1_c2", "a1_b2_c1", "a1_b2_c2", "a2_b1_c1", "a2_b1_c2"}));
  Config outside;
  outside.set("a", 3);
  outside.set("b", 2);
  EXPECT_EQ(space.refusal(outside), "a has a value that was not chosen");
  EXPECT_EQ(space.build_refusal(outside), "") << "it can be built as before";
}

TEST(SearchSpace, AnyValueOfARangeIsTaken) {
  Space space = family_space();
  space.add(Parameter{
      .key = "d", .values = {"64", "128"}, .absent = "64", .meaning = "", .range = NumberRange{32, 512, 32}});
  const auto chosen_of = [&](const std::vector<std::string>& values) {
    Space narrowed = space;
    choose(chosen_values("d", values), Config(), narrowed);
    return narrowed.parameters().back().values;
  };
  EXPECT_EQ(chosen_of({"256", "96", "128"}), (Texts{"128", "96", "256"})) << "the family's first";
  EXPECT_EQ(chosen_of({"100", "544", "0", "096", "+96", "x", "512", "512"}), (Texts{"512"}));
  EXPECT_EQ(space.parameters().back().allowed_text(), "64, 128, or 32 to 512 in steps of 32");
  const FamilySpace more = chosen_values("d", {"64", "96", "128"});
  const auto steps = space_steps(space, &more, Config());
  EXPECT_EQ(steps[3].removed, -12) << "12 points more";
  std::vector<Config> listed(1);
  listed[0].set("d", 96);
  space.list(listed);
  EXPECT_EQ(chosen_of({"96", "160"}), Texts{}) << "a library's proposals are narrowed";
}

/// What replaces a space is all there is: a parameter that it does not name has the default's value.
TEST(SearchSpace, ReplacingReplacesValuesToo) {
  Config usual;
  usual.set("a", 2);
  usual.set("b", 1);
  FamilySpace chosen = chosen_values("b", {"2"});
  chosen.replace = true;
  Space space = family_space();
  choose(chosen, usual, space);
  EXPECT_EQ(space.points(), 1);
  EXPECT_TRUE(texts(space).empty()) << "a + b is 4";
  chosen = chosen_values("c", {"1", "2"});
  chosen.replace = true;
  Space other = family_space();
  choose(chosen, usual, other);
  EXPECT_EQ(texts(other), (Texts{"a2_b1_c1", "a2_b1_c2"}));
  const auto steps = space_steps(family_space(), &chosen, usual);
  EXPECT_EQ(steps[0].left, 4);
  EXPECT_EQ(steps[1].left, 2);
  EXPECT_EQ(steps.back().left, 2);
  chosen.parameters.clear();
  Space of_rules = family_space();
  choose(chosen, usual, of_rules);
  EXPECT_EQ(of_rules.points(), 12) << "without parameters only the rules are replaced";
}

TEST(SearchSpace, AKeyThatAConfigLacksHasItsAbsentValue) {
  Space space = family_space();
  choose(chosen_values("a", {"2"}), Config(), space);
  EXPECT_NE(space.refusal(Config()), "") << "a is 1";
  Space other = family_space();
  choose(chosen_values("a", {"1"}), Config(), other);
  EXPECT_EQ(other.refusal(Config()), "");
}

TEST(SearchSpace, ReplacingTurnsRulesOfTheSearchOffAndKeepsThoseOfBuilding) {
  Config usual;
  usual.set("b", 2);
  FamilySpace chosen = chosen_values("a", {"3"});
  Space narrowed = family_space();
  choose(chosen, Config(), narrowed);
  EXPECT_TRUE(texts(narrowed).empty());
  chosen.replace = true;
  Space replaced = family_space();
  choose(chosen, usual, replaced);
  EXPECT_EQ(texts(replaced), (Texts{"a3_b2_c1"})) << "what is not named has the default's value";
  chosen.rules.push_back({{"large", 1}, true});
  Space with_rule = family_space();
  choose(chosen, Config(), with_rule);
  EXPECT_TRUE(texts(with_rule).empty()) << "a rule that is named stays";
}

TEST(SearchSpace, ARuleThatIsOffHoldsOnceItIsTurnedOn) {
  EXPECT_EQ(texts(family_space()).size(), 6U);
  FamilySpace chosen;
  chosen.rules.push_back({{"split-K divides", 1}, true});
  Space space = family_space();
  choose(chosen, Config(), space);
  EXPECT_EQ(texts(space), (Texts{"a1_b1_c1", "a1_b2_c1", "a2_b1_c1"}));
  Space unchanged = family_space();
  unchanged.turn("sum", false);
  EXPECT_EQ(texts(unchanged).size(), 6U) << "a build rule cannot be turned off";
}

struct Step {
  std::string name;
  std::int64_t removed;
  std::int64_t left;
  bool on = true;
  friend bool operator==(const Step&, const Step&) = default;
};

std::vector<Step> short_steps(const std::vector<SpaceStep>& steps) {
  std::vector<Step> list;
  for (const SpaceStep& step : steps) list.push_back({step.name, step.removed, step.left, step.on});
  return list;
}

TEST(SearchSpace, StepsSayWhatEachParameterAndRuleRemoved) {
  const FamilySpace chosen = chosen_values("b", {"2"});
  const auto steps = space_steps(family_space(), &chosen, Config());
  EXPECT_EQ(short_steps(steps), (std::vector<Step>{{"a", 0, 12},
                                                   {"b", 6, 6},
                                                   {"c", 0, 6},
                                                   {"large", 2, 4},
                                                   {"sum", 2, 2},
                                                   {"split-K divides", 0, 2, false}}));
  EXPECT_EQ(emptied_by(steps), "");
  const FamilySpace none = chosen_values("a", {"3"});
  EXPECT_EQ(emptied_by(space_steps(family_space(), &none, Config())),
            "search rule 'large' leaves nothing of 4 configs");
  const FamilySpace unknown = chosen_values("c", {"9"});
  EXPECT_EQ(emptied_by(space_steps(family_space(), &unknown, Config())),
            "parameter 'c' leaves nothing of 12 configs");
}

TEST(SearchSpace, StepsOfAnUnchangedSpaceEndWithWhatIsEnumerated) {
  const auto steps = space_steps(family_space(), nullptr, Config());
  EXPECT_EQ(steps.back().left, static_cast<std::int64_t>(family_space().enumerate().size()));
}

TEST(SearchSpace, ListedConfigsAreNarrowedAndCounted) {
  std::vector<Config> configs(5);
  for (std::size_t i = 0; i < configs.size(); ++i) {
    configs[i].set("a", static_cast<std::int64_t>(i % 3 + 1));
    configs[i].set("b", static_cast<std::int64_t>(i % 2 + 1));
  }
  Space space = family_space();
  space.list(configs);  // 1-1, 2-2, 3-1, 1-2, 2-1
  const FamilySpace chosen = chosen_values("b", {"1"});
  const auto steps = space_steps(space, &chosen, Config());
  EXPECT_EQ(steps[1].removed, 2);
  EXPECT_EQ(steps[3].name, "sum");
  EXPECT_EQ(steps[3].removed, 1);
  EXPECT_EQ(steps.back().left, 2);
  choose(chosen, Config(), space);
  EXPECT_EQ(texts(space), (Texts{"a1_b1", "a2_b1"}));
}

TEST(SearchSpace, TheTextIsOfTheChoiceNotOfTheOrder) {
  SearchSpace one;
  one.source = "one.yaml";
  one.families = {chosen_values("a", {"1", "2"}), chosen_values("b", {"1"})};
  one.families[0].family.text = "tiled";
  one.families[1].family.text = "skinny";
  SearchSpace other = one;
  other.source = "other.yaml";
  std::swap(other.families[0], other.families[1]);
  std::swap(other.families[1].parameters[0].values[0], other.families[1].parameters[0].values[1]);
  EXPECT_EQ(one.text(), other.text());
  other.families[0].replace = true;
  EXPECT_NE(one.text(), other.text());
  EXPECT_EQ(SearchSpace().text(), "");
}

}  // namespace
}  // namespace gemmtune
