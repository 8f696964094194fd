#include "formats/aiter/merge_tables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "formats/aiter/tuned_row.h"
#include "support/fixtures.h"
#include "tuned/compress.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string header = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n";

TunedFile parsed(const std::string& content, const std::string& path, OperationForm operation) {
  auto file = parse_tuned_csv(path, content, {.operation = operation});
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TunedFile();
}

MergedTable merged(const std::vector<std::string>& contents, const MergeOptions& options = {},
                   OperationForm operation = Operation::a8w8_blockscale) {
  std::vector<TunedFile> files;
  for (const std::string& content : contents) {
    files.push_back(
        parsed(content, std::string(1, static_cast<char>('a' + files.size())) + ".csv", operation));
  }
  auto table = merge_tables(files, options);
  EXPECT_TRUE(table.ok()) << table.message();
  return table.ok() ? std::move(*table) : MergedTable();
}

TEST(Merge, TheSmallestValidTimeStandsWhereItsKeyCameFirst) {
  const MergedTable table = merged({header + "gfx950,256,1,512,512,ck,0,0,9.0,a,,,\n"
                                             "gfx950,256,2,512,512,ck,0,0,5.0,a,,,\n",
                                    header + "gfx950,256,4,512,512,ck,0,0,5.0,b,,,\n"
                                             "gfx950,256,1,512,512,ck,0,0,7.0,b,,,\n"
                                             "gfx950,256,2,512,512,ck,0,0,5.0,b,,,\n"});
  EXPECT_EQ(table.text, header +
                            "gfx950,256,1,512,512,ck,0,0,7.0,b,,,\n"
                            "gfx950,256,2,512,512,ck,0,0,5.0,a,,,\n"
                            "gfx950,256,4,512,512,ck,0,0,5.0,b,,,\n");
  EXPECT_EQ(table.duplicates, 2U);
  EXPECT_THAT(table.notes,
              ElementsAre(HasSubstr("a.csv:2: left out: 9 µs, but 7 µs for the same key at b.csv:3"),
                          HasSubstr("b.csv:4: left out")));
}

TEST(Merge, AFailedTimeIsKeptOnlyAlone) {
  const MergedTable table = merged({header + "gfx950,256,1,512,512,ck,0,0,0.0,a,,,\n"
                                             "gfx950,256,2,512,512,ck,0,0,-1,a,,,\n",
                                    header + "gfx950,256,1,512,512,ck,0,0,7.0,b,,,\n"
                                             "gfx950,256,2,512,512,ck,0,0,inf,b,,,\n"});
  EXPECT_EQ(table.text,
            header + "gfx950,256,1,512,512,ck,0,0,7.0,b,,,\ngfx950,256,2,512,512,ck,0,0,-1,a,,,\n");
  EXPECT_THAT(table.notes.back(), HasSubstr("a.csv:3: kept, but never chosen (no valid time)"));
}

TEST(Merge, CellsKeepTheirBytes) {
  const std::string row = "gfx950, 256,1,512,512,ck,0,0,9.00,\"a,b\",,,\n";
  EXPECT_EQ(merged({header + row}).text, header + row);
  // Another header: the same bytes at other places.
  const MergedTable table =
      merged({header,
              "cu_num,gfx,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,err_ratio\n"
              " 256,gfx950,1,512,512,ck,0,0,9.00,\"a,b\",,,0.010\n"});
  EXPECT_EQ(table.text, header + "gfx950, 256,1,512,512,ck,0,0,9.00,\"a,b\",,,0.010\n");
}

TEST(Merge, LaterColumnsGoBeforeTflopsAndOwnOnesBehind) {
  const MergedTable table =
      merged({header + "gfx950,256,1,512,512,ck,0,0,9.0,a,1,2,0\n",
              "gfx,cu_num,M,N,K,note,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio,spread,env\n"
              "gfx950,256,2,512,512,hi,ck,0,0,9.0,b,1,2,0,0.25,abc\n"});
  EXPECT_EQ(table.text,
            "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,note,tflops,bw,errRatio,spread,env\n"
            "gfx950,256,1,512,512,ck,0,0,9.0,a,,1,2,0,,\n"
            "gfx950,256,2,512,512,ck,0,0,9.0,b,hi,1,2,0,0.25,abc\n");
}

