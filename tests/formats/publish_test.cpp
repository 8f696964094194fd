#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "base/log.h"
#include "formats/aiter/environment_json.h"
#include "formats/aiter/tuned_csv.h"
#include "scratch_folder.h"
#include "support/fixtures.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TunedEntry cpu_row(std::int64_t m, double us) {
  TunedEntry entry;
  entry.gfx = "x86-avx512";
  entry.cu_num = 2;
  entry.problem.m = m;
  entry.problem.n = 2048;
  entry.problem.k = 1024;
  entry.libtype = "tiled";
  entry.kernel_name = "tiled_r1_mr8";
  entry.us = us;
  entry.verdict = Verdict::win;
  entry.env = "abc12345";
  return entry;
}

TunedEntry amd_row(std::int64_t m, double us) {
  TunedEntry entry = cpu_row(m, us);
  entry.gfx = "gfx942";
  entry.cu_num = 80;
  entry.verdict = Verdict::none;
  entry.env.clear();
  return entry;
}

const std::string own_names =
    ",spread,default_us,default_kernel,speedup,verdict,ties,m_from,regret,pdl_kernelName,pdl_us,env,accuracy,"
    "speedup_low,speedup_high";
const std::string aiter_header =
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,"
    "tflops,bw";
const std::string other_row =
    "gfx950,256,16,2048,1024,False,torch.bfloat16,torch.bfloat16,False,False,asm, 3,4,7.90,_ZN5x,0.0,0.1,0.2";

class Publish : public ScratchTest {
 protected:
  std::string file() const { return path("tuned.csv"); }
  std::string text() const { return content("tuned.csv"); }
  void put(const std::string& content_text) const { write("tuned.csv", content_text); }
  void publish_ok(const std::vector<TunedEntry>& entries, const PublishOptions& options = {}) const {
    const Status status = publish(file(), entries, options);
    ASSERT_TRUE(status.ok()) << status.message();
  }
};

TEST_F(Publish, ANewFileIsWhatTheWriterGives) {
  publish_ok({cpu_row(1, 5), cpu_row(16, 6)});
  EXPECT_EQ(text(), write_tuned_csv(Operation::a16w16, {cpu_row(1, 5), cpu_row(16, 6)}, CsvSchema::aiter));
  EXPECT_THAT(text(), StartsWith(aiter_header + own_names + "\n"));
}

TEST_F(Publish, ZeroBytesBlankLinesAndCommentsBecomeAFile) {
  for (const std::string start : {"", "\n\n", "# mine\n", "# mine"}) {
    put(start);
    publish_ok({cpu_row(1, 5)});
    EXPECT_THAT(text(), StartsWith(start)) << start;
    const auto read = read_tuned_csv(file());
    ASSERT_TRUE(read.ok()) << read.message();
    EXPECT_EQ(read->entries.size(), 1U) << start;
  }
}

TEST_F(Publish, OtherBytesStay) {
  const std::string start = "\xEF\xBB\xBF" + aiter_header + ",_tag\r\n# note\r\n\r\n" + other_row +
                            ",\"a,b\"\r\n" + "garbage,,\r\n" + other_row.substr(0, 60) + "\n" + "\t\r\n";
  put(start);
  publish_ok({cpu_row(16, 5)});
  const std::string expected =
      "\xEF\xBB\xBF" + aiter_header + ",_tag" + own_names + start.substr(start.find("\r\n"));
  EXPECT_THAT(text(), StartsWith(expected));
  EXPECT_EQ(text().substr(expected.size()),
            "x86-avx512,2,16,2048,1024,False,torch.bfloat16,torch.bfloat16,False,False,tiled,0,0,5.0,"
            "tiled_r1_mr8,0.0,13.42,858.52,,,,,,win,,,,,,abc12345,,,\r\n");
}

TEST_F(Publish, AReplacedRowKeepsItsPlaceAndItsUnknownCells) {
  put(aiter_header + ",note\n" + other_row + ",x\n" +
      "gfx942,80,16,2048,1024,FALSE,torch.bfloat16,torch.bfloat16,0,0,asm,3,4,9.0,_ZN5x,0.0,0.1,0.2,\"a,"
      "b\"\n" +
      other_row.substr(0, 4) + "42" + other_row.substr(6) + ",last");
  publish_ok({amd_row(16, 4)});
  EXPECT_EQ(text(),
            aiter_header + ",note\n" + other_row + ",x\n" +
                "gfx942,80,16,2048,1024,False,torch.bfloat16,torch.bfloat16,False,False,tiled,0,0,4.0,"
                "tiled_r1_mr8,0.0,16.78,1073.15,\"a,b\"\n" +
                other_row.substr(0, 4) + "42" + other_row.substr(6) + ",last");
}

