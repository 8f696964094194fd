// Tables that come with gemmtune: they answer after all rows of the user's, and on the device that they were measured on alone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "resolve/answer.h"
#include "resolve/lookup_report.h"
#include "resolve/shipped_tables.h"
#include "support/dispatch_fake_device.h"
#include "support/dispatch_tables.h"

namespace gemmtune::shipped_rows_test {
namespace {

using test::row;
using test::small_problem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* table_name = "model_bf16_tuned_gemm.csv";

TunedEntry of(const std::string& env, std::int64_t m, const std::string& kernel, double us = 1e6) {
  TunedEntry entry = row(small_problem(m), kernel, us);
  entry.env = env;
  return entry;
}

class ShippedRows : public ::testing::Test {
 protected:
  /// "here" is this device; the others differ in one thing.
  void ship(const std::vector<TunedEntry>& rows, const std::string& name = table_name) {
    shipped_.write(name, write_tuned_csv(Operation::a16w16, rows, CsvSchema::aiter));
    shipped_.write(name + ".env.json", R"({
      "here": {"device": "Fake 1", "libraries": {"fastlib": "2.9"}},
      "card": {"device": "Fake 2", "libraries": {"fastlib": "2.9"}},
      "library": {"device": "Fake 1", "libraries": {"fastlib": "1.9"}},
      "bare": {"libraries": {"fastlib": "2.9"}}})");
  }
  TableSet here() const { return load_shipped_tables(shipped_.path(), &device_.info()); }
  Answer ask(std::int64_t m, const TableSet& user = TableSet()) {
    tables_ = here();
    return answer_problem(device_, {user, nullptr, [&] { return &tables_; }}, small_problem(m), {});
  }

  test::TemporaryFolder shipped_;
  test::TemporaryFolder folder_;
  test::FakeDevice device_;
  TableSet tables_;
};

TEST_F(ShippedRows, AnswerOnTheirDeviceModelAndLibraryVersionAlone) {
  ship({of("here", 8, "alpha_r1_a2"), of("card", 16, "alpha_r1_a2"), of("library", 32, "alpha_r1_a2"),
        of("bare", 64, "alpha_r1_a2"), of("", 128, "alpha_r1_a2"), of("none", 256, "alpha_r1_a2")});
  const Answer answer = ask(8);
  EXPECT_EQ(answer.hit.match, Match::exact);
  EXPECT_EQ(answer.kernel_name(), "alpha_r1_a2");
  EXPECT_THAT(answer.rule(), HasSubstr("shipped exact row, M = 8, " + shipped_.file(table_name) + ":2"));
  for (const std::int64_t m : {16, 32, 64, 128, 256}) EXPECT_EQ(ask(m).hit.match, Match::untuned) << m;
  EXPECT_EQ(tables_.describe(), shipped_.path() + ": 1 row in 1 shipped table, 5 of other devices");
  EXPECT_THAT(tables_.describe(OperationForm(Operation::a8w8)), IsEmpty());
}

/// An H100 and an H200 have one gfx and one cu_num, and the faster card's row is no row of the other one.
TEST_F(ShippedRows, AFasterCardsRowDoesNotHideThisCards) {
  ship({of("card", 8, "alpha_r1_a2", 5e5), of("here", 8, "alpha_r1_a1")});
  EXPECT_EQ(ask(8).kernel_name(), "alpha_r1_a1");
}

TEST_F(ShippedRows, AnyRowOfTheUsersWins) {
  ship({of("here", 9, "alpha_r1_a2"), of("here", 3, "alpha_r1_a2")});
  const TableSet user = load_table_set(
      {test::table(test::write_rows(folder_, "t.csv", {row(small_problem(16), "alpha_r1_a1")}))});
  EXPECT_EQ(ask(9).kernel_name(), "alpha_r1_a2");
  EXPECT_EQ(ask(9, user).kernel_name(), "alpha_r1_a1") << "padded, and still the user's";
  const TableSet wide = load_table_set(
      {test::table(test::write_rows(folder_, "u.csv", {row(small_problem(9), "beta_r1_a1")}))});
  const Answer passed = ask(9, wide);
  EXPECT_EQ(passed.kernel_name(), "alpha_r1_a2");
  EXPECT_THAT(passed.rule(), HasSubstr("passed over exact row, M = 9, " + folder_.file("u.csv")));
  TunedEntry fewer = row(small_problem(3), "alpha_r1_a1");
  fewer.cu_num = 1;
  const TableSet of_one_thread = load_table_set({test::table(test::write_rows(folder_, "f.csv", {fewer}))});
  EXPECT_EQ(ask(3, of_one_thread).hit.match, Match::fewer_threads);
}

TEST_F(ShippedRows, LookUpNamesTheCardOfARow) {
  ship({of("card", 8, "alpha_r1_a2")});
  const TableSet all = load_shipped_tables(shipped_.path(), nullptr);
  const TableSet none;
  LookupRequest request;
  request.problem = small_problem(8);
  request.gfx = "x86-fake";
  request.cu_num = 2;
  const auto of_table = explain_lookup({none, nullptr, [&] { return &all; }}, nullptr, request);
  ASSERT_TRUE(of_table.ok()) << of_table.message();
  EXPECT_EQ(of_table->card, "Fake 2");
  EXPECT_EQ(of_table->level, Match::exact);
  EXPECT_EQ(of_table->levels.back().tables, &all);
  const TableSet mine = here();
  request.gfx.reset();
  request.cu_num.reset();
  const auto of_device = explain_lookup({none, nullptr, [&] { return &mine; }}, &device_, request);
  ASSERT_TRUE(of_device.ok()) << of_device.message();
  EXPECT_EQ(of_device->level, Match::untuned);
  for (const LookupLevel& level : of_device->levels)
    EXPECT_NE(level.tables, &mine) << "no row of this device: no levels";
}

TEST_F(ShippedRows, FilesAreNamedAsInAConfigFolder) {
  ship({of("here", 8, "alpha_r1_a2")}, "model_bf16_untuned_gemm.csv");
  ship({of("here", 16, "alpha_r1_a2")}, "bf16_tuned_gemm_model.csv");
  EXPECT_EQ(ask(9).hit.match, Match::fine);
  EXPECT_EQ(tables_.sources.size(), 1U);
}

TEST_F(ShippedRows, DamagedFilesAnswerNothingAndSayWhy) {
  ship({of("here", 8, "alpha_r1_a2")});
  shipped_.write("broken_bf16_tuned_gemm.csv", std::string("M,N\0", 4));
  EXPECT_EQ(ask(8).kernel_name(), "alpha_r1_a2");
  EXPECT_THAT(tables_.describe(),
              AllOf(HasSubstr("broken_bf16_tuned_gemm.csv"), HasSubstr("1 row in 1 shipped table")));
  shipped_.write(std::string(table_name) + ".env.json", "{");
  EXPECT_EQ(ask(8).hit.match, Match::untuned);
  EXPECT_THAT(tables_.describe(), HasSubstr(".env.json"));
}

TEST_F(ShippedRows, AFolderThatIsMissingIsAFault) {
  EXPECT_THAT(load_shipped_tables("", &device_.info()).sources, IsEmpty());
  const TableSet none = load_shipped_tables(folder_.file("none"), &device_.info());
  EXPECT_THAT(none.describe(), HasSubstr(folder_.file("none") + ": no folder of shipped tables"));
  EXPECT_THAT(none.first_fault().message(), Not(IsEmpty()));
}

}  // namespace
}  // namespace gemmtune::shipped_rows_test
