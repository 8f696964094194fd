#include "formats/aiter/table_audit.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <string>
#include <unordered_set>
#include <utility>

#include "formats/aiter/merge_tables.h"
#include "formats/aiter/rates.h"
#include "support/fixtures.h"
#include "tuned/groups.h"
#include "tuned/key.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr const char* header = "gfx,cu_num,M,N,K,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n";
constexpr const char* name = "a8w8_blockscale_tuned_gemm.csv";

TunedFile parsed(const std::string& content, const std::string& path = name) {
  auto file = parse_tuned_csv(path, content, {});
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TunedFile();
}

std::vector<Finding> findings_of(std::vector<TunedFile>& files) { return audit_tables(files, {}); }

/// "kind:line" in order.
std::vector<std::string> found(std::vector<TunedFile>& files) {
  std::vector<std::string> texts;
  for (const Finding& finding : findings_of(files)) {
    texts.push_back(std::string(to_string(finding.kind)) + ":" + std::to_string(finding.line));
  }
  return texts;
}

std::vector<std::string> found(const std::string& content) {
  std::vector<TunedFile> files;
  files.push_back(parsed(content));
  return found(files);
}

std::vector<TunedFile> every_kind() {
  auto file = read_tuned_csv(GEMMTUNE_TEST_DATA "/audit/every_kind_bf16_tuned_gemm.csv", {});
  EXPECT_TRUE(file.ok()) << file.message();
  std::vector<TunedFile> files;
  files.push_back(std::move(*file));
  return files;
}

TEST(TableAudit, EveryKindOnce) {
  auto files = every_kind();
  EXPECT_THAT(found(files),
              ElementsAre("malformed:2", "failed_time:3", "over_tolerance:4", "impossible_rate:5",
                          "wrong_rate:6", "duplicate_key:8", "mixed_layout:10", "dominated:11",
                          "unreachable:13", "redundant:15", "wrong_libtype:17"));
}

TEST(TableAudit, TheOtherPlaceIsNamed) {
  std::vector<TunedFile> files;
  files.push_back(parsed(std::string(header) + "gfx950,256,1,512,512,ck,0,0,9.0,a,,,0\n",
                         "x/a8w8_blockscale_tuned_gemm.csv"));
  files.push_back(parsed(std::string(header) + "gfx950,256,1,512,512,ck,0,0,5.0,b,,,0\n",
                         "y/a8w8_blockscale_tuned_gemm.csv"));
  const auto findings = findings_of(files);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].source, 0U);
  EXPECT_THAT(findings[0].text, HasSubstr("y/a8w8_blockscale_tuned_gemm.csv:2"));
}

TEST(TableAudit, RatesAreRightUpToRoundingOfBothNumbers) {
  // 2·1·2048·3072 / 4.8294 µs and its bytes, as AITER's own file has them.
  EXPECT_THAT(found(std::string(header) + "gfx950,256,1,2048,3072,ck,8,2,4.8294,a,2.61,1304.22,0.0\n"),
              IsEmpty());
  EXPECT_THAT(found(std::string(header) + "gfx950,256,1,2048,3072,ck,8,2,4.8294,a,2.62,1304.22,0.0\n"),
              ElementsAre("wrong_rate:2"));
  EXPECT_THAT(found(std::string(header) + "gfx950,256,1,2048,3072,ck,8,2,4.8294,a,2.61,1.3,0.0\n"),
              ElementsAre("wrong_rate:2"));
  EXPECT_THAT(found(std::string(header) + "gfx950,256,1,2048,3072,ck,8,2,4.8294,a,0,0,0.0\n"),
              ElementsAre("wrong_rate:2"));
  EXPECT_THAT(found(std::string(header) + "gfx950,256,1,2048,3072,ck,8,2,4.8294,a,,,0.0\n"), IsEmpty());
}

