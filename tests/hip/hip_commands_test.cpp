// The program on doubles of AMD's libraries, as a user meets it: what is missing, tuning, AITER's lists and rows, and
// every error that the libraries may answer.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "support/fixtures.h"
#include "support/subprocess.h"
#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

using test::run_program;
using test::SubprocessOptions;
using test::SubprocessResult;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// An emulated kernel takes seconds to compile, and mfma has hundreds.
const std::vector<std::string> few_families{"--libtype", "hipblaslt,simt"};

class HipCommands : public ::testing::Test {
 protected:
  SubprocessResult run(std::vector<std::string> words, std::map<std::string, std::string> variables = {},
                       const std::string& doubles = "hip") {
    words.insert(words.begin(), GEMMTUNE_PROGRAM);
    SubprocessOptions options;
    options.environment = std::move(variables);
    options.working_folder = working_folder_;
    options.environment.emplace("LD_LIBRARY_PATH", std::string(DOUBLES) + "/" + doubles);
    options.environment.emplace("XDG_CACHE_HOME", path("cache"));
    options.environment.emplace("XDG_CONFIG_HOME", path("config"));
    return run_program(words, options);
  }
  SubprocessResult run_in_folder(std::vector<std::string> words,
                                 std::map<std::string, std::string> variables) {
    working_folder_ = folder_.path();
    return run(std::move(words), std::move(variables));
  }
  SubprocessResult tune_small(std::map<std::string, std::string> variables = {},
                              std::vector<std::string> more = {}) {
    std::vector<std::string> words{"tune", "--backend",      "hip", "-m", "5", "-n", "64", "-k", "48",
                                   "-o",   path("tuned.csv")};
    words.insert(words.end(), more.begin(), more.end());
    return run(std::move(words), std::move(variables));
  }
  std::string path(const std::string& name) const { return folder_.path() + "/" + name; }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path(name)) << text;
    return path(name);
  }
  std::vector<std::string> lines(const std::string& name) const {
    std::ifstream file(path(name));
    std::vector<std::string> all;
    for (std::string line; std::getline(file, line);) all.push_back(line);
    return all;
  }

  test::TemporaryFolder folder_;
  std::string working_folder_;
};

// ---- devices

TEST_F(HipCommands, DevicesAreShownWithTheirLibraries) {
  const auto result =
      run({"devices", "--backend", "hip"}, {{"HIP_DOUBLE_DEVICES", "2"}, {"HIP_DOUBLE_UNITS", "80"}});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, AllOf(HasSubstr("hip:0, AMD Instinct MI300X (gfx942, 80 compute units)"),
                                HasSubstr("hip:1, AMD"), HasSubstr("HIP runtime 6.3.42131"),
                                HasSubstr("hipRTC 9.0"), HasSubstr("hipBLASLt 0.10.0-bb5fd0e")));
}

TEST_F(HipCommands, WhatIsMissingIsNamedALineEach) {
  const auto result = run({"devices", "--backend", "hip"}, {}, "none");
  if (result.out.find("hip: available") != std::string::npos) GTEST_SKIP() << "ROCm is installed here";
  EXPECT_EQ(result.exit_code, 0);
  for (const char* part : {"\n  HIP runtime: missing: ", "\n  hipRTC: missing: ", "\n  hipBLASLt: missing: ",
                           "\n  AMD SMI: missing: "})
    EXPECT_THAT(result.out, HasSubstr(part));
}

TEST_F(HipCommands, OlderRuntimesAreTooOld) {
  const auto result = run({"devices", "--backend", "hip"}, {}, "hip_old");
  EXPECT_THAT(
      result.out,
      HasSubstr("HIP runtime: missing: it has no hipGraphUpload: too old; install ROCm 6.0 or later"));
}

