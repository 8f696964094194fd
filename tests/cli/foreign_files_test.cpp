// Files of other programs from outside: severities and annotations of audit, marks, shapes of logs, look-ups in vLLM's files.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>

#include <nlohmann/json.hpp>

#include "cli/program.h"

namespace gemmtune::test::foreign_files_test {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const std::string data = GEMMTUNE_TEST_DATA;
const std::string h200 = "N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json";

/// The tuners' usual keys but those in `without`.
std::string config(const std::string& parameters, const std::string& without = {}) {
  std::string text;
  for (const int m : {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096}) {
    if (std::to_string(m) == without) continue;
    text += (text.empty() ? "{\n" : ",\n") + ("\"" + std::to_string(m) + "\": {" + parameters + "}");
  }
  return text + "\n}\n";
}

class ForeignFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& content) const {
    return program.folder().write(name, content);
  }
  Program program;
};

TEST_F(ForeignFiles, TheExitCodeIsThatOfTheSeverity) {
  const std::string slow = write("a/" + h200, config(R"("BLOCK_SIZE_M": 64)", "1"));
  EXPECT_EQ(program.run({"audit", slow}).exit_code, 0) << "a warning";
  EXPECT_EQ(program.run({"audit", slow, "--fail-on", "warning"}).exit_code, 1);
  EXPECT_EQ(program.run({"audit", slow, "--fail-on", "fatal"}).exit_code, 2);
  const std::string wrong = write("b/" + h200, config(R"("BLOCK_SIZE_M": 64, "BLOCK_SIZE_K": 256)"));
  const auto found = program.run({"audit", wrong, "--quiet"});
  EXPECT_EQ(found.exit_code, 1);
  EXPECT_THAT(found.out, ::testing::ContainsRegex("wrong_size +18  error"));
}

TEST_F(ForeignFiles, GithubAndSarifNamePlaceAndSeverity) {
  const std::string wrong = write("b/" + h200, config(R"("BLOCK_SIZE_M": 64, "BLOCK_SIZE_K": 256)"));
  const auto github = program.run({"audit", wrong, "--ci", "github"});
  EXPECT_EQ(github.exit_code, 1);
  EXPECT_THAT(github.out, StartsWith("::error file="));
  EXPECT_THAT(github.out, HasSubstr("N=1536%2CK=7168%2Cdevice_name=NVIDIA_H200"));
  EXPECT_THAT(github.out, HasSubstr(".json,line=2,title=gemmtune wrong_size::1: BLOCK_SIZE_K 256"));
  const json sarif = json::parse(program.run({"audit", wrong, "--ci", "sarif"}).out);
  EXPECT_EQ(sarif["version"], "2.1.0");
  const json& result = sarif["runs"][0]["results"][0];
  EXPECT_EQ(result["ruleId"], "wrong_size");
  EXPECT_EQ(result["level"], "error");
  EXPECT_EQ(result["locations"][0]["physicalLocation"]["region"]["startLine"], 2);
  EXPECT_EQ(program.run({"audit", wrong, "--ci", "jenkins"}).exit_code, 2);
  EXPECT_EQ(program.run({"audit", wrong, "--ci", "sarif", "--json"}).exit_code, 2);
}

TEST_F(ForeignFiles, AFindingThatIsMeantIsCountedAlone) {
  const std::string slow = write("a/" + h200, config(R"("BLOCK_SIZE_M": 64)", "1"));
  write("a/gemmtune-audit.txt",
        "missing_bucket N=1536,*.json keys 1  # M = 1 runs another kernel\n"
        "noise *  # nothing is noisy\n");
  const auto result = program.run({"audit", slow, "--fail-on", "note"});
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.out, Not(HasSubstr("missing_bucket")));
  EXPECT_THAT(result.out, HasSubstr("1 finding meant (gemmtune-audit.txt)"));
  EXPECT_THAT(result.err, HasSubstr("gemmtune-audit.txt:2: marks no finding"));
  write("a/gemmtune-audit.txt", "ugly *\n");
  const auto bad = program.run({"audit", slow});
  EXPECT_EQ(bad.exit_code, 2);
  EXPECT_THAT(bad.err, HasSubstr("gemmtune-audit.txt:1: 'ugly', expected the kind of a finding"));
}

