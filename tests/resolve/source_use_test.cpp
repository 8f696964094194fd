// Which tuned files a device uses, and what is said of the others.
#include "resolve/source_use.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "resolve/bind.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"
#include "support/fixtures.h"

namespace gemmtune {
namespace {

using test::row;
using test::small_problem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;

class Sources : public ::testing::Test {
 protected:
  static TunedEntry of(const std::string& gfx, int cu_num, std::int64_t m = 8) {
    TunedEntry entry = row(small_problem(m), "alpha_r1_a1");
    entry.gfx = gfx;
    entry.cu_num = cu_num;
    return entry;
  }
  TablePath file(const std::string& name, const std::vector<TunedEntry>& rows, bool named = true) {
    return {OperationForm(Operation::a16w16), test::write_rows(folder_, name, rows), named};
  }
  std::vector<std::string> warnings(const std::vector<TablePath>& paths, bool strict = false) {
    TableSet tables = load_table_set(paths);
    tables.fewer_threads = !strict;
    std::vector<std::string> texts;
    for (const SourceWarning& warning : source_warnings(tables, device_.info(), strict))
      texts.push_back((warning.named ? "" : "later: ") + warning.text);
    return texts;
  }

  test::TemporaryFolder folder_;
  test::FakeDevice device_;
};

TEST_F(Sources, RowsAreCountedByWhatTheyAreToTheDevice) {
  TunedEntry stale = of("x86-fake", 2, 4);
  stale.env = "0123456789";
  const TablePath path =
      file("t.csv", {of("x86-fake", 2), stale, of("x86-fake", 1), of("x86-fake", 4), of("gfx950", 256)});
  folder_.write("t.csv.env.json", R"({"0123456789": {"libraries": {"fastlib": "1.0"}}})");
  const auto uses = uses_of_sources(load_table_set({path}), device_.info(), false);
  ASSERT_EQ(uses.size(), 1U);
  EXPECT_EQ(uses[0].own, 2U);
  EXPECT_EQ(uses[0].other_environment, 1U);
  EXPECT_EQ(uses[0].fewer_threads, 1U);
  EXPECT_THAT(uses[0].devices, ElementsAre(Pair("gfx950/256", 1U), Pair("x86-fake/1", 1U),
                                           Pair("x86-fake/2", 2U), Pair("x86-fake/4", 1U)));
  EXPECT_EQ(uses[0].unused, "");
}

/// AITER's folders hold a file for each device, by design.
TEST_F(Sources, WhereSomeFileHasRowsOfThisDeviceTheOthersAreNoNews) {
  const TablePath other = file("model_configs/a.csv", {of("gfx950", 256)}, false);
  EXPECT_THAT(warnings({other, file("b.csv", {of("x86-fake", 2)}, false)}), IsEmpty());
  EXPECT_THAT(warnings({other}),
              ElementsAre("later: " + other.path +
                          " is not used: 1 row of gfx950/256, none of this device, x86-fake/2"));
}

TEST_F(Sources, FilesOfOneOperationAreOneLine) {
  const TablePath first = file("a.csv", {of("gfx950", 256)}, false);
  EXPECT_THAT(
      warnings({first, file("b.csv", {of("gfx942", 304), of("gfx942", 304, 4)}, false)}),
      ElementsAre("later: " + first.path +
                  " and 1 more are not used: 3 rows of gfx942/304 and gfx950/256, none of this device, "
                  "x86-fake/2"));
}

/// AITER's own configs: an operation that has rows of a device is no warning, whatever its files hold besides.
TEST_F(Sources, AitersConfigsRaiseNoFalseAlarm) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  Environment environment;
  environment.config_folder = fixtures + "/aiter/configs";
  const TableSet tables = production_tables(environment);
  std::size_t rows = 0;
  for (const auto& [gfx, cu_num] :
       {std::pair("gfx950", 256), std::pair("gfx942", 80), std::pair("gfx942", 304)}) {
    DeviceInfo device;
    device.gfx = gfx;
    device.cu_num = cu_num;
    std::set<OperationForm> has_rows;
    for (const TunedEntry& row : tables.table.entries())
      if (row_is_of(row, device)) has_rows.insert(form_of(row.problem));
    rows += has_rows.size();
    for (const SourceWarning& warning : source_warnings(tables, device, false))
      EXPECT_FALSE(has_rows.contains(warning.operation)) << gfx << ": " << warning.text;
  }
  EXPECT_GT(rows, 5U);
  const auto here = source_warnings(tables, device_.info(), false);
  std::set<OperationForm> operations;
  for (const SourceWarning& warning : here) {
    EXPECT_TRUE(operations.insert(warning.operation).second) << "one line an operation: " << warning.text;
    EXPECT_FALSE(warning.named) << "only if it is asked for";
  }
  EXPECT_GT(operations.size(), 5U);
}

TEST_F(Sources, OperationsAreJudgedApart) {
  const TablePath other = file("a.csv", {of("gfx950", 256)});
  const std::string a8w8 = folder_.write("a8w8_tuned_gemm.csv",
                                         "gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName\n"
                                         "x86-fake,2,1,32,48,torch.int8,0,0,9,alpha_r1_a1\n");
  EXPECT_THAT(warnings({other, {OperationForm(Operation::a8w8), a8w8, true}}),
              ElementsAre(HasSubstr("a.csv is not used")));
}

TEST_F(Sources, FilesThatAreMissingOrCannotBeReadAreSaid) {
  const std::string none = folder_.file("none.csv");
  EXPECT_THAT(warnings({{OperationForm(Operation::a16w16), none, false}}), IsEmpty())
      << "a default may be missing";
  EXPECT_THAT(warnings({{OperationForm(Operation::a16w16), none, true}}),
              ElementsAre(none + ": no such file"));
  const std::string broken = folder_.write("broken.csv", std::string("M,N\0", 4));
  EXPECT_THAT(
      warnings({{OperationForm(Operation::a16w16), broken, false}, file("b.csv", {of("x86-fake", 2)})}),
      ElementsAre(HasSubstr("broken.csv")));
}

TEST_F(Sources, AnotherNumberOfThreadsIsNamed) {
  device_.change_info().cu_num = 1;
  EXPECT_THAT(
      warnings({file("a.csv", {of("x86-fake", 2)})}),
      ElementsAre(HasSubstr("1 row of x86-fake/2, none of this device, x86-fake/1 (this process may use 1 "
                            "thread)")));
  device_.change_info().cu_num = 4;
  EXPECT_THAT(warnings({file("a.csv", {of("x86-fake", 2)})}),
              ElementsAre(HasSubstr(
                  "1 row of x86-fake/2, this process may use 4 threads: they answer as fewer_threads")));
  EXPECT_THAT(warnings({file("a.csv", {of("x86-fake", 2)})}, true), ElementsAre(HasSubstr("is not used")));
}

TEST_F(Sources, RowsThatStrictRulesLeaveOutAreSaid) {
  TunedEntry stale = of("x86-fake", 2);
  stale.env = "0123456789";
  const TablePath path = file("t.csv", {stale, of("x86-fake", 2, 4)});
  folder_.write("t.csv.env.json", R"({"0123456789": {"libraries": {"fastlib": "1.0"}}})");
  EXPECT_THAT(warnings({path}), IsEmpty());
  EXPECT_THAT(
      warnings({path}, true),
      ElementsAre(path.path + ": 1 of 2 rows of this device are not used, they are of another environment: "
                              "measured with fastlib 1.0, here is 2.6.3"));
}

TEST_F(Sources, ManyDevicesAreCutShort) {
  EXPECT_EQ(rows_of_devices({{"a/1", 1}}), "1 row of a/1");
  EXPECT_EQ(rows_of_devices({{"a/1", 32}, {"b/2", 200}}), "232 rows of b/2 and a/1");
  EXPECT_EQ(rows_of_devices({{"a/1", 1}, {"b/1", 1}, {"c/1", 1}, {"d/1", 1}, {"e/1", 1}, {"f/1", 3}}),
            "8 rows of f/1, a/1, b/1, c/1 and 2 more devices");
}

}  // namespace
}  // namespace gemmtune