TEST_F(HipCommands, ARuntimeWithoutGpusSaysSo) {
  for (const auto& [variable, value] :
       std::map<std::string, std::string>{{"HIP_DOUBLE_DEVICES", "0"}, {"HIP_DOUBLE_FAIL", "hipInit=100"}}) {
    const auto result = tune_small({{variable, value}});
    EXPECT_EQ(result.exit_code, 2);
    EXPECT_THAT(
        result.err,
        HasSubstr("backend hip: no AMD GPU can be used: HIP runtime: hipInit answers hipErrorNoDevice"));
  }
}

// ---- tuning

TEST_F(HipCommands, TuneWritesARowThatLookupAnswers) {
  const auto result = tune_small({}, {"--search", "two_phase", "--libtype", "hipblaslt"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  const auto rows = lines("tuned.csv");
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_THAT(rows[1],
              HasSubstr("gfx942,304,5,64,48,False,torch.bfloat16,torch.bfloat16,False,False,hipblaslt,10"));
  EXPECT_THAT(rows[1], HasSubstr("_lib0.10.0-bb5fd0e,"));
  EXPECT_THAT(result.out, HasSubstr("20 candidates"));  // all solutions that support it
  const auto found =
      run({"lookup", "-m", "5", "-n", "64", "-k", "48", "--table", path("tuned.csv"), "--backend", "hip"});
  EXPECT_EQ(found.exit_code, 0) << found.err;
  EXPECT_THAT(found.out, AllOf(HasSubstr("exact"), HasSubstr("hipblaslt_r1_sol")));
  EXPECT_EQ(run({"check", path("tuned.csv"), "--backend", "hip"}).exit_code, 0);
}

// A word of a type means the same on every command of one device.
TEST_F(HipCommands, TheWordFp8IsTheDevicesOnEveryCommand) {
  const auto explained =
      run({"explain", "--op", "a8w8_blockscale", "-m", "16", "-n", "256", "-k", "512", "--backend", "hip"});
  ASSERT_EQ(explained.exit_code, 0) << explained.err;
  EXPECT_THAT(explained.out, HasSubstr("x=f8_e4m3fnuz w=f8_e4m3fnuz"));
  EXPECT_THAT(explained.out, ::testing::ContainsRegex("\nmfma +[1-9]")) << "the family takes it";
  const auto named = run({"explain", "--op", "a8w8", "-m", "16", "-n", "256", "-k", "512", "--indtype", "fp8",
                          "--backend", "hip"});
  EXPECT_THAT(named.out, HasSubstr("x=f8_e4m3fnuz w=f8_e4m3fnuz"));
  const auto found =
      run({"lookup", "--op", "a8w8_blockscale", "-m", "16", "-n", "256", "-k", "512", "--backend", "hip"});
  EXPECT_THAT(found.out, HasSubstr("x=f8_e4m3fnuz w=f8_e4m3fnuz")) << found.err;
  const auto checked = run({"check", "--problem", "a8w8 m=4 n=64 k=64 x=fp8 w=fp8 y=bf16", "--libtype",
                            "simt", "--backend", "hip"});
  EXPECT_EQ(checked.exit_code, 0) << checked.err << checked.out;
  EXPECT_THAT(checked.out, HasSubstr("f8_e4m3fnuz"));
}

// The file has no times, so none is shown.
TEST_F(HipCommands, ARowOfOnlineTuningHasNoTime) {
  write("hip_online_tuning_res.csv",
        "false,false,T,N,64,5,48,bf16_r,48,0,bf16_r,48,0,bf16_r,64,0,f32_r,1,1003,"
        "Cijk_Alik_Bljk_BBS_BH_Bias_UserArgs_MT128x64x64_SN_SK3\n");
  const std::vector<std::string> words{"lookup", "-m", "5", "-n", "64", "-k", "48", "--backend", "hip"};
  const std::map<std::string, std::string> online{{"HIP_ONLINE_TUNING", "1"}};
  const auto text = run_in_folder(words, online);
  EXPECT_THAT(text.out, AllOf(HasSubstr("hip_online_tuning_res.csv:1"), Not(HasSubstr("µs")))) << text.err;
  std::vector<std::string> as_json = words;
  as_json.emplace_back("--json");
  EXPECT_THAT(run_in_folder(as_json, online).out, HasSubstr("\"us\": null"));
}

TEST_F(HipCommands, AMovedSolutionIsAMiss) {
  ASSERT_EQ(tune_small({}, {"--libtype", "hipblaslt"}).exit_code, 0);
  const std::vector<std::string> words{
      "lookup", "-m", "5", "-n", "64", "-k", "48", "--table", path("tuned.csv"), "--backend", "hip"};
  EXPECT_THAT(run(words, {{"HIP_DOUBLE_LT_MOVED", "5"}}).out, HasSubstr("another one than was tuned"));
  EXPECT_THAT(run(words, {{"HIP_DOUBLE_LT_REVISION", "1234567"}}).out,
              HasSubstr("lib (build of hipBLASLt) is 0.10.0-bb5fd0e, expected one of 0.10.0-1234567"));
}

TEST_F(HipCommands, OurKernelsOfMatrixCoresAreTuned) {
  const auto result = tune_small({}, {"--libtype", "hipblaslt,mfma", "--search", "random", "--budget", "4"});
  ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
  EXPECT_THAT(result.out + result.err, Not(HasSubstr("family mfma: none")));
}

TEST_F(HipCommands, AllDevicesTakePart) {
  const std::string list = write("shapes.csv",
                                 "M,N,K,dtype\n1,64,48,torch.bfloat16\n2,64,48,torch.bfloat16\n"
                                 "3,64,48,torch.bfloat16\n4,64,48,torch.bfloat16\n");
  const std::string log = path("calls");
  const auto result =
      run({"tune", "--backend", "hip", "-i", list, "-o", path("tuned.csv"), "--libtype", "hipblaslt"},
          {{"HIP_DOUBLE_DEVICES", "3"}, {"HIP_DOUBLE_LOG", log}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("hip:2, AMD Instinct MI300X"));
  EXPECT_EQ(lines("tuned.csv").size(), 5U);
  EXPECT_GT(lines("calls").size(), 100U);
}

// ---- errors of the libraries

TEST_F(HipCommands, ALostDeviceCostsItsKernelAndNotTheRun) {
  const auto result = tune_small({{"HIP_DOUBLE_FAIL", "hipModuleLaunchKernel=lost@12"}}, few_families);
  EXPECT_NE(result.exit_code, 0);
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(result.out + result.err, HasSubstr("the device was lost: launch of"));
}

TEST_F(HipCommands, AnAbortedProcessIsAnOutcome) {
  // As the runtime ends a process whose kernel reads where no memory is.
  const auto result = tune_small({{"HIP_DOUBLE_FAIL", "hipblasLtMatmul=abort@9"}}, few_families);
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(result.out, HasSubstr("it crashes: SIGABRT"));
}

TEST_F(HipCommands, AHangEndsAfterItsTime) {
  const auto result =
      tune_small({{"HIP_DOUBLE_FAIL", "hipGraphLaunch=hang@9"}}, {"--timeout", "1", "--libtype", "simt"});
  EXPECT_EQ(result.signal, 0);
  EXPECT_THAT(result.out + result.err, HasSubstr("did not end within 1 s; its worker was killed"));
}

TEST_F(HipCommands, NoMemoryIsNamed) {
  const auto result = tune_small({{"HIP_DOUBLE_FAIL", "hipMalloc=2@6"}}, few_families);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out + result.err, HasSubstr("hipErrorOutOfMemory"));
}

TEST_F(HipCommands, WithoutALibraryTheRestTunes) {
  const auto no_handle =
      tune_small({{"HIP_DOUBLE_FAIL", "hipblasLtCreate=1@1,hipblasLtCreate=1@2"}}, {"--libtype", "simt"});
  EXPECT_EQ(no_handle.exit_code, 0);
  EXPECT_THAT(no_handle.out, HasSubstr("5x64x48 bf16")) << "compared with what runs untuned then";
  EXPECT_THAT(no_handle.out, Not(HasSubstr("hipblaslt")));
  std::filesystem::remove(path("tuned.csv"));
  const auto no_compiler =
      tune_small({{"HIP_DOUBLE_FAIL", "hiprtcCompileProgram=6@1"}}, {"--libtype", "hipblaslt"});
  EXPECT_EQ(no_compiler.exit_code, 0) << no_compiler.err;
  EXPECT_THAT(no_compiler.out, HasSubstr("hipblaslt_r1_sol"));
}

TEST_F(HipCommands, WrongSolutionsNeverWin) {
  std::string wrong;
  for (int run = 0; run < 2; ++run) {
    std::filesystem::remove(path("tuned.csv"));
    std::filesystem::remove_all(path("cache"));
    const auto result =
        tune_small(wrong.empty() ? std::map<std::string, std::string>()
                                 : std::map<std::string, std::string>{{"HIP_DOUBLE_LT_WRONG", wrong}},
                   {"--libtype", "hipblaslt"});
    ASSERT_EQ(result.exit_code, 0) << result.err;
    const std::string row = lines("tuned.csv").at(1);
    const auto at = row.find("hipblaslt_r1_sol");
    const std::string winner = row.substr(at + 16, 4);
    EXPECT_NE(winner, wrong);
    wrong = winner;
  }
}

TEST_F(HipCommands, TuneGemmsSizesAreTuned) {
  const std::string sizes = write("sizes.yaml",
                                  "- {'M': 5, 'N': 64, 'K': 48, 'rowMajorA': 'T', 'rowMajorB': 'N'}\n"
                                  "- {'M': 16, 'N': 64, 'K': 64, 'rowMajorA': 'N', 'rowMajorB': 'T'}\n");
  const auto result = run({"tune", "--backend", "hip", "--gemm_size_file", sizes, "--o", path("results.yaml"),
                           "--libtype", "hipblaslt,simt"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(lines("results.yaml").size(), 2U);
  EXPECT_EQ(run({"tune", "--backend", "hip", "--gemm_size_file", path("results.yaml"), "--compare_wo_tuning"})
                .exit_code,
            0);
}

/// rowMajorB: T, on our own kernels alone.
TEST_F(HipCommands, TuneGemmsColumnMajorWeightsAreTunedByOurKernels) {
  const std::string sizes =
      write("sizes.yaml", "- {'M': 5, 'N': 64, 'K': 48, 'rowMajorA': 'T', 'rowMajorB': 'T'}\n");
  for (const std::string family : {"mfma", "skinny"}) {
    const std::string results = path(family + ".yaml");
    const auto result = run({"tune", "--backend", "hip", "--gemm_size_file", sizes, "--o", results,
                             "--libtype", family, "--search", "random", "--budget", "4"});
    ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
    EXPECT_THAT(lines(family + ".yaml").at(0), HasSubstr("'rowMajorB': 'T'"));
  }
}

// ---- AITER's lists and rows

struct List {
  const char* file;
  const char* operation;
  std::vector<std::string> families = few_families;
  std::size_t rows = 2;  // they differ in sizes
};
class AiterLists : public HipCommands, public ::testing::WithParamInterface<List> {};

/// AITER's first rows with small sizes: its header, blanks and types as they are.
std::string small_list(const std::string& file, std::size_t rows) {
  std::ifstream in(file);
  std::string header;
  std::getline(in, header);
  std::vector<std::string> names;
  std::stringstream head(header);
  for (std::string name; std::getline(head, name, ',');) names.push_back(name);
  std::string text = header + "\n";
  std::size_t count = 0;
  for (std::string line; count < rows && std::getline(in, line);) {
    std::stringstream cells(line);
    std::string out;
    std::size_t column = 0;
    for (std::string cell; std::getline(cells, cell, ','); ++column) {
      const std::string name = column < names.size() ? names[column] : "";
      if (name == "B") cell = std::to_string(std::stol(cell) % 3 + 2);
      if (name == "M") cell = std::to_string(std::stol(cell) % 13 + 1);
      if (name == "N") cell = std::to_string(std::stol(cell) / 128 % 3 * 64 + 64);
      if (name == "K") cell = std::to_string(std::stol(cell) / 256 % 2 * 128 + 128);
      // Tokens that the look-up's tiers of AITER do not round.
      if (name == "token") cell = std::to_string(1L << std::stol(cell) % 5);
      if (name == "model_dim") cell = "64";
      if (name == "inter_dim") cell = std::to_string(std::stol(cell) / 512 % 2 * 32 + 32);
      out += (column > 0 ? "," : "") + cell;
    }
    text += out + "\n";
    ++count;
  }
  return text;
}

TEST_P(AiterLists, RunToTheEndAndLookupAnswers) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  const std::string list =
      write(GetParam().file, small_list(fixtures + "/aiter/configs/" + GetParam().file, GetParam().rows));
  std::vector<std::string> words{"tune", "--backend", "hip", "-i", list, "-o", path("tuned.csv")};
  words.insert(words.end(), GetParam().families.begin(), GetParam().families.end());
  const auto result = run(words);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto answered =
      run({"coverage", list, "--op", GetParam().operation, "--table", path("tuned.csv"), "--backend", "hip"});
  EXPECT_EQ(answered.exit_code, 0) << answered.out << answered.err;  // 1: a shape without a row
  EXPECT_THAT(answered.out, ::testing::ContainsRegex("\n(hipblaslt|simt|simt_moe) .* its row runs"));
  for (const char* command : {"check", "bench"}) {
    const auto done = run({command, path("tuned.csv"), "--op", GetParam().operation, "--backend", "hip"});
    EXPECT_EQ(done.exit_code, 0) << command << ": " << done.out << done.err;
  }
}

INSTANTIATE_TEST_SUITE_P(
    OfEveryOperation, AiterLists,
    ::testing::Values(List{"bf16_untuned_gemm.csv", "a16w16"}, List{"a8w8_untuned_gemm.csv", "a8w8"},
                      List{"a8w8_bpreshuffle_untuned_gemm.csv", "a8w8_bpreshuffle"},
                      List{"a8w8_blockscale_untuned_gemm.csv", "a8w8_blockscale"},
                      List{"a4w4_blockscale_untuned_gemm.csv", "a4w4_blockscale"},
                      List{"bf16_untuned_batched_gemm.csv", "batched_bf16"},
                      List{"a8w8_untuned_batched_gemm.csv", "batched_a8w8"},
                      // Each row has other types.
                      List{"untuned_fmoe.csv", "fused_moe", {"--libtype", "simt_moe"}, 4}),
    [](const auto& list) { return std::string(list.param.operation); });

/// AITER's own list of MXFP4 on an MI350X: one of its sizes on the families that serve it, and what its tuned file says.
TEST_F(HipCommands, AitersMxfp4OnGfx950) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  const std::map<std::string, std::string> mi350{{"HIP_DOUBLE_ARCH", "gfx950:sramecc+:xnack-"},
                                                 {"HIP_DOUBLE_UNITS", "256"},
                                                 {"HIP_DOUBLE_NAME", "AMD Instinct MI350X"}};
  const std::string list = write("a4w4_blockscale_untuned_gemm.csv",
                                 small_list(fixtures + "/aiter/configs/a4w4_blockscale_untuned_gemm.csv", 6));
  const auto result = run({"tune", "--backend", "hip", "-i", list, "-o", path("tuned.csv"), "--limit", "2",
                           "--libtype", "mfma,skinny,simt", "--search", "random", "--budget", "6"},
                          mi350);
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(lines("tuned.csv").at(1), HasSubstr("gfx950,256,"));
  const auto checked =
      run({"check", path("tuned.csv"), "--op", "a4w4_blockscale", "--backend", "hip"}, mi350);
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  const auto timed = run({"bench", path("tuned.csv"), "--op", "a4w4_blockscale", "--backend", "hip"}, mi350);
  EXPECT_EQ(timed.exit_code, 0) << timed.out << timed.err;
  const std::string aiters = fixtures + "/aiter/configs/a4w4_blockscale_tuned_gemm.csv";
  const auto covered = run({"coverage", fixtures + "/aiter/configs/a4w4_blockscale_untuned_gemm.csv", "--op",
                            "a4w4_blockscale", "--table", aiters, "--gfx", "gfx950", "--cu-num", "256"},
                           {}, "none");
  EXPECT_THAT(covered.out, HasSubstr("the device's fallback runs: an assembly kernel of AITER"));
}

constexpr const char* aiter_header =
    "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,"
    "tflops,bw\n";

std::string aiter_row(int m, const std::string& libtype, int solidx, const std::string& kernel) {
  return fmt::format(
      "gfx942,304,{},64,48,False,torch.bfloat16,torch.bfloat16,False,False,{},{},0,5.0,{},0.0,1,1\n", m,
      libtype, solidx, kernel);
}

TEST_F(HipCommands, AitersRowsRunOrSayWhyNot) {
  const std::string named = "Cijk_Alik_Bljk_BBS_BH_Bias_UserArgs_MT128x64x64_SN_SK3";
  const std::string table = write(
      "bf16_tuned_gemm.csv", aiter_header + aiter_row(1, "hipblaslt", 1003, named) +
                                 aiter_row(2, "hipblaslt", 1006, named) + aiter_row(3, "torch", 0, "native") +
                                 aiter_row(4, "asm", 2, "_ZN5aiter37bf16gemm_fp32bf16_tn_96x64_splitk") +
                                 aiter_row(5, "rocblas", 17, "None") + aiter_row(6, "triton", 0, "auto"));
  const auto look_up = [&](int m) {
    return run({"lookup", "-m", std::to_string(m), "-n", "64", "-k", "48", "--table", table, "--backend",
                "hip"})
        .out;
  };
  EXPECT_THAT(look_up(1), AllOf(HasSubstr("exact"), Not(HasSubstr("passed over"))));
  EXPECT_THAT(look_up(2), HasSubstr("another one than was tuned"));
  EXPECT_THAT(look_up(3), Not(HasSubstr("passed over")));
  EXPECT_THAT(look_up(4),
              HasSubstr("libtype asm: an assembly kernel of AITER, which gemmtune does not have"));
  EXPECT_THAT(look_up(5), HasSubstr("libtype rocblas: a rocBLAS solution"));
  EXPECT_THAT(look_up(6), HasSubstr("libtype triton: a Triton kernel of AITER"));
  const auto checked = run({"check", table, "--backend", "hip"});
  EXPECT_THAT(checked.out, HasSubstr("an assembly kernel of AITER"));
}

TEST_F(HipCommands, CoverageTellsWhichRowsRunWithoutAnAmdMachine) {
  const std::string table = write(
      "bf16_tuned_gemm.csv", aiter_header + aiter_row(1, "hipblaslt", 1003, "Cijk_a") +
                                 aiter_row(2, "asm", 2, "_ZN5aiter1aE") + aiter_row(3, "skinny", 2, "sol2"));
  const std::string list = write("untuned.csv",
                                 "M,N,K,dtype\n1,64,48,torch.bfloat16\n2,64,48,torch.bfloat16\n"
                                 "3,64,48,torch.bfloat16\n");
  const auto result =
      run({"coverage", list, "--table", table, "--gfx", "gfx942", "--cu-num", "304"}, {}, "none");
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              HasSubstr("asm             1      1  the device's fallback runs: an assembly kernel of AITER"));
  EXPECT_THAT(result.out, HasSubstr("hipblaslt       1      1  its row runs"));
  EXPECT_THAT(result.out, HasSubstr("skinny          1      1  its row runs"));
}

TEST_F(HipCommands, CoverageCountsAitersBatchedRows) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  for (const auto& [type, rows] : {std::pair{"bf16", 26}, std::pair{"a8w8", 25}}) {
    const std::string configs = fixtures + "/aiter/configs/" + type;
    const auto result = run({"coverage", configs + "_untuned_batched_gemm.csv", "--table",
                             configs + "_tuned_batched_gemm.csv", "--gfx", "gfx942", "--cu-num", "304"},
                            {}, "none");
    EXPECT_THAT(result.out, HasSubstr(fmt::format("ck           {0}     {0}  the device's fallback runs: a "
                                                  "Composable Kernel of AITER is not here",
                                                  rows)));
  }
}