TEST(TableAudit, EitherFormulaOfABandwidthIsRight) {
  Problem dense;
  dense.m = dense.n = dense.k = 1024;
  dense.y_type = DataType::f32;
  const double elements = 1024.0 * 1024;
  EXPECT_TRUE(agrees_with_bandwidth(dense, 10, elements * 6 / 1e4));
  EXPECT_TRUE(agrees_with_bandwidth(dense, 10, elements * 8 / 1e4));
  EXPECT_FALSE(agrees_with_bandwidth(dense, 10, elements * 4 / 1e4));
  Problem batched = default_problem(Operation::batched_a8w8);
  batched.m = batched.n = batched.k = 1024;
  EXPECT_TRUE(agrees_with_bandwidth(batched, 10, elements * 4 / 1e4));
  EXPECT_TRUE(agrees_with_bandwidth(batched, 10, elements * 6 / 1e4));
  Problem blocks = default_problem(Operation::a8w8_blockscale);
  blocks.m = blocks.n = blocks.k = 1024;
  EXPECT_FALSE(agrees_with_bandwidth(blocks, 10, elements * 6 / 1e4));
}

// Issue 19, 27: the name says whose kernel it is.
TEST(TableAudit, TheLibtypeIsThatOfTheKernelsName) {
  const auto with = [](const std::string& libtype, const std::string& kernel) {
    return found(std::string(header) + "gfx950,256,1,512,512," + libtype + ",0,0,9.0," + kernel + ",,,0\n");
  };
  EXPECT_THAT(with("onednn", "tiled_r1_mr8"), ElementsAre("wrong_libtype:2"));
  EXPECT_THAT(with("ck", "_ZN5aiter24bf16gemm"), ElementsAre("wrong_libtype:2"));
  EXPECT_THAT(with("asm", "Cijk_Alik"), ElementsAre("wrong_libtype:2"));
  EXPECT_THAT(with("tiled", "tiled_r1_mr8"), IsEmpty());
  EXPECT_THAT(with("asm", "_ZN5aiter24bf16gemm"), IsEmpty());
  EXPECT_THAT(with("ck", "a8w8_blockscale_1x128"), IsEmpty());
  EXPECT_THAT(with("", "tiled_r1_mr8"), IsEmpty());
}

// Issue 19, 10: what AITER's other tuners round and leave out is no wrong rate.
TEST(TableAudit, MxscaleRoundsToOneDecimalAndGroupedMoeHoldsZeros) {
  std::vector<TunedFile> files;
  files.push_back(
      parsed("gfx,b,m,n,k,libtype,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n"
             "gfx950,8,16,512,512,opus,0,0,5.0,opus_bmm,13.4,458.8,0\n"
             "gfx950,8,16,512,512,opus,0,0,5.0,opus_bmm2,14.4,458.8,0\n",
             "batched_gemm_a8w8_blockscale_mxscale_tuned.csv"));
  const auto findings = findings_of(files);
  std::vector<std::size_t> wrong;
  for (const Finding& finding : findings) {
    if (finding.kind == FindingKind::wrong_rate) wrong.push_back(finding.line);
  }
  EXPECT_THAT(wrong, ElementsAre(3U));
}

TEST(TableAudit, ZerosOfGroupedMoeAreNoWrongRate) {
  auto file = read_tuned_csv(GEMMTUNE_TEST_DATA "/tables/tuned_grouped_fmoe.csv", {});
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_FALSE(file->entries.empty());
  std::vector<TunedFile> files;
  files.push_back(std::move(*file));
  EXPECT_THAT(found(files), IsEmpty());
}

// AITER looks up whatever inter_dim is and pads the packed weight itself.
TEST(TableAudit, AnInterDimOfNoWholeBlockIsReachableInFourBits) {
  std::vector<TunedFile> files;
  files.push_back(parsed(
      "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
      "doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,bw,_"
      "tag\n"
      "256,4,2880,360,128,4,ActivationType.Swiglu,torch.bfloat16,torch.float4_e2m1fn_x2,"
      "torch.float4_e2m1fn_x2,QuantType.per_1x32,1,0,32,0,10.0,one,0.0%,10.0,two,0.0%,20.0,0,,,\n",
      "tuned_fmoe.csv"));
  ASSERT_EQ(files.front().entries.size(), 1U);
  EXPECT_THAT(found(files), IsEmpty());
}

TEST(TableAudit, A2024TableAnswersNoDevice) {
  EXPECT_THAT(found("M,N,K,kernelId,splitK,us,kernelName\n1,512,512,0,0,5.0,a\n"),
              ElementsAre("malformed:1", "unreachable:2"));
}