TEST_F(ForeignFiles, AFolderWithANullBucketIsMergedAndCompared) {
  const std::string name = "N=24576,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json";
  write("a/" + name, R"({"1": {"BLOCK_SIZE_M": 16}, "64": null})");
  write("b/" + name, R"({"1": {"BLOCK_SIZE_M": 32}, "64": null})");
  const auto merged = program.run({"merge", program.file("a"), "-o", program.file("out/")});
  EXPECT_EQ(merged.exit_code, 0) << merged.err;
  const auto diff = program.run({"diff", program.file("a"), program.file("b")});
  EXPECT_EQ(diff.exit_code, 1) << diff.err;
  EXPECT_THAT(diff.out, HasSubstr("1 difference, 1 bucket as before"));
}

TEST_F(ForeignFiles, ShapesOfALog) {
  const auto result =
      program.run({"shapes", "--from-log", data + "/logs/server.log", "--nsets", "1,16", "--json"});
  EXPECT_EQ(result.exit_code, 1) << "a mixture's line says too little";
  const json shapes = json::parse(result.out);
  EXPECT_EQ(shapes["shapes"].size(), 11U);
  EXPECT_THAT(result.err, HasSubstr("server.log:9: E = 8, N = 64"));
  const auto dense = program.run({"shapes", "--from-log", data + "/logs/trace.json", "--op", "a16w16"});
  EXPECT_EQ(dense.exit_code, 0) << dense.err;
  EXPECT_THAT(dense.out, HasSubstr("16,64,128,False,torch.bfloat16,torch.bfloat16,False,False,2"));
  const auto nothing = program.run({"shapes", "--from-log", write("empty.log", "hello\n")});
  EXPECT_EQ(nothing.exit_code, 2);
  EXPECT_THAT(nothing.err, HasSubstr("no line names a GEMM"));
}

TEST_F(ForeignFiles, VllmsFilesAnswerByTheNearestKey) {
  const std::string dense = write(h200, R"({"1": {"BLOCK_SIZE_M": 16}, "64": {"BLOCK_SIZE_M": 64}})");
  const auto at = [&](const std::string& m) {
    return json::parse(program
                           .run({"lookup", "--op", "a8w8_blockscale", "--table", dense, "--gfx", "sm_90",
                                 "--cu_num", "132", "-m", m, "-n", "1536", "-k", "7168", "--json"})
                           .out);
  };
  EXPECT_EQ(at("32")["kernelName"], "BLOCK_SIZE_M=16");
  EXPECT_EQ(at("33")["kernelName"], "BLOCK_SIZE_M=64");
  EXPECT_EQ(at("33")["level"], "bucket");
  const std::string mixture = write("E=8,N=64,device_name=NVIDIA_H200.json",
                                    R"({"1": {"BLOCK_SIZE_M": 16}, "64": {"BLOCK_SIZE_M": 64}})");
  const auto answer = program.run({"lookup",   "--op",     "fused_moe", "--table", mixture, "--gfx", "sm_90",
                                   "--cu_num", "132",      "-m",        "40",      "-n",    "64",    "-k",
                                   "128",      "--expert", "8",         "--topk",  "2",     "--json"});
  EXPECT_EQ(json::parse(answer.out)["kernelName"], "BLOCK_SIZE_M=64") << answer.err;
}