constexpr const char* mixtures_header =
    "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_"
    "stage1\n";

TEST_F(HipCommands, MixturesOfExpertsAreTunedOnMatrixCores) {
  std::string rows = mixtures_header;
  rows +=
      "4,64,96,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0\n"
      "2,128,64,8,2,ActivationType.Gelu,torch.bfloat16,torch.float8_e4m3fnuz,torch.float8_e4m3fnuz,"
      "QuantType.per_Token,1,1\n"
      "8,64,96,8,2,ActivationType.Silu,torch.bfloat16,torch.int8,torch.int8,QuantType.per_Tensor,0,0\n";
  const std::string list = write("untuned_fmoe.csv", rows);
  const std::string space = write("space.yaml",
                                  "mfma_moe:\n  parameters: {bm: [16], bn: [64, 128], bo: [64], bk: [128], "
                                  "nw: [2], mi: [16], nb: [1], eu: [0]}\n");
  const auto tuned = run({"tune", "--backend", "hip", "-i", list, "-o", path("tuned_fmoe.csv"), "--libtype",
                          "mfma_moe", "--search", "exhaustive", "--search-space", space, "--limit", "2"});
  ASSERT_EQ(tuned.exit_code, 0) << tuned.out << tuned.err;
  EXPECT_EQ(lines("tuned_fmoe.csv").size(), 3U);
  EXPECT_THAT(lines("tuned_fmoe.csv").at(1), HasSubstr("mfma_moe_r1_bm"));
  const std::vector<std::string> of{"--op", "fused_moe", "--backend", "hip"};
  const auto with = [&](std::vector<std::string> words) {
    words.insert(words.end(), of.begin(), of.end());
    return run(words);
  };
  EXPECT_THAT(with({"lookup", "-m", "4", "-n", "96", "-k", "64", "--expert", "8", "--topk", "2", "--table",
                    path("tuned_fmoe.csv")})
                  .out,
              AllOf(HasSubstr("exact"), HasSubstr("mfma_moe_r1_bm"), Not(HasSubstr("passed over"))));
  EXPECT_THAT(with({"check", path("tuned_fmoe.csv")}).out, HasSubstr("2 right, 0 not"));
  const auto timed = with({"bench", path("tuned_fmoe.csv")});
  EXPECT_EQ(timed.exit_code, 0) << timed.err;
  EXPECT_THAT(timed.out, HasSubstr("exact M=4"));
}

