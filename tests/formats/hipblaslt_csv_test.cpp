#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/file.h"
#include "scratch_folder.h"
#include "support/hipblaslt_rows.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string hipblaslt_data(const std::string& name) {
  return std::string(GEMMTUNE_TEST_DATA) + "/hipblaslt/" + name;
}

HipblasltFile read_hipblaslt(const std::string& name) {
  auto file = read_hipblaslt_csv(hipblaslt_data(name));
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : HipblasltFile();
}

Problem problem(const std::string& text) {
  const auto parsed = parse_problem(text);
  EXPECT_TRUE(parsed.ok()) << parsed.message();
  return *parsed;
}

TEST(HipblasltCsv, RowsAreReadAndWrittenAsTheyAre) {
  const HipblasltFile file = read_hipblaslt("online.csv");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_THAT(file.rows, SizeIs(6));
  const HipblasltRow& first = file.rows[0];
  EXPECT_FALSE(first.preshuffle);
  EXPECT_EQ(first.trans_a, 'T');
  EXPECT_EQ(first.m, 2048);
  EXPECT_EQ(first.n, 1);
  EXPECT_EQ(first.algo_index, 73412);
  EXPECT_EQ(first.kernel_name, "Cijk_Alik_Bljk_BBS_BH_MT16x16x512");
  EXPECT_EQ(first.line, 2U);
  EXPECT_EQ(write_hipblaslt_csv(file.rows), *read_file(hipblaslt_data("online.csv")));
}

TEST(HipblasltCsv, LinesThatNoReaderFindsAreReported) {
  const HipblasltFile file = read_hipblaslt("dirty.csv");
  EXPECT_THAT(file.diagnostics,
              ElementsAre(HasSubstr("dirty.csv:4: 19 fields, expected 20"),
                          HasSubstr("dirty.csv:5: column use_rowwise: value ' false', expected no blanks"),
                          HasSubstr("dirty.csv:6: column preshuffle: value 'False', expected true or false"),
                          HasSubstr("dirty.csv:7: column trans_b: value 'C', expected T or N"),
                          HasSubstr("dirty.csv:8: column m: value '02048', expected a whole number"),
                          HasSubstr("dirty.csv:10: column kernel_name: value ''"),
                          HasSubstr("dirty.csv:12: 7 fields, expected 20")));
  ASSERT_THAT(file.rows, SizeIs(1));
  EXPECT_EQ(file.rows[0].algo_index, 3);
}

TEST(HipblasltCsv, NoTableAtAll) {
  EXPECT_THAT(parse_hipblaslt_csv("h.csv", "")->rows, IsEmpty());
  EXPECT_THAT(parse_hipblaslt_csv("h.csv", "\n\nfalse").value().diagnostics, SizeIs(1));
  EXPECT_THAT(parse_hipblaslt_csv("h.csv", std::string("a\n\0b", 4)).message(),
              HasSubstr("h.csv:2: a NUL byte"));
  EXPECT_THAT(parse_hipblaslt_csv("h.csv", std::string(2 << 20, '1')).message(),
              HasSubstr("h.csv:1: a line of"));
  EXPECT_EQ(read_hipblaslt_csv(hipblaslt_data("absent.csv")).code(), StatusCode::not_found);
}

TEST(HipblasltCsv, TheFirstRowOfAProblemWins) {
  const HipblasltFile file = read_hipblaslt("online.csv");
  const auto index_of = [&](const std::string& text) {
    const HipblasltRow* row = find_row(file, problem(text));
    return row == nullptr ? -1 : row->algo_index;
  };
  EXPECT_EQ(index_of("a16w16 m=1 n=2048 k=4096 x=bf16 w=bf16 y=bf16"), 73412);
  EXPECT_EQ(index_of("a16w16 m=1 n=2048 k=4096 x=bf16 w=bf16 y=bf16 bias=1"), 73412);
  EXPECT_EQ(index_of("a16w16 m=2048 n=1 k=4096 x=bf16 w=bf16 y=bf16"), -1);
  EXPECT_EQ(index_of("a16w16 m=1 n=2048 k=4096 x=f16 w=f16 y=bf16"), -1);
  EXPECT_EQ(index_of("a16w16 m=16 n=1280 k=8192 x=f8_e4m3fn w=f8_e4m3fn y=bf16 scale_ab=1"), 13);
  EXPECT_EQ(index_of("a16w16 m=16 n=1280 k=8192 x=f8_e4m3fnuz w=f8_e4m3fnuz y=bf16 scale_ab=1"), -1);
  EXPECT_EQ(index_of("a16w16 m=32 n=96 k=64 x=f16 w=f16 y=f32 x_order=N w_order=N"), 14);
}