TEST(Merge, GfxIsFilledInFromTheComputeUnits) {
  const std::string old_header = header.substr(4);
  const MergedTable table =
      merged({old_header + "80,1,512,512,ck,0,0,9.0,a,1,2,0\n120,1,512,512,ck,0,0,9.0,a,1,2,0\n",
              header + "gfx942,80,1,512,512,ck,0,0,8.0,b,1,2,0\n"});
  EXPECT_EQ(table.text,
            header + "gfx942,80,1,512,512,ck,0,0,8.0,b,1,2,0\n,120,1,512,512,ck,0,0,9.0,a,1,2,0\n");
  EXPECT_EQ(table.duplicates, 1U);
  EXPECT_THAT(table.notes.front(), HasSubstr("a.csv:3: no gfx, and cu_num 120 tells none"));
  // Where no file has it, none is invented.
  EXPECT_EQ(merged({old_header + "80,1,512,512,ck,0,0,9.0,a,1,2,0\n"}).text,
            old_header + "80,1,512,512,ck,0,0,9.0,a,1,2,0\n");
}

/// Look-up takes the row for every architecture of AMD's.
TEST(Merge, AnEmptyGfxOfAFileWithTheColumnStays) {
  const std::string rows =
      header + ",256,1,512,512,ck,0,0,9.0,a,1,2,0\ngfx950,256,2,512,512,ck,0,0,9.0,b,1,2,0\n";
  EXPECT_EQ(merged({rows}).text, rows);
}

/// Look-up takes the first tag, and of its rows the fastest.
TEST(Merge, OfSeveralTagsTheChosenRowComesFirst) {
  const std::string columns =
      "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
      "doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,_tag\n";
  const auto row = [](const char* token, const std::string& kernel, const char* us, const char* tag) {
    return std::string("gfx950,256,") + token +
           ",4096,256,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0,"
           "32,0,"
           "1," +
           kernel + ",0,1,k2,0," + us + "," + tag + "\n";
  };
  const std::string other_key = row("32", "other_key", "9", "");
  const MergedTable table = merged({columns + row("16", "first", "50", "") + row("16", "second", "40", "x") +
                                    other_key + row("16", "fastest", "45", "")},
                                   {}, Operation::fused_moe);
  EXPECT_EQ(table.text,
            columns + other_key + row("16", "fastest", "45", "") + row("16", "second", "40", "x"));
}

TEST(Merge, TheSchemaAddsOrTakesGfx) {
  const std::string old_header = header.substr(4);
  MergeOptions options;
  options.schema = CsvSchema::aiter;
  EXPECT_EQ(merged({old_header + "256,1,512,512,ck,0,0,9.0,a,1,2,0\n"}, options).text,
            header + "gfx950,256,1,512,512,ck,0,0,9.0,a,1,2,0\n");
  options.schema = CsvSchema::seed;
  EXPECT_EQ(merged({header + "gfx950,256,1,512,512,ck,0,0,9.0,a,1,2,0\n"}, options).text,
            old_header + "256,1,512,512,ck,0,0,9.0,a,1,2,0\n");
  std::vector<TunedFile> files;
  files.push_back(
      parsed(header + "x86-amx,8,1,512,512,ck,0,0,9.0,a,1,2,0\n", "a.csv", Operation::a8w8_blockscale));
  const auto refused = merge_tables(files, options);
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.message(), HasSubstr("a.csv:2: a row of x86-amx"));
}

TEST(Merge, MissingKeyColumnsHoldWhatTheirAbsenceMeans) {
  const MergedTable table =
      merged({"gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,us,kernelName\n",
              "gfx,cu_num,M,N,K,dtype,libtype,us,kernelName\n"
              "gfx950,256,1,64,64,torch.float16,asm,5.0,a\n"},
             {}, Operation::a16w16);
  EXPECT_THAT(table.text,
              HasSubstr("gfx950,256,1,64,64,False,torch.float16,torch.float16,False,False,asm,5.0,a\n"));
}

TEST(Merge, AGroupKeepsOnePackedWeight) {
  const std::string start =
      "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,us,kernelName\n";
  const auto row = [](int m, const char* us, const char* kernel) {
    return "x86-amx,8," + std::to_string(m) + ",64,64,False,bf16,bf16,False,True,x," + us + "," + kernel +
           "\n";
  };
  const MergedTable table =
      merged({start + row(1, "5.0", "tiled_r1_wpanel16") + row(2, "9.0", "tiled_r1_wpanel16"),
              start + row(1, "6.0", "onednn_r1_wonednn") + row(2, "7.0", "onednn_r1_wonednn")},
             {}, Operation::a16w16);
  EXPECT_EQ(table.text, start + row(1, "6.0", "onednn_r1_wonednn") + row(2, "7.0", "onednn_r1_wonednn"));
  EXPECT_THAT(table.notes, ElementsAre(HasSubstr("a.csv:2: left out: its group keeps the weight as onednn"),
                                       HasSubstr("a.csv:3: left out")));
}