/// AITER's kernels of two stages, by assembly and by Composable Kernel.
TEST_F(HipCommands, CoverageTellsHowMixturesOfExpertsAreServed) {
  const std::string key =
      "64,96,8,2,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fnuz,torch.float8_e4m3fnuz,"
      "QuantType.per_Token,1,0";
  const std::string list =
      write("untuned_fmoe.csv", mixtures_header + ("4," + key + "\n8," + key + "\n16," + key + "\n"));
  const std::string stage2 = "moe_ck2stages_gemm2_256x32x64x128_1x4_MulABScaleExpertWeight_v1_F8_F8_B16";
  const std::string table =
      write("tuned_fmoe.csv",
            "cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
            "doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,run_1stage,tflops,"
            "bw,_tag\n"
            "80,4," +
                key + ",32,0,17.8,_ZN5aiter47fmoe_stage1_bf16_pertokenFp8_g1u1_32x64_4tg_pf3E,0.0%,14.5," +
                stage2 + ",0.0%,32.3,0,5.26,2629,\n80,8," + key +
                ",32,0,17.8,moe_ck2stages_gemm1_256x32x64x128_1x4_F8_F8_B16,0.0%,14.5," + stage2 +
                ",0.0%,32.3,0,5.26,2629,\n");
  const auto result =
      run({"coverage", list, "--op", "fused_moe", "--table", table, "--gfx", "gfx942", "--cu-num", "80"}, {},
          "none");
  EXPECT_EQ(result.exit_code, 1) << result.err;  // a shape without a row
  EXPECT_THAT(result.out,
              HasSubstr("asm           1      1  the device's fallback runs: an assembly kernel of AITER"));
  EXPECT_THAT(result.out,
              HasSubstr("ck            1      1  the device's fallback runs: a Composable Kernel of AITER"));
  EXPECT_THAT(result.out, HasSubstr("untuned       1      1"));
}