TEST(HipblasltCsv, ColumnMajorViewAndBack) {
  const auto row = to_hipblaslt_row(problem("a16w16 m=3 n=96 k=64 x=f32 w=f32 y=f32"));
  ASSERT_TRUE(row.ok()) << row.message();
  EXPECT_EQ(row->m, 96);
  EXPECT_EQ(row->n, 3);
  EXPECT_EQ(row->lda, 64);
  EXPECT_EQ(row->ldb, 64);
  EXPECT_EQ(row->ldc, 96);
  EXPECT_EQ(row->a_type, "f32_r");
  for (const char* text :
       {"a16w16 m=1 n=2048 k=4096 x=bf16 w=bf16 y=bf16", "a16w16 m=3 n=5 k=7 x=f16 w=f16 y=f32",
        "a16w16 m=3 n=5 k=7 x=f32 w=f32 y=f32 x_order=N", "a16w16 m=3 n=5 k=7 x=bf16 w=bf16 y=f16 w_order=N",
        "a16w16 m=16 n=128 k=64 x=f8_e4m3fnuz w=f8_e4m3fnuz y=bf16 scale_ab=1 layout=any"}) {
    const Problem asked = problem(text);
    const auto there = to_hipblaslt_row(asked);
    ASSERT_TRUE(there.ok()) << there.message();
    const auto back = to_problem(*there);
    ASSERT_TRUE(back.ok()) << back.message();
    EXPECT_EQ(print(*back), print(asked));
  }
}

TEST(HipblasltCsv, WhatOneSideCannotSayIsNamed) {
  const HipblasltFile file = read_hipblaslt("online.csv");
  EXPECT_TRUE(is_packed(*to_problem(file.rows[2])));
  EXPECT_THAT(to_problem(file.rows[3]).message(), HasSubstr("use_rowwise"));
  EXPECT_THAT(to_problem(file.rows[4]).message(), HasSubstr("A_data_type is <?>"));
  HipblasltRow row = file.rows[0];
  row.lda = 5000;
  EXPECT_THAT(to_problem(row).message(), HasSubstr("lda"));
  row = file.rows[0];
  row.m = 0;
  EXPECT_THAT(to_problem(row).message(), HasSubstr("N = 0"));
}

class HipblasltAppend : public ScratchTest {};

TEST_F(HipblasltAppend, HeaderFirstThenRows) {
  const std::vector<HipblasltRow> rows = read_hipblaslt("online.csv").rows;
  for (const HipblasltRow& row : rows) ASSERT_TRUE(append_hipblaslt_row(path("new.csv"), row).ok());
  EXPECT_EQ(content("new.csv"), *read_file(hipblaslt_data("online.csv")));

  write("cut.csv", "# mine\nhalf a line");
  ASSERT_TRUE(append_hipblaslt_row(path("cut.csv"), rows[0]).ok());
  EXPECT_THAT(content("cut.csv"), ::testing::StartsWith("# mine\nhalf a line\nfalse,false,T,N,2048,1,"));
  HipblasltRow bad = rows[0];
  bad.kernel_name = "two,fields";
  EXPECT_THAT(append_hipblaslt_row(path("cut.csv"), bad).message(), HasSubstr("'two,fields'"));
}

TEST_F(HipblasltAppend, WritersAtOnceLoseNoRow) {
  constexpr int writers = 4;
  constexpr int rows_each = 10;
  std::vector<std::thread> threads;
  for (int writer = 0; writer < writers; ++writer) {
    threads.emplace_back([this, writer] {
      HipblasltRow row = read_hipblaslt("online.csv").rows[0];
      for (int index = 0; index < rows_each; ++index) {
        row.algo_index = writer * 100 + index;
        EXPECT_TRUE(append_hipblaslt_row(path("shared.csv"), row).ok());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const auto file = read_hipblaslt_csv(path("shared.csv"));
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_THAT(file->diagnostics, IsEmpty());
  EXPECT_THAT(file->rows, SizeIs(writers * rows_each));
}

}  // namespace
}  // namespace gemmtune