/// AITER's names and places: gfx1250's block-scaled kernels take Gluon's configs first, its others Triton's.
TEST_F(ForeignFiles, GluonsConfigsAnswerTheKernelsThatReadThem) {
  const std::string scaled = "gfx1250-GEMM-A8W8_BLOCKSCALE_PRESHUFFLED";
  const std::string plain = "gfx1250-GEMM-A16W16";
  const auto bucket = [](int m) {
    return R"({"M_LEQ_16": {"BLOCK_SIZE_M": )" + std::to_string(m) + R"(}, "any": {"BLOCK_SIZE_M": )" +
           std::to_string(2 * m) + "}}";
  };
  write("configs/gemm/" + scaled + ".json", bucket(16));
  write("configs/gemm/gluon/" + scaled + ".json", bucket(32));
  write("configs/gemm/gluon/" + scaled + "-N=7168-K=768.json", bucket(64));
  write("configs/gemm/" + plain + ".json", bucket(16));
  write("configs/gemm/gluon/" + plain + ".json", bucket(32));
  write("configs/gemm/gluon/" + plain + "-N=7168-K=768.json", bucket(64));
  const auto answer = [&](const std::string& operation, const std::string& m, const std::string& n) {
    const auto result = program.run({"lookup", "--op", operation, "--table", program.file("configs"), "--gfx",
                                     "gfx1250", "--cu_num", "256", "-m", m, "-n", n, "-k", "768", "--json"});
    return json::parse(result.out).value("kernelName", result.err);
  };
  EXPECT_EQ(answer("a8w8_blockscale_bpreshuffle", "2", "7168"), "BLOCK_SIZE_M=64");
  EXPECT_EQ(answer("a8w8_blockscale_bpreshuffle", "17", "7168"), "BLOCK_SIZE_M=128");
  EXPECT_EQ(answer("a8w8_blockscale_bpreshuffle", "2", "512"), "BLOCK_SIZE_M=32");
  EXPECT_EQ(answer("a16w16", "2", "7168"), "BLOCK_SIZE_M=16");
  // Of a folder without a default only those of the next place are read.
  std::filesystem::remove(program.file("configs/gemm/gluon/" + scaled + ".json"));
  EXPECT_EQ(answer("a8w8_blockscale_bpreshuffle", "2", "7168"), "BLOCK_SIZE_M=16");
  // Where AITER has moved them since.
  write("configs/gfx1250/gluon/gemm/gemm_a8w8_blockscale_preshuffled/DEFAULT.json", bucket(128));
  EXPECT_EQ(answer("a8w8_blockscale_bpreshuffle", "2", "7168"), "BLOCK_SIZE_M=128");
  const auto audit = program.run({"audit", program.file("configs")});
  EXPECT_THAT(audit.out, Not(HasSubstr("duplicate_key")));
}

TEST_F(ForeignFiles, AMixtureOfTheThirdTierNamesTheRowThatIsNeverChosen) {
  const std::string columns =
      "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
      "doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us\n";
  const std::string table = write(
      "tuned_fmoe.csv", columns +
                            "gfx950,256,32768,4096,256,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,"
                            "torch.bfloat16,QuantType.No,1,0,32,0,1,k1,0,1,k2,0,0\n");
  std::vector<std::string> words{"lookup",   "--op",     "fused_moe", "--table", table, "--gfx", "gfx950",
                                 "--cu_num", "256",      "-m",        "131072",  "-n",  "256",   "-k",
                                 "4096",     "--expert", "8",         "--topk",  "2"};
  const auto result = program.run(words);
  EXPECT_THAT(result.out, HasSubstr("tuned_fmoe.csv:2 of M=32768")) << result.err;
  words.push_back("--as-aiter");
  EXPECT_THAT(program.run(words).out, HasSubstr("k1")) << "AITER answers from it";
}

TEST_F(ForeignFiles, ARowThatDispatchLeavesOutIsTheReasonOfAMiss) {
  const std::string table = write(
      "tuned_fmoe.csv",
      "gfx,cu_num,token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,"
      "doweight_stage1,block_m,ksplit,us1,kernelName1,err1,us2,kernelName2,err2,us,_tag\n"
      "gfx950,256,131072,4096,256,8,2,ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,"
      "QuantType.No,1,0,32,0,1,k1,0,1,k2,0,9e6,flydsl_fallback\n");
  std::vector<std::string> words{"lookup",   "--op",     "fused_moe", "--table", table, "--gfx", "gfx950",
                                 "--cu_num", "256",      "-m",        "131072",  "-n",  "256",   "-k",
                                 "4096",     "--expert", "8",         "--topk",  "2"};
  const std::string why =
      "tuned_fmoe.csv:2, M = 131072, kernel 'k1': tag 'flydsl_fallback': left out by dispatch";
  EXPECT_THAT(program.run(words).out, HasSubstr(why));
  words.push_back("--as-aiter");
  EXPECT_THAT(program.run(words).out, HasSubstr(why)) << "AITER drops it, too";
}

TEST_F(ForeignFiles, KeysThatAreWithheldAreCounted) {
  const std::string table =
      write("bf16_tuned_gemm.csv",
            "gfx,cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,"
            "err_ratio\n"
            "gfx950,256,16,64,128,False,torch.bfloat16,torch.bfloat16,False,False,asm,0,0,5,a,0.3\n");
  const json audit = json::parse(program.run({"audit", table, "--json"}).out);
  EXPECT_EQ(audit["withheld_keys"], 1);
  const std::string list = write("bf16_untuned_gemm.csv", "M,N,K,dtype\n16,64,128,torch.bfloat16\n");
  const json coverage = json::parse(
      program.run({"coverage", list, "--table", table, "--gfx", "gfx950", "--cu_num", "256", "--json"}).out);
  EXPECT_EQ(coverage["withheld_shapes"], 1);
}

