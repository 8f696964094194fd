// Cells that nobody asks to change keep their bytes: a conversion, a clean table, a merge and a tuned row change what they are
// for, and nothing beside it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/text.h"
#include "formats/aiter/merge_tables.h"
#include "formats/aiter/table_audit.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/all_formats.h"
#include "formats/csv/csv.h"
#include "support/fixtures.h"

namespace gemmtune::kept_cells_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* moe_header =
    "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
    "doweight_stage1,"
    "block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw\n";
/// Rates, digits and words that our own writing would have otherwise.
constexpr const char* moe_row =
    "80,16,4096,1024,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0,"
    "32,0,10.50,k1,0.00%,9,Null,0.1%,19.500,0,77,12.345";

struct Converted {
  std::string text;
  std::vector<std::string> left_out;
};

Converted to_aiter(const std::string& path, const std::string& content) {
  Converted converted;
  auto rows = read_aiter_rows(path, content, {});
  EXPECT_TRUE(rows.ok()) << rows.message();
  if (!rows.ok()) return converted;
  auto text = write_rows(**find_format("aiter"), *rows, {});
  EXPECT_TRUE(text.ok()) << path << ": " << text.message();
  if (text.ok()) converted.text = std::move(*text);
  for (const LeftOut& item : rows->left_out) converted.left_out.push_back(describe(path, item));
  return converted;
}

/// The cells of each row by the name of their column, in lower case.
using Table = std::vector<std::map<std::string, std::string>>;

Table cells_of(const std::string& source, const std::string& content) {
  Table table;
  const auto document = parse_csv(source, content);
  EXPECT_TRUE(document.ok());
  const std::size_t header = header_line(*document);
  CsvCells names;
  names.split(without_mark(document->lines[header].text));
  CsvCells cells;
  for (std::size_t index = header + 1; index < document->lines.size(); ++index) {
    if (is_blank_or_comment(document->lines[index].text) || !cells.split(document->lines[index].text))
      continue;
    auto& row = table.emplace_back();
    for (std::size_t column = 0; column < cells.size() && column < names.size(); ++column)
      row.emplace(to_lower(names[column]), std::string(cells[column]));
  }
  return table;
}

TEST(KeptCells, AConversionWritesRatesDigitsAndWordsAsTheyStand) {
  const Converted converted = to_aiter("tuned_fmoe.csv", std::string(moe_header) + moe_row + "\n");
  EXPECT_THAT(converted.left_out, IsEmpty());
  const Table table = cells_of("tuned_fmoe.csv", converted.text);
  ASSERT_EQ(table.size(), 1U);
  const auto cell = [&](const char* name) { return table[0].at(name); };
  EXPECT_EQ(cell("gfx"), "gfx942") << "what was asked for";
  EXPECT_EQ(cell("us1"), "10.50");
  EXPECT_EQ(cell("us2"), "9");
  EXPECT_EQ(cell("us"), "19.500");
  EXPECT_EQ(cell("err1"), "0.00%");
  EXPECT_EQ(cell("kernelname2"), "Null");
  EXPECT_EQ(cell("tflops"), "77");
  EXPECT_EQ(cell("bw"), "12.345");
}

// A file without the columns gets rates of its own.
TEST(KeptCells, RatesThatAreNotThereAreComputed) {
  const Converted converted =
      to_aiter("a8w8_tuned_gemm.csv",
               "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,errRatio\n"
               "gfx942,80,16,1024,1024,torch.int8,ck,1,0,10,k,0.0\n");
  EXPECT_EQ(cells_of("a8w8_tuned_gemm.csv", converted.text)[0].at("tflops"), "3.36");
}

