// What states the operation of a list or a table: --op, header, file name, output, notes beside the file, names of kernels.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test::stated_tables_test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using json = nlohmann::json;

class StatedTables : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) const {
    const std::string path = program.file(name);
    std::ofstream(path, std::ios::binary) << text;
    return path;
  }
  /// One shape of a list, tuned for a moment.
  SubprocessResult tune(std::vector<std::string> more) const {
    std::vector<std::string> words{"tune",    "--budget", "60",        "--iters", "5",
                                   "--limit", "2",        "--threads", "1"};
    words.insert(words.end(), more.begin(), more.end());
    return program.run(words);
  }
  SimulatedProgram program;
};

constexpr const char* sizes = "M,N,K\n2,64,128\n";

// S0: tune -i u.csv -o a4w4_blockscale_tuned_gemm.csv, and --all on what was written.
TEST_F(StatedTables, TheOutputsNameStatesTheOperationOfAList) {
  const std::string list = write("u.csv", sizes);
  const auto result = tune({"-i", list, "-o", program.file("a4w4_blockscale_tuned_gemm.csv"), "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("a4w4_blockscale m=2 n=64 k=128"));
  EXPECT_THAT(result.err, Not(HasSubstr("read as")));
}

TEST_F(StatedTables, ATableUnderANeutralNameIsNotedBesideIt) {
  const std::string table = program.file("mine.csv");
  ASSERT_EQ(tune({"-i", write("u.csv", sizes), "--op", "a4w4_blockscale", "-o", table}).exit_code, 0);
  const auto again = tune({"--all", "-i", table, "-o", table, "--json"});
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_THAT(again.out, HasSubstr("a4w4_blockscale m=2 n=64 k=128"));
  const auto listed = tune({"-i", program.file("u.csv"), "-o", table, "--json"});
  EXPECT_THAT(listed.out, HasSubstr("a4w4_blockscale m=2 n=64 k=128")) << listed.err;
  for (const char* command : {"audit", "check", "bench"})
    EXPECT_THAT(program.run({command, table}).err, Not(HasSubstr("the operation"))) << command;
  const auto merged = program.run({"merge", table, "-o", program.file("merged.csv")});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  EXPECT_EQ(program.run({"merge", program.file("merged.csv")}).exit_code, 0) << "its notes came along";
}

TEST_F(StatedTables, NamesOfAitersKernelsStateTheTable) {
  const std::string header = "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n";
  const auto table_of = [&](const std::string& rows) {
    const auto result = program.run({"audit", write("some.csv", header + rows), "--json"});
    return result.exit_code == 2 ? result.err
                                 : json::parse(result.out)["files"][0]["table"].get<std::string>();
  };
  EXPECT_EQ(table_of("gfx950,256,1,64,128,1,0,5,_ZN5aiter42f4gemm_bf16_per1x32Fp4_BpreShuffle_32x128E,,,0\n"),
            "a4w4_blockscale");
  EXPECT_EQ(table_of("gfx942,80,1,64,128,1,0,5,a8w8_rowwise_256x16x64x512,,,0\n"), "a8w8");
  EXPECT_EQ(table_of("gfx942,80,1,64,128,1,0,5,a8w8_blockscale_bpreshuffle_1x128x128,,,0\n"),
            "a8w8_blockscale_bpreshuffle");
  EXPECT_THAT(table_of("gfx942,80,1,64,128,1,0,5,some_kernel,,,0\n"), HasSubstr("name it with --op"));
  EXPECT_THAT(table_of("gfx942,80,1,64,128,1,0,5,a8w8_rowwise_1,,,0\n"
                       "gfx942,80,2,64,128,1,0,5,a4w4_blockscale_1,,,0\n"),
              HasSubstr("name it with --op"))
      << "they disagree";
}

// S1 §2: llama70B_untuned_gemm.csv has M, N and K alone.
TEST_F(StatedTables, BareSizesAreBf16AndALineSaysSo) {
  const std::string list = write("llama70B_untuned_gemm.csv", sizes);
  const auto shapes = program.run({"shapes", "-i", list, "--json"});
  EXPECT_EQ(shapes.exit_code, 0) << shapes.err;
  EXPECT_EQ(json::parse(shapes.out)["shapes"][0]["problem"],
            "a16w16 m=2 n=64 k=128 x=bf16 w=bf16 y=bf16 bias=0 scale_ab=0 layout=plain");
  EXPECT_THAT(
      shapes.err,
      HasSubstr("llama70B_untuned_gemm.csv: read as a16w16 of bf16: nothing states the operation and the "
                "type; --op or --indtype says otherwise\n"));
  EXPECT_THAT(tune({"-i", list, "-o", program.file("t.csv")}).err, HasSubstr("read as a16w16 of bf16"));
  const auto typed = program.run({"shapes", "-i", list, "--indtype", "f16", "--json"});
  EXPECT_THAT(typed.out, HasSubstr("x=f16"));
  EXPECT_THAT(typed.err, HasSubstr("read as a16w16: nothing states the operation; --op says otherwise"));
  const auto named = program.run({"shapes", "-i", write("bf16_untuned_gemm.csv", sizes)});
  EXPECT_THAT(named.err,
              HasSubstr("read as a16w16 of bf16: nothing states the type; --indtype says otherwise"));
  const auto other = program.run({"shapes", "-i", write("a8w8_untuned_gemm.csv", sizes), "--json"});
  EXPECT_THAT(other.out, HasSubstr("a8w8 m=2")) << "the file's name decides";
  EXPECT_THAT(other.err, Not(HasSubstr("read as")));
  const auto missing =
      program.run({"shapes", "-i", write("bare_bf16_untuned_gemm.csv", "M,bias\n2,False\n")});
  EXPECT_EQ(missing.exit_code, 2);
  EXPECT_THAT(missing.err, HasSubstr("the header has no column N, K"));
}

// S3: its header has no gfx, so rows of a CPU do not go there.
TEST_F(StatedTables, ATableWithoutGfxNamesTheConversion) {
  const std::string table = write("bf16_tuned_gemm.csv",
                                  "cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,"
                                  "splitK,soltimes,kernelName,tflops,bw\n"
                                  "80,128,1536,7168,False,torch.bfloat16,torch.float32,False,False,hipblaslt,"
                                  "667788,0,10.6,xxxxxxx,1,1\n");
  const auto refused =
      program.run({"tune", "-m", "2", "-n", "64", "-k", "64", "-o", table, "--threads", "1"});
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err, HasSubstr("gemmtune convert " + table + " --to aiter -o NEW.csv"));
  const std::string copy = program.file("with_gfx.csv");
  EXPECT_EQ(program.run({"convert", table, "--to", "aiter", "-o", copy}).exit_code, 0);
  const auto taken = tune({"-m", "2", "-n", "64", "-k", "64", "-o", copy});
  EXPECT_EQ(taken.exit_code, 0) << taken.err;
  const std::string empty =
      write("empty_bf16_tuned_gemm.csv", "cu_num,M,N,K,dtype,outdtype,libtype,solidx,us,kernelName\n");
  const auto early = program.run({"tune", "-m", "2", "-n", "64", "-k", "64", "-o", empty, "--threads", "1"});
  EXPECT_EQ(early.exit_code, 2) << "before anything is measured";
  EXPECT_THAT(early.err, HasSubstr("--to aiter"));
}

}  // namespace
}  // namespace gemmtune::test::stated_tables_test