TEST_F(Publish, HeaderGrowsOnlyWhereARowNeedsIt) {
  put(aiter_header + "\n" + other_row + "\n");
  publish_ok({amd_row(16, 4)});
  EXPECT_THAT(text(), StartsWith(aiter_header + "\n" + other_row + "\n"));
  TunedEntry with_own = amd_row(32, 4);
  with_own.default_us = 5;
  publish_ok({with_own});
  EXPECT_THAT(text(), StartsWith(aiter_header + own_names + "\n" + other_row + "\n"));
  EXPECT_EQ(read_tuned_csv(file())->entries.size(), 3U);
}

TEST_F(Publish, AColumnOfBitClassesIsOnlyWhereARowHasOne) {
  publish_ok({cpu_row(16, 4)});
  EXPECT_THAT(text(), StartsWith(aiter_header + own_names + "\n"));
  TunedEntry marked = cpu_row(32, 4);
  marked.bits = "f32-0123456789ab";
  publish_ok({marked});
  EXPECT_THAT(text(), StartsWith(aiter_header + own_names + ",bits\n"));
  const auto read = read_tuned_csv(file());
  ASSERT_TRUE(read.ok()) << read.message();
  ASSERT_EQ(read->entries.size(), 2U);
  EXPECT_TRUE(read->entries[0].bits.empty());
  EXPECT_EQ(read->entries[1].bits, "f32-0123456789ab");
  const std::string before = text();
  publish_ok({marked});
  EXPECT_EQ(text(), before) << "the same row again";
  marked.bits = "";
  publish_ok({marked});
  EXPECT_TRUE(read_tuned_csv(file())->entries[1].bits.empty());
}

TEST_F(Publish, OldHeadersGetTheColumnsThatTheKeyNeeds) {
  put("M,N,K,bias,dtype,outdtype,scaleAB,cu_num,libtype,solidx,splitK,us\n"
      "16,2048,1024,False,torch.bfloat16,torch.bfloat16,False,80,asm,1,2,9.0\n");
  TunedEntry packed = amd_row(16, 4);
  packed.problem.weight_layout = WeightLayout::any;
  publish_ok({packed});
  const auto read = read_tuned_csv(file());
  ASSERT_TRUE(read.ok());
  ASSERT_EQ(read->entries.size(), 2U) << text();
  EXPECT_FALSE(read->has_gfx);
  EXPECT_FALSE(is_packed(read->entries[0].problem));
  EXPECT_TRUE(is_packed(read->entries[1].problem));
  EXPECT_EQ(read->entries[1].kernel_name, "tiled_r1_mr8");
  EXPECT_THAT(text(), StartsWith("M,N,K,bias,dtype,outdtype,scaleAB,cu_num,libtype,solidx,splitK,us,"
                                 "bpreshuffle,kernelName,err_ratio\n"));
}

TEST_F(Publish, OneRowAKey) {
  publish_ok({cpu_row(1, 5), cpu_row(1, 7)});  // the later of two counts
  EXPECT_EQ(read_tuned_csv(file())->entries.at(0).us, 7);
  const std::string row = text().substr(text().find('\n') + 1);
  put(text() + row + cpu_row(2, 1).gfx + "\n" + row);
  publish_ok({cpu_row(1, 3)});
  const auto read = read_tuned_csv(file());
  ASSERT_EQ(read->entries.size(), 1U) << text();
  EXPECT_EQ(read->entries[0].us, 3);
  EXPECT_THAT(text(), EndsWith("\nx86-avx512\n"));  // what nobody can read stays
}

TEST_F(Publish, AnInvalidTimeNeverReplacesAValidOne) {
  publish_ok({cpu_row(1, 5)});
  const std::string before = text();
  for (const double us : {0.0, -1.0, std::nan("")}) publish_ok({cpu_row(1, us)});
  EXPECT_EQ(text(), before);
}

TEST_F(Publish, SortOrdersRowsAndLeavesTheOtherLines) {
  put(aiter_header + "\n# first\n" + other_row);
  TunedEntry wide = amd_row(4, 1);
  wide.problem.n = 4096;
  PublishOptions options;
  options.sort = true;
  publish_ok({wide, amd_row(8, 1), amd_row(2, 1), cpu_row(1, 1)}, options);
  std::string order;
  const auto sorted = read_tuned_csv(file());
  ASSERT_TRUE(sorted.ok());
  for (const TunedEntry& entry : sorted->entries) {
    order += entry.gfx + ":" + std::to_string(entry.problem.n) + ":" + std::to_string(entry.problem.m) + " ";
  }
  EXPECT_EQ(order, "gfx942:2048:2 gfx942:2048:8 gfx942:4096:4 gfx950:2048:16 x86-avx512:2048:1 ");
  EXPECT_THAT(text(), HasSubstr("\n# first\ngfx942"));
  EXPECT_THAT(text(), HasSubstr(other_row + "\n"));
}