TEST_F(ForeignFiles, Fp8OfAGfx942IsItsOwnForm) {
  const std::string table =
      write("a8w8_bpreshuffle_tuned_gemm.csv",
            "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,errRatio\n"
            "gfx942,80,16,256,512,torch.float8_e4m3fnuz,ck,1,0,5,k1,0\n");
  const auto result =
      program.run({"lookup", "--op", "a8w8_bpreshuffle", "--table", table, "--gfx", "gfx942", "--cu_num",
                   "80", "-m", "16", "-n", "256", "-k", "512", "--indtype", "fp8", "--json"});
  EXPECT_EQ(json::parse(result.out)["level"], "exact") << result.err;
}

TEST_F(ForeignFiles, ATimeIsShownAsItStandsAndAMissingOneAsNone) {
  const std::string header = "gfx,cu_num,M,N,K,q_dtype_w,libtype,kernelId,splitK,us,kernelName,errRatio\n";
  const std::string timed =
      write("timed_a8w8_tuned_gemm.csv", header + "gfx942,80,16,256,512,torch.int8,ck,1,0,5.25,k1,0\n");
  const std::string untimed =
      write("untimed_a8w8_tuned_gemm.csv", header + "gfx942,80,16,256,512,torch.int8,ck,1,0,,k2,0\n" +
                                               "gfx942,80,16,256,512,torch.int8,ck,1,0,,k3,0\n");
  const std::vector<std::string> size{"lookup", "--op", "a8w8",  "-m",     "16",       "-n", "256",
                                      "-k",     "512",  "--gfx", "gfx942", "--cu_num", "80", "--table"};
  std::vector<std::string> words = size;
  words.push_back(timed);
  EXPECT_THAT(program.run(words).out, HasSubstr("), 5.25 µs, "));
  EXPECT_THAT(program.run({"diff", timed, untimed}).out, HasSubstr("k2 (no time), before k1 (5.25 µs)"));
  EXPECT_THAT(program.run({"audit", untimed}).out, HasSubstr("no time"));
  for (const char* command : {"diff", "audit", "merge"})
    EXPECT_THAT(program.run({command, untimed, timed}).err, ::testing::Not(HasSubstr("nan")));
}

TEST_F(ForeignFiles, AiconfiguratorsTableIsAudited) {
  const auto result = program.run({"audit", data + "/aic/gemm_perf.csv"});
  EXPECT_EQ(result.exit_code, 1) << "a row that means nothing";
  EXPECT_THAT(result.out, HasSubstr("gemm_perf.csv:2: dominated: 50 µs for M = 16, but 20 µs for M = 32"));
  EXPECT_THAT(result.out, HasSubstr("gemm_perf.csv:4: impossible_rate: "));
  EXPECT_THAT(result.out, HasSubstr("5 rows in 1 file"));
}

TEST_F(ForeignFiles, RowsOfSeveralRanksAreRatedOrCounted) {
  const auto result = program.run({"audit", data + "/aic/moe_ranks_perf.csv", "--kinds", "impossible_rate"});
  EXPECT_EQ(result.exit_code, 0) << "warnings";
  EXPECT_THAT(result.out,
              HasSubstr("moe_ranks_perf.csv:2: impossible_rate: 1900 µs, but the device takes at least"));
  EXPECT_THAT(result.out, HasSubstr("moe_ranks_perf.csv: 1 row without a shortest time: wideep_moe_eplb of"));
  const json audit = json::parse(program.run({"audit", data + "/aic/moe_ranks_perf.csv", "--json"}).out);
  EXPECT_EQ(audit["unrated"].size(), 2U);
  EXPECT_EQ(audit["unrated"][0]["rows"], 1);
}

/// A program in place of Python.
std::string python_double(const Program& program, const std::string& lines) {
  const std::string path = program.folder().write("python", "#!/bin/sh\n" + lines + "\n");
  EXPECT_EQ(chmod(path.c_str(), 0755), 0);
  return path;
}