TEST(Merge, FilesOfTwoTablesAreRefused) {
  std::vector<TunedFile> files;
  files.push_back(parsed(header, "a.csv", Operation::a8w8_blockscale));
  files.push_back(parsed(header, "b.csv", OperationForm(Operation::a8w8_blockscale, true)));
  const auto refused = merge_tables(files, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.message(), HasSubstr("b.csv"));
}

TEST(CompressTable, RangesAreWrittenAndAnswer) {
  const TunedFile file = parsed(header +
                                    "gfx950,256,1,512,512,ck,0,0,5.0,a,,,0\n"
                                    "gfx950,256,2,512,512,ck,0,0,6.0,a,,,0\n"
                                    "gfx950,256,4,512,512,ck,0,0,7.0,b,,,0\n",
                                "a.csv", Operation::a8w8_blockscale);
  const auto table = compress_table(file);
  ASSERT_TRUE(table.ok()) << table.message();
  EXPECT_EQ(table->text, header.substr(0, header.size() - 1) + ",m_from,regret\n" +
                             "gfx950,256,2,512,512,ck,0,0,6.0,a,,,0,1,0.0\n" +
                             "gfx950,256,4,512,512,ck,0,0,7.0,b,,,0\n");
  auto again = parsed(table->text, "a.csv", Operation::a8w8_blockscale);
  const LookupKey key{"gfx950", 256, file.entries[0].problem};
  const TunedTable answers(std::move(again.entries));
  ASSERT_FALSE(answers.lookup(key).empty());
  EXPECT_EQ(answers.lookup(key).front().match, Match::range);
  EXPECT_EQ(answers.lookup(key).front().entry->kernel_name, "a");
}

TEST(MergeFixtures, AsManyRowsAsKeys) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  std::vector<TunedFile> files;
  std::set<std::string> keys;
  for (const char* path :
       {"/aiter/configs/a8w8_tuned_gemm.csv", "/legacy-2026-01/configs/a8w8_tuned_gemm.csv"}) {
    auto file = read_tuned_csv(fixtures + path, {});
    ASSERT_TRUE(file.ok()) << file.message();
    for (TunedEntry entry : file->entries) {
      if (entry.gfx.empty()) entry.gfx = gfx_of_cu_num(entry.cu_num);
      keys.insert(row_key(entry, file->schema(), true));
    }
    files.push_back(std::move(*file));
  }
  const auto table = merge_tables(files, {});
  ASSERT_TRUE(table.ok()) << table.message();
  EXPECT_EQ(table->rows, keys.size());
  EXPECT_EQ(table->duplicates, files[0].entries.size() + files[1].entries.size() - keys.size());
  EXPECT_GT(table->duplicates, 500U);
}

TEST(MergeFixtures, OneFileStaysAsItIs) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  auto file = read_tuned_csv(fixtures + "/aiter/configs/a8w8_blockscale_tuned_gemm.csv", {});
  ASSERT_TRUE(file.ok()) << file.message();
  const std::string content = *file->document.content;
  std::vector<TunedFile> files;
  files.push_back(std::move(*file));
  const auto table = merge_tables(files, {});
  ASSERT_TRUE(table.ok()) << table.message();
  EXPECT_EQ(table->text, content);
}

TEST(MergeFixtures, ADenseTableAsRangesAnswersEveryTunedM) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  auto file = read_tuned_csv(fixtures + "/aiter/configs/a8w8_blockscale_tuned_gemm.csv", {});
  ASSERT_TRUE(file.ok()) << file.message();
  const auto table = compress_table(*file);
  ASSERT_TRUE(table.ok()) << table.message();
  RecordProperty("rows_before", static_cast<int>(table->rows_before));
  RecordProperty("rows_after", static_cast<int>(table->rows_after));
  EXPECT_EQ(table->rows_before, 6630U);
  EXPECT_LT(table->rows_after, table->rows_before / 10);
  auto again =
      parse_tuned_csv("a.csv", table->text, {.operation = OperationForm(Operation::a8w8_blockscale)});
  ASSERT_TRUE(again.ok());
  const TunedTable ranges(std::move(again->entries));
  for (const TunedEntry& row : file->entries) {
    const auto hits = ranges.lookup({row.gfx, row.cu_num, row.problem});
    ASSERT_FALSE(hits.empty()) << row.line;
    EXPECT_TRUE(same_winner(*hits.front().entry, row)) << row.line;
  }
}

}  // namespace
}  // namespace gemmtune