TEST_F(Publish, FilesWithoutGfxTakeAmdRowsOnly) {
  const std::string seed = aiter_header.substr(4) + "\n";
  put(seed);
  const Status status = publish(file(), {amd_row(1, 5), cpu_row(1, 5)}, {});
  EXPECT_EQ(status.code(), StatusCode::invalid_argument);
  EXPECT_THAT(status.message(), HasSubstr("no column gfx"));
  EXPECT_THAT(status.message(), HasSubstr("x86-avx512"));
  EXPECT_EQ(text(), seed);
  publish_ok({amd_row(1, 5)});
  EXPECT_FALSE(read_tuned_csv(file())->has_gfx);
  PublishOptions options;
  options.schema = CsvSchema::seed;
  EXPECT_FALSE(publish(path("new.csv"), {cpu_row(1, 5)}, options).ok());
  EXPECT_FALSE(fs::exists(path("new.csv")));
  EXPECT_TRUE(publish(path("new.csv"), {amd_row(1, 5)}, options).ok());
  EXPECT_THAT(content("new.csv"), StartsWith("cu_num,M,N,K"));
}

TEST_F(Publish, WhatTheColumnsCannotHoldIsRefused) {
  std::vector<TunedEntry> odd(4, cpu_row(1, 5));
  odd[0].problem.w_order = Order::column_major;
  odd[1].problem.batch = 2;
  odd[2].problem.operation = Operation::a8w8;
  odd[3].problem.alignment = 64;
  for (const TunedEntry& entry : odd) {
    EXPECT_FALSE(publish(file(), {entry}, {}).ok()) << print(entry.problem);
  }
  EXPECT_THAT(publish(file(), {odd[0]}, {}).message(),
              AllOf(HasSubstr("w_order=N"), HasSubstr("row-major operands only"), HasSubstr(".yaml")));
  put("M,N,K,bias,dtype,outdtype,libtype,solidx,soltimes\n");
  EXPECT_THAT(publish(file(), {amd_row(1, 5)}, {}).message(), HasSubstr("no column cu_num"));
  put("token,model_dim,us\n");
  EXPECT_THAT(publish(file(), {amd_row(1, 5)}, {}).message(),
              HasSubstr("is that of a table of fused_moe, expected a16w16"));
}

TEST_F(Publish, ModeAndLinksStay) {
  fs::create_directory(folder_ / "real");
  write("real/tuned.csv", aiter_header + "\n");
  ASSERT_EQ(::chmod(path("real/tuned.csv").c_str(), 0640), 0);
  fs::create_symlink("real/tuned.csv", folder_ / "tuned.csv");
  PublishOptions options;
  options.environment_json = R"({"device": "x"})";
  publish_ok({cpu_row(1, 5)}, options);
  EXPECT_TRUE(fs::is_symlink(file()));
  EXPECT_EQ(read_tuned_csv(path("real/tuned.csv"))->entries.size(), 1U);
  struct stat information {};
  ASSERT_EQ(::stat(path("real/tuned.csv").c_str(), &information), 0);
  EXPECT_EQ(information.st_mode & 0777U, 0640U);
  EXPECT_TRUE(fs::exists(path("real/tuned.csv.env.json")));
  EXPECT_EQ(read_environment_json(file())->objects.size(), 1U);
}

// ---- publishing the same again ----------------------------------------------------------------------------

class PublishAgain : public Publish, public ::testing::WithParamInterface<std::string> {};

TEST_P(PublishAgain, ChangesNoByte) {
  std::string source = std::string(GEMMTUNE_TEST_DATA) + "/tuned/" + GetParam();
  if (GetParam().find('/') != std::string::npos) {
    GEMMTUNE_NEEDS_FIXTURES(fixtures);
    source = fixtures + "/" + GetParam();
  }
  const std::string before = *read_file(source);
  put(before);
  const auto read = read_tuned_csv(file());
  ASSERT_TRUE(read.ok()) << read.message();
  const auto written_at = fs::last_write_time(file());
  publish_ok(read->entries);
  EXPECT_EQ(text(), before);
  EXPECT_EQ(fs::last_write_time(file()), written_at) << "written without need";
}