TEST_F(ForeignFiles, AParquetFileIsReadByAPython) {
  SubprocessOptions options = program.options();
  options.environment["GEMMTUNE_PYTHON"] = python_double(program, "cat '" + data + "/aic/gemm_perf.csv'");
  const std::string table = write("gemm_perf.parquet", "PAR1");
  const auto audit = program.run({"audit", table}, options);
  EXPECT_EQ(audit.exit_code, 1) << audit.err;
  EXPECT_THAT(audit.out, HasSubstr("gemm_perf.parquet:2: dominated: 50 µs for M = 16, but 20 µs for M = 32"));
  EXPECT_THAT(audit.out, HasSubstr("gemm_perf.parquet: 1 row without a shortest time: gemm_dtype=nvfp4"));
  const auto list = program.run({"convert", table, "--to", "listing"}, options);
  EXPECT_THAT(list.out, HasSubstr("3: sm_90 132: a16w16 m=32 n=4096 k=4096")) << list.err;
}

/// Dictionary columns and several row groups, as pandas and pyarrow write them; skipped where no Python has pyarrow.
TEST_F(ForeignFiles, ParquetThatPyarrowWroteHasTheFindingsOfItsCsv) {
  const char* set = std::getenv("GEMMTUNE_PYTHON");
  const std::string python = set == nullptr ? "python3" : set;
  const std::string csv = write("csv/gemm_perf.csv", read_text(data + "/aic/gemm_perf.csv"));
  const std::string table = write("parquet/gemm_perf.parquet", "");
  const std::string script = write("write.py", R"(
import sys
import pyarrow, pyarrow.csv, pyarrow.parquet
rows = pyarrow.csv.read_csv(sys.argv[1])
columns = [one.dictionary_encode() if pyarrow.types.is_string(one.type) else one for one in rows.columns]
rows = pyarrow.table(columns, names=rows.column_names)
pyarrow.parquet.write_table(rows, sys.argv[2], row_group_size=2)
)");
  const SubprocessResult written = run_program({"/usr/bin/env", python, "-I", script, csv, table});
  if (written.exit_code != 0) {
    const char* required = std::getenv("GEMMTUNE_REQUIRE");
    ASSERT_FALSE(required != nullptr && std::string(required).find("pyarrow") != std::string::npos)
        << written.err;
    GTEST_SKIP() << python << ": " << written.err;
  }
  SubprocessOptions options = program.options();
  options.environment["GEMMTUNE_PYTHON"] = python;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{"audit", "{}"}, {"convert", "{}", "--to", "listing"}}) {
    const auto said_of = [&](const std::string& path) {
      std::vector<std::string> command = words;
      command[1] = path;
      auto result = program.run(command, options);
      const std::string name = std::filesystem::path(path).filename().string();
      for (std::size_t at = 0; (at = result.out.find(path, at)) != std::string::npos;)
        result.out.replace(at, path.size(), "FILE");
      for (std::size_t at = 0; (at = result.out.find(name, at)) != std::string::npos;)
        result.out.replace(at, name.size(), "FILE");
      return result;
    };
    const auto of_parquet = said_of(table);
    const auto of_csv = said_of(csv);
    EXPECT_EQ(of_parquet.exit_code, of_csv.exit_code) << of_parquet.err;
    EXPECT_EQ(of_parquet.out, of_csv.out);
  }
}

TEST_F(ForeignFiles, AParquetFileWithoutAPythonIsRefusedWithTheCommand) {
  SubprocessOptions options = program.options();
  options.environment["GEMMTUNE_PYTHON"] = program.file("none");
  const auto result = program.run({"audit", data + "/aic/gemm_perf.parquet"}, options);
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err,
              HasSubstr("set GEMMTUNE_PYTHON to one that has pyarrow, or convert the file: python3 -c"));
}

TEST_F(ForeignFiles, ReadingParquetRunsNothingOfTheWorkingFolder) {
  const std::string marker = program.file("ran");
  const std::string plant = "open('" + marker + "', 'w').close()\nraise ImportError('planted')\n";
  for (const char* name : {"pyarrow.py", "os.py", "encodings.py", "sitecustomize.py"}) write(name, plant);
  SubprocessOptions options = program.options();
  options.environment["PYTHONPATH"] = program.folder().path();
  const auto result = program.run({"audit", data + "/aic/gemm_perf.parquet"}, options);
  EXPECT_FALSE(std::filesystem::exists(marker));
  if (result.err.find("which a Python with pyarrow reads") != std::string::npos) {
    EXPECT_EQ(result.exit_code, 2);
  } else {
    EXPECT_THAT(result.out, HasSubstr("gemm_perf.parquet:2: dominated: 50 µs for M = 16")) << result.err;
  }
}

}  // namespace
}  // namespace gemmtune::test::foreign_files_test
