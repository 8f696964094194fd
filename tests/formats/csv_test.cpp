#include "formats/csv/csv.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> cells_of(std::string_view line) {
  CsvCells cells;
  EXPECT_TRUE(cells.split(line)) << line;
  std::vector<std::string> all;
  for (std::size_t index = 0; index < cells.size(); ++index) all.emplace_back(cells[index]);
  return all;
}

TEST(Csv, LinesKeepEveryByte) {
  const std::string text = "\xEF\xBB\xBFM,N\r\n1, 2\t\n\n \r\n# note\nlast";
  const auto document = parse_csv("a.csv", text);
  ASSERT_TRUE(document.ok());
  std::string again;
  for (const CsvLine& line : document->lines) again += std::string(line.text) + std::string(line.end);
  EXPECT_EQ(again, text);
  ASSERT_EQ(document->lines.size(), 6U);
  EXPECT_EQ(document->lines[0].end, "\r\n");
  EXPECT_EQ(document->lines[1].text, "1, 2\t");
  EXPECT_EQ(document->lines[5].end, "");
  EXPECT_EQ(document->lines[5].number, 6U);
  EXPECT_EQ(header_line(*document), 0U);
}

TEST(Csv, ViewsOutliveAMove) {
  auto document = parse_csv("a.csv", "M\n1\n");
  ASSERT_TRUE(document.ok());
  const CsvDocument moved = std::move(*document);
  EXPECT_EQ(moved.lines[1].text, "1");
}

TEST(Csv, CellsAreTrimmedAndUnquoted) {
  EXPECT_THAT(cells_of(" 1,\t2 ,torch.int8\t"), ElementsAre("1", "2", "torch.int8"));
  EXPECT_THAT(cells_of("a,,"), ElementsAre("a", "", ""));
  EXPECT_THAT(cells_of(""), ElementsAre(""));
  EXPECT_THAT(cells_of(R"( "a,b" ,"say ""x""",""" """,c"d)"),
              ElementsAre("a,b", "say \"x\"", "\" \"", "c\"d"));
  CsvCells cells;
  EXPECT_FALSE(cells.split("1,\"2,3"));
  EXPECT_FALSE(cells.split("\"1\"2,3"));
  EXPECT_TRUE(cells.split("1"));
  EXPECT_EQ(cells[7], "");
}

TEST(Csv, WrittenCellsAreReadBack) {
  for (const std::string text : {"plain", "a,b", "say \"x\"", " blank ", "", "\"", "x\ty"}) {
    EXPECT_THAT(cells_of(csv_cell(text) + ",end"), ElementsAre(text, "end"));
  }
  EXPECT_EQ(csv_cell("two\nlines"), "\"two lines\"");
}

TEST(Csv, BinaryAndEndlessLinesAreRefusedWithTheirPlace) {
  const auto nul = parse_csv("a.csv", std::string("M,N\n1,\0", 7));
  EXPECT_THAT(nul.message(), HasSubstr("a.csv:2: a NUL byte"));
  const auto wide = parse_csv("a.csv", "M\n\n" + std::string(max_line_bytes + 1, 'x') + "\n");
  EXPECT_THAT(wide.message(), HasSubstr("a.csv:3: a line of 1048577 bytes"));
  EXPECT_TRUE(parse_csv("a.csv", std::string(max_line_bytes, 'x')).ok());
}

TEST(Csv, HeaderIsTheFirstLineThatSaysSomething) {
  const auto document = parse_csv("a.csv", "\n# made by\n  \nM,N\n");
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(header_line(*document), 3U);
  EXPECT_EQ(header_line(*parse_csv("a.csv", "\n\n")), 2U);
  EXPECT_EQ(header_line(*parse_csv("a.csv", "")), 0U);
}

}  // namespace
}  // namespace gemmtune
