#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "dispatch/row_environment.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

DeviceInfo device() {
  DeviceInfo info;
  info.model = "Model A";
  info.libraries = {{"fastlib", "2.6.3", ""}, {"absent", "", "not installed"}};
  return info;
}

std::string difference(const std::string& json, const std::string& env = "abc") {
  const auto notes = EnvironmentNotes::parse(json, "t.csv.env.json");
  EXPECT_TRUE(notes.ok()) << notes.message();
  return notes.ok() ? notes->difference(env, device()) : "";
}

TEST(RowEnvironment, RowsThatNameNoneAreAtHome) { EXPECT_EQ(difference("{}", ""), ""); }

TEST(RowEnvironment, SameModelAndMajorVersionsAreTheSame) {
  EXPECT_EQ(difference(R"({"abc": {"device": "Model A", "libraries": {"fastlib": "2.9", "absent": "1.0"}}})"),
            "");
}

TEST(RowEnvironment, AnotherModelIsNamed) {
  EXPECT_EQ(difference(R"({"abc": {"device": "Model B"}})"), "measured on 'Model B', this is 'Model A'");
}

TEST(RowEnvironment, AnotherMajorVersionIsNamed) {
  EXPECT_EQ(difference(R"({"abc": {"device": "Model A", "libraries": {"fastlib": "3.0"}}})"),
            "measured with fastlib 3.0, here is 2.6.3");
}

TEST(RowEnvironment, AHashWithoutANoteIsAnother) {
  EXPECT_THAT(difference(R"({"xyz": {"device": "Model A"}})"), HasSubstr("abc is not described"));
}

TEST(RowEnvironment, DamageIsAnErrorAndAbsenceIsNot) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(EnvironmentNotes::read(folder / "t.csv").ok());
  folder.write("t.csv.env.json", "{\"abc\": ");
  const auto damaged = EnvironmentNotes::read(folder / "t.csv");
  ASSERT_FALSE(damaged.ok());
  EXPECT_THAT(damaged.message(), HasSubstr("t.csv.env.json"));
}

}  // namespace
}  // namespace gemmtune