TEST(TableAudit, ATableWithoutTimesHasNoFailedOnes) {
  std::vector<TunedFile> files;
  files.push_back(
      parsed("gfx,cu_num,token,model_dim,inter_dim,expert,topk,shared_expert_id,act_type,dtype,q_dtype_a,q_"
             "dtype_w,q_type,"
             "use_g1u1,doweight_stage1,hidden_pad,intermediate_pad,gate_mode,block_m,ksplit,kernelName1,"
             "kernelName2\n"
             "gfx950,256,1,4096,512,8,2,7,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,"
             "QuantType.No,"
             "1,0,0,0,x,32,0,a,b\n",
             "tuned_fhmoe.csv"));
  EXPECT_EQ(files[0].entries.size(), 1U);
  EXPECT_THAT(found(files), IsEmpty());
}

TEST(TableFix, DropsRecomputesAndKeepsTheRest) {
  auto files = every_kind();
  const auto findings = findings_of(files);
  const FixedTable fixed = fix_table(files[0], 0, findings, FixOptions());
  EXPECT_EQ(fixed.recomputed, 1U);
  for (const FindingKind kind : all_finding_kinds()) {
    EXPECT_EQ(fixed.dropped[static_cast<std::size_t>(kind)], kinds_fixed_by_default().has(kind) ? 1U : 0U)
        << to_string(kind);
  }
  std::vector<TunedFile> clean;
  clean.push_back(parsed(fixed.text, "bf16_tuned_gemm.csv"));
  EXPECT_THAT(found(clean), ElementsAre("mixed_layout:5", "dominated:6", "redundant:9", "wrong_libtype:11"));
  // All lines but the one with other rates are lines of the file.
  std::unordered_set<std::string_view> old_lines;
  for (const CsvLine& line : files[0].document.lines) old_lines.insert(line.text);
  std::vector<std::string> new_lines;
  for (const CsvLine& line : clean[0].document.lines) {
    if (old_lines.count(line.text) == 0) new_lines.emplace_back(line.text);
  }
  ASSERT_EQ(new_lines.size(), 1U);
  EXPECT_THAT(new_lines[0], HasSubstr(",0.0,0.05,52.68"));
}

TEST(TableFix, NamedKindsGoToo) {
  auto files = every_kind();
  const auto findings = findings_of(files);
  FixOptions options;
  options.kinds.add(FindingKind::dominated);
  options.kinds.add(FindingKind::redundant);
  options.kinds.add(FindingKind::mixed_layout);
  options.kinds.add(FindingKind::wrong_libtype);
  std::vector<TunedFile> clean;
  clean.push_back(parsed(fix_table(files[0], 0, findings, options).text, "bf16_tuned_gemm.csv"));
  EXPECT_THAT(found(clean), IsEmpty());
}

TEST(TableFix, RowsWithAZeroTimeStayUnlessTheyAreNamed) {
  std::vector<TunedFile> files;
  files.push_back(parsed(std::string(header) + "gfx950,256,1,512,512,ck,0,0,0.0,by_hand,,,0\n" +
                         "gfx950,256,2,512,512,ck,0,0,inf,failed,,,0\n"));
  const auto findings = findings_of(files);
  const FixedTable fixed = fix_table(files[0], 0, findings, FixOptions());
  EXPECT_THAT(fixed.text, HasSubstr("by_hand"));
  EXPECT_THAT(fixed.text, Not(HasSubstr("failed")));
  EXPECT_EQ(fixed.rows, 1U);
  FixOptions named;
  named.drop_zero_times = true;
  EXPECT_EQ(fix_table(files[0], 0, findings, named).text, header);
}

// AITER's block-scale tables hold runs of one kernel over M that padding does not reach.
TEST(TableFix, RedundantRowsAreThoseThatNoLookUpNeeds) {
  std::string rows;
  for (const char* m : {"1", "2", "4", "8", "16", "20", "24", "32"}) {
    rows += std::string("gfx950,256,") + m + ",512,512,ck,0,0,5.0,one,,,0\n";
  }
  std::vector<TunedFile> files;
  files.push_back(parsed(header + rows));
  FixOptions options;
  options.kinds.add(FindingKind::redundant);
  const FixedTable fixed = fix_table(files[0], 0, findings_of(files), options);
  std::vector<TunedFile> clean;
  clean.push_back(parsed(fixed.text));
  const TunedTable before(files[0].entries);
  const TunedTable after(clean[0].entries);
  LookupKey key{"gfx950", 256, files[0].entries[0].problem};
  for (key.problem.m = 1; key.problem.m <= 40; ++key.problem.m) {
    EXPECT_EQ(before.lookup(key).empty(), after.lookup(key).empty()) << key.problem.m;
  }
  EXPECT_EQ(fixed.dropped[static_cast<std::size_t>(FindingKind::redundant)], 6U);  // all but 16 and 32
}