// ---- the script for the first machine with an AMD GPU

TEST_F(HipCommands, TheFirstRunPacksWhatItSaw) {
  SubprocessOptions options;
  options.environment = {
      {"LD_LIBRARY_PATH", std::string(DOUBLES) + "/hip"},
      {"GEMMTUNE", GEMMTUNE_PROGRAM},
      {"HIP_DOUBLE_DEVICES", "2"},
      {"FIRST_RUN_SIZE", "5 64 48"},
      {"FIRST_RUN_FAMILIES", "--libtype hipblaslt,simt"},
      {"FIRST_RUN_LIST", write("list.csv", "M,N,K,dtype\n1,64,48,torch.bfloat16\n")},
      {"FIRST_RUN_BLOCKSCALE_LIST", write("a8w8_blockscale_untuned_gemm.csv", "M,N,K\n1,64,128\n")}};
  options.working_folder = folder_.path();
  const auto result = run_program({GEMMTUNE_SOURCE_DIR "/tools/first_run_hip.sh", path("seen")}, options);
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr("10. gemmtune tune"));
  EXPECT_THAT(result.out, HasSubstr("packed: "));
  EXPECT_EQ(lines("seen/summary.tsv").size(), 10U);
  EXPECT_TRUE(std::filesystem::exists(path("gemmtune-hip-first-run.tar.gz")));
}