TEST(KeptCells, AFixWritesTheWrongRateAlone) {
  const std::string header = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n";
  const std::string right_bw = "gfx950,256,1,2048,3072,ck,8,2,4.8294,a,9.99,1304.223,0.00\n";
  const std::string no_number = "gfx950,256,2,2048,3072,ck,8,2,4.8294,a,n/a,1305.3,0.00\n";
  std::vector<TunedFile> files;
  auto file = parse_tuned_csv("a8w8_blockscale_tuned_gemm.csv", header + right_bw + no_number, {});
  ASSERT_TRUE(file.ok()) << file.message();
  files.push_back(std::move(*file));
  const auto findings = audit_tables(files, {});
  ASSERT_GE(findings.size(), 2U);
  EXPECT_EQ(findings[0].text, "tflops 9.99, expected 2.61");
  EXPECT_THAT(findings[1].text, HasSubstr("tflops n/a, expected 5.21"));
  const FixedTable fixed = fix_table(files[0], 0, findings, {});
  EXPECT_EQ(fixed.recomputed, 2U);
  EXPECT_EQ(fixed.text.substr(0, fixed.text.find('\n', header.size()) + 1),
            header + "gfx950,256,1,2048,3072,ck,8,2,4.8294,a,2.61,1304.223,0.00\n");
}

/// The bandwidth of types that are not known here cannot be computed, so it stays.
TEST(KeptCells, AFixKeepsTheBandwidthOfUnknownTypes) {
  const std::string header = "gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n";
  std::vector<TunedFile> files;
  auto file = parse_tuned_csv("a8w8_tuned_gemm.csv",
                              header + "gfx950,256,16,512,512,torch.uint32,0,0,5.0,a,9.9,77.7,0.0\n", {});
  ASSERT_TRUE(file.ok()) << file.message();
  files.push_back(std::move(*file));
  const FixedTable fixed = fix_table(files[0], 0, audit_tables(files, {}), {});
  EXPECT_EQ(fixed.text, header + "gfx950,256,16,512,512,torch.uint32,0,0,5.0,a,1.68,77.7,0.0\n");
}

TEST(KeptCells, AMergeKeepsThemToo) {
  std::vector<TunedFile> files;
  auto file = parse_tuned_csv("tuned_fmoe.csv", std::string(moe_header) + moe_row + "\n", {});
  ASSERT_TRUE(file.ok()) << file.message();
  files.push_back(std::move(*file));
  auto wider = parse_tuned_csv("wider_tuned_fmoe.csv", "gfx," + std::string(moe_header), {});
  ASSERT_TRUE(wider.ok()) << wider.message();
  files.push_back(std::move(*wider));
  const auto merged = merge_tables(files, {});
  ASSERT_TRUE(merged.ok()) << merged.message();
  EXPECT_THAT(merged->text, HasSubstr("\ngfx942," + std::string(moe_row) + "\n"));
}

/// Every tuned table of AITER as a table of AITER: what is not written otherwise by its key stands as it stood.
TEST(KeptCells, AitersTablesComeBackByteForByte) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  std::size_t rows = 0;
  for (const auto& item : std::filesystem::recursive_directory_iterator(fixtures)) {
    const std::string path = item.path().string();
    const std::string name = item.path().filename().string();
    if (!name.ends_with(".csv") || name.find("tuned") == std::string::npos ||
        name.find("untuned") != std::string::npos)
      continue;
    const std::string content = read_file(path).value();
    const auto source = parse_tuned_csv(path, content, {});
    if (!source.ok() || !source->schema().dispatched || source->entries.empty()) continue;
    const Converted converted = to_aiter(path, content);
    const Table before = cells_of(path, content);
    const Table after = cells_of(path, converted.text);
    if (before.size() != after.size()) continue;  // rows of one key: named, and seen by other tests
    rows += before.size();
    for (std::size_t row = 0; row < before.size(); ++row) {
      for (const auto& [column, text] : before[row]) {
        const auto at = after[row].find(column);
        ASSERT_EQ(at == after[row].end() ? "" : at->second, text)
            << path << ": row " << row + 1 << ", " << column;
      }
    }
  }
  EXPECT_GT(rows, 10000U);
}

}  // namespace
}  // namespace gemmtune::kept_cells_test