TEST(TableFix, TheBestOfWhatIsLeftOfAKeyStays) {
  std::vector<TunedFile> files;
  files.push_back(parsed(std::string("# kept\r\n") + header +
                         "gfx950, 256,1,512,512,ck,0,0,5.0,wrong,,,0.5\n\n"
                         "gfx950, 256,1,512,512,ck,0,0,7.0,right,,,0.0\n"
                         "gfx950, 256,1,512,512,ck,0,0,9.0,slow,,,0.0"));
  const auto findings = findings_of(files);
  const FixedTable fixed = fix_table(files[0], 0, findings, FixOptions());
  EXPECT_EQ(fixed.text,
            std::string("# kept\r\n") + header + "\ngfx950, 256,1,512,512,ck,0,0,7.0,right,,,0.0\n");
}

TEST(TableFix, MoreBadRowsThanDiagnosticsAreKept) {
  std::string content = header;
  for (int row = 0; row < 1500; ++row) content += "gfx950,256,x,512,512,ck,0,0,5.0,a,,,0\n";
  std::vector<TunedFile> files;
  files.push_back(parsed(content));
  const auto findings = findings_of(files);
  EXPECT_EQ(fix_table(files[0], 0, findings, FixOptions()).text, header);
}

/// Findings by kind of a fixture.
std::map<FindingKind, std::size_t> counts(const std::string& path) {
  auto file = read_tuned_csv(path, {});
  EXPECT_TRUE(file.ok()) << file.message();
  std::vector<TunedFile> files;
  files.push_back(std::move(*file));
  std::map<FindingKind, std::size_t> by_kind;
  for (const Finding& finding : findings_of(files)) ++by_kind[finding.kind];
  return by_kind;
}

TEST(TableAuditFixtures, KnownDirtIsFound) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  const std::string models = fixtures + "/aiter/configs/model_configs/";
  using enum FindingKind;
  // 242 rows with a time of 0 over the two files that have them.
  EXPECT_EQ(counts(models + "gptoss_bf16_tuned_gemm.csv")[failed_time] +
                counts(models + "dsv3_bf16_tuned_gemm.csv")[failed_time],
            242U);
  auto dsv3 = counts(models + "dsv3_a8w8_bpreshuffle_tuned_gemm.csv");
  EXPECT_EQ(dsv3[failed_time], 1U);          // inf
  EXPECT_EQ(dsv3[wrong_rate], 275U + 477U);  // ten times too high, and zeros
  EXPECT_EQ(counts(models + "dsv4_a8w8_blockscale_bpreshuffle_tuned_gemm.csv")[wrong_rate],
            669U + 4U);                                                     // TB/s, and zeros
  EXPECT_EQ(counts(models + "dsv4_fp8fp4_tuned_fmoe.csv")[malformed], 8U);  // short rows
  EXPECT_EQ(counts(models + "glm5_fp4_tuned_fmoe.csv")[malformed], 0U);     // they lack the tag only
  for (const char* clean : {"a8w8_tuned_gemm.csv", "a8w8_blockscale_tuned_gemm.csv", "bf16_tuned_gemm.csv",
                            "a4w4_blockscale_tuned_gemm.csv", "a8w8_tuned_batched_gemm.csv"}) {
    auto by_kind = counts(fixtures + "/aiter/configs/" + clean);
    for (const FindingKind kind :
         {malformed, failed_time, wrong_rate, impossible_rate, duplicate_key, unreachable}) {
      EXPECT_EQ(by_kind[kind], 0U) << clean << " " << to_string(kind);
    }
  }
  EXPECT_EQ(counts(fixtures + "/aiter/configs/a8w8_bpreshuffle_tuned_gemm.csv")[over_tolerance], 14U);
  auto mxscale = counts(models + "dsv4_batched_gemm_a8w8_blockscale_mxscale_tuned.csv");
  EXPECT_EQ(mxscale[wrong_rate], 0U);
}