TEST_F(HipCommands, TheFirstRunWithoutAGpuSaysWhatIsMissing) {
  SubprocessOptions options;
  options.environment = {{"LD_LIBRARY_PATH", std::string(DOUBLES) + "/hip"},
                         {"GEMMTUNE", GEMMTUNE_PROGRAM},
                         {"HIP_DOUBLE_DEVICES", "0"}};
  const auto result = run_program({GEMMTUNE_SOURCE_DIR "/tools/first_run_hip.sh", path("seen")}, options);
  EXPECT_EQ(result.exit_code, 1);
  EXPECT_THAT(result.out, HasSubstr("HIP runtime: missing: hipInit answers hipErrorNoDevice"));
}

TEST_F(HipCommands, HiddenGpusAreNotLookedFor) {
  SubprocessOptions options;
  options.environment = {{"LD_LIBRARY_PATH", std::string(DOUBLES) + "/hip"},
                         {"HIP_DOUBLE_DEVICES", "1"},
                         {"HIP_VISIBLE_DEVICES", "-1"}};
  const auto result = run_program({GEMMTUNE_PROGRAM, "devices", "--backend", "hip"}, options);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out + result.err, HasSubstr("HIP_VISIBLE_DEVICES=-1 hides all GPUs"));
}

}  // namespace
}  // namespace gemmtune