INSTANTIATE_TEST_SUITE_P(
    Files, PublishAgain,
    ::testing::Values("today_18.csv", "january_17.csv", "november_16.csv", "missing_cells.csv",
                      "own_columns.csv", "aiter/configs/bf16_tuned_gemm.csv",
                      "aiter/configs/model_configs/dsv3_bf16_tuned_gemm.csv",
                      "aiter/configs/model_configs/gptoss_bf16_tuned_gemm.csv",
                      "legacy-2026-01/configs/bf16_tuned_gemm.csv",
                      "legacy-2026-01/configs/model_configs/dsv3_bf16_tuned_gemm.csv",
                      "legacy-2026-01/configs/model_configs/gptoss_bf16_tuned_gemm.csv"));

TEST_F(Publish, UnroundedTimesAreTheSameOnceWritten) {
  TunedEntry entry = cpu_row(1, 5.123456789);
  entry.speedup = 1.0 / 3;
  entry.spread = 1e-7;
  publish_ok({entry});
  const std::string before = text();
  EXPECT_THAT(before, HasSubstr(",5.1235,"));
  publish_ok({entry});
  EXPECT_EQ(text(), before);
  entry.us = 5.2;
  publish_ok({entry});
  EXPECT_THAT(text(), HasSubstr(",5.2,"));
}

// ---- the environment's side file --------------------------------------------------------------------------

TEST_F(Publish, EnvironmentsAreMergedUnderTheirHash) {
  PublishOptions options;
  options.environment_json = R"({"device": "one", "observed": {"date": "a"}})";
  publish_ok({cpu_row(1, 5)}, options);
  TunedEntry other = cpu_row(2, 5);
  other.env = "ffff0000";
  options.environment_json = R"({"device": "two"})";
  publish_ok({other}, options);
  options.environment_json = R"({"observed": {"date": "b"}})";
  publish_ok({cpu_row(1, 4)}, options);
  const auto file_of_environments = read_environment_json(file());
  ASSERT_TRUE(file_of_environments.ok()) << file_of_environments.message();
  EXPECT_EQ(file_of_environments->objects.at("abc12345"),
            R"({"device":"one","observed":{"date":"b"},"operation":"a16w16"})");
  EXPECT_EQ(file_of_environments->objects.at("ffff0000"), R"({"device":"two","operation":"a16w16"})");

  const auto before = content("tuned.csv.env.json");
  publish_ok({cpu_row(1, 4)}, options);
  EXPECT_EQ(content("tuned.csv.env.json"), before);
}

TEST_F(Publish, SeveralHashesNeedAnObjectEach) {
  TunedEntry other = cpu_row(2, 5);
  other.env = "ffff0000";
  PublishOptions options;
  options.environment_json = R"({"device": "one"})";
  EXPECT_EQ(publish(file(), {cpu_row(1, 5), other}, options).code(), StatusCode::invalid_argument);
  EXPECT_FALSE(fs::exists(file()));
  options.environment_json = R"({"abc12345": {"device": "one"}, "ffff0000": {"device": "two"}})";
  publish_ok({cpu_row(1, 5), other}, options);
  EXPECT_EQ(read_environment_json(file())->objects.at("ffff0000"),
            R"({"device":"two","operation":"a16w16"})");
  options.environment_json = "no json";
  EXPECT_FALSE(publish(file(), {cpu_row(1, 5)}, options).ok());
}

TEST_F(Publish, ADamagedSideFileIsKeptAndSaid) {
  std::string lines;
  set_log_sink(
      [](LogLevel, std::string_view line, void* context) { *static_cast<std::string*>(context) += line; },
      &lines);
  PublishOptions options;
  options.environment_json = R"({"device": "one"})";
  for (const std::string damaged : {"{\"abc\": {", "[1]", R"({"abc": 7})", ""}) {
    write("tuned.csv.env.json", damaged);
    EXPECT_FALSE(read_environment_json(file()).ok()) << damaged;
    publish_ok({cpu_row(1, 5)}, options);
    EXPECT_EQ(content("tuned.csv.env.json.damaged"), damaged);
    EXPECT_EQ(read_environment_json(file())->objects.size(), 1U);
  }
  set_log_sink(nullptr, nullptr);
  EXPECT_THAT(lines, HasSubstr("tuned.csv.env.json.damaged"));
}

TEST_F(Publish, ASideFileThatCannotBeWrittenKeepsTheTableAsItWas) {
  publish_ok({cpu_row(1, 5)});
  const std::string before = text();
  fs::create_directory(path("tuned.csv.env.json"));
  PublishOptions options;
  options.environment_json = R"({"device": "one"})";
  const Status status = publish(file(), {cpu_row(2, 5)}, options);
  EXPECT_THAT(status.message(), HasSubstr("tuned.csv.env.json"));
  EXPECT_EQ(text(), before);
}

}  // namespace
}  // namespace gemmtune