TEST(TableAudit, ARowThatAnswersStaysInAFixedTable) {
  const std::string columns =
      "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
      "doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage\n";
  const std::string key =
      "gfx950,256,16,4096,256,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,"
      "QuantType.No,1,0,";
  std::vector<TunedFile> files;
  files.push_back(parsed(columns + key + "32,0,1,k1,0,1,k2,0,2,49.07\n", "tuned_fmoe.csv"));
  ASSERT_EQ(files[0].entries.size(), 1U) << "read, but for the switch";
  const auto findings = findings_of(files);
  ASSERT_EQ(findings.at(0).kind, FindingKind::malformed);
  EXPECT_EQ(findings[0].severity(), Severity::warning);
  EXPECT_EQ(fix_table(files[0], 0, findings, FixOptions()).rows, 1U);
}

std::vector<std::string> tuned_fixtures(const std::string& fixtures) {
  std::vector<std::string> paths;
  for (const auto& file : std::filesystem::recursive_directory_iterator(fixtures)) {
    const std::string path = file.path().string();
    const bool tuned = path.find("tuned") != std::string::npos && path.find("untuned") == std::string::npos;
    if (path.ends_with(".csv") && tuned) paths.push_back(path);
  }
  return paths;
}

/// The rows whose key another row has, too, which is chosen.
std::unordered_set<std::size_t> losers_of(const std::vector<TunedEntry>& entries) {
  std::unordered_set<std::size_t> losers;
  std::map<std::string, std::size_t> chosen;
  for (std::size_t index = 0; index < entries.size(); ++index) {
    const TunedEntry& row = entries[index];
    if (!is_of_look_up(row)) continue;
    const std::string key = fmt::format("{} {} {} {} {}", table_gfx(row), row.cu_num, row.problem.m,
                                        print(group_of(row.problem)), row.unknown_types);
    const auto [at, made] = chosen.try_emplace(key, index);
    if (made) continue;
    const bool better = better_row(row, entries[at->second]);
    losers.insert(better ? std::exchange(at->second, index) : index);
  }
  return losers;
}

TEST(TableAuditFixtures, ARowIsUnreachableExactlyWhereNoRequestGetsIt) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  std::size_t unreachable = 0;
  for (const std::string& path : tuned_fixtures(fixtures)) {
    auto file = read_tuned_csv(path, {});
    ASSERT_TRUE(file.ok()) << file.message();
    if (!file->schema().dispatched) continue;
    const TunedTable table(std::move(file->entries));
    const std::unordered_set<std::size_t> losers = losers_of(table.entries());
    for (std::size_t index = 0; index < table.entries().size(); ++index) {
      const TunedEntry& row = table.entries()[index];
      if (losers.count(index) != 0 || !may_be_chosen(row)) continue;
      const auto hits =
          table.lookup({std::string(table_gfx(row)), row.cu_num, row.problem, row.unknown_types});
      const bool reached = !hits.empty() && hits.front().entry == &row;
      EXPECT_EQ(why_unreachable(row).empty(), reached) << path << ":" << row.line;
      unreachable += reached ? 0 : 1;
    }
  }
  EXPECT_GT(unreachable, 0U);
}

TEST(TableAuditFixtures, AFixedTableIsCleanAndStays) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  for (const std::string& path : tuned_fixtures(fixtures)) {
    auto file = read_tuned_csv(path, {});
    ASSERT_TRUE(file.ok()) << file.message();
    std::vector<TunedFile> files;
    files.push_back(std::move(*file));
    const FixedTable fixed = fix_table(files[0], 0, findings_of(files), FixOptions());
    std::vector<TunedFile> clean;
    clean.push_back(parsed(fixed.text, path));
    const auto left = findings_of(clean);
    for (const Finding& finding : left) {
      // A row that answers stays, with an odd cell, and one with a time of 0.
      const bool stays = finding.text == "a time of 0 µs" ||
                         (finding.kind == FindingKind::malformed && finding.severity() == Severity::warning);
      EXPECT_FALSE(kinds_fixed_by_default().has(finding.kind) && !stays) << path << ":" << finding.line;
      EXPECT_NE(finding.kind, FindingKind::wrong_rate) << path << ":" << finding.line << " " << finding.text;
    }
    EXPECT_EQ(fix_table(clean[0], 0, left, FixOptions()).text, fixed.text) << path;
  }
}

}  // namespace
}  // namespace gemmtune
