#include "resolve/row_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <utility>

#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

DeviceInfo device() {
  DeviceInfo info;
  info.model = "Model A";
  for (const auto& [name, version] : {std::pair{"fastlib", "2.6.3"}, std::pair{"absent", ""}}) {
    Library library;
    library.name = name;
    library.version = version;
    info.libraries.push_back(library);
  }
  return info;
}

std::string difference(const std::string& object, const std::string& env = "abc") {
  EnvironmentNotes notes;
  notes.add("abc", object);
  return notes.difference(env, device());
}

TEST(RowEnvironment, RowsThatNameNoneAreAtHome) { EXPECT_EQ(difference("{}", ""), ""); }

TEST(RowEnvironment, SameModelAndMajorVersionsAreTheSame) {
  EXPECT_EQ(difference(R"({"device": "Model A", "libraries": {"fastlib": "2.9", "absent": "1.0"}})"), "");
}

TEST(RowEnvironment, AnotherModelIsNamed) {
  EXPECT_EQ(difference(R"({"device": "Model B"})"), "measured on 'Model B', this is 'Model A'");
}

TEST(RowEnvironment, AnotherMajorVersionIsNamed) {
  EXPECT_EQ(difference(R"({"device": "Model A", "libraries": {"fastlib": "3.0"}})"),
            "measured with fastlib 3.0, here is 2.6.3");
}

TEST(RowEnvironment, AnotherTeamOfThreadsIsNamed) {
  EnvironmentNotes notes;
  notes.add("openmp", R"({"device": "Model A", "team": "openmp"})");
  notes.add("own", R"({"device": "Model A", "team": "own"})");
  notes.add("older", R"({"device": "Model A"})");
  DeviceInfo here = device();
  here.team = "openmp";
  EXPECT_EQ(notes.difference("openmp", here), "");
  EXPECT_EQ(notes.difference("own", here),
            "measured on threads of team own, here it is openmp (GEMMTUNE_TEAM)");
  EXPECT_EQ(notes.difference("older", here), "") << "rows from before say no team";
  here.team = "callback";
  EXPECT_EQ(notes.difference("openmp", here) + notes.difference("own", here), "");
}

TEST(RowEnvironment, AHashWithoutANoteIsAnother) {
  EXPECT_THAT(difference("{}", "xyz"), HasSubstr("xyz is not described"));
}

TEST(RowEnvironment, DamageIsAnErrorAndAbsenceIsNot) {
  const test::TemporaryFolder folder;
  EXPECT_TRUE(EnvironmentNotes::read(folder.file("t.csv")).ok());
  folder.write("t.csv.env.json", "{\"abc\": ");
  const auto damaged = EnvironmentNotes::read(folder.file("t.csv"));
  ASSERT_FALSE(damaged.ok());
  EXPECT_THAT(damaged.message(), HasSubstr("t.csv.env.json"));
}

}  // namespace
}  // namespace gemmtune
