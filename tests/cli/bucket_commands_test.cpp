// Triton configs on the command line: what `tune --buckets` writes is dispatched, and every command that takes a tuned file
// takes it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>
#include <set>

#include "cli/bucket_program.h"
#include "formats/json.h"
#include "formats/triton/triton_folder.h"

namespace gemmtune::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class BucketCommands : public ::testing::Test {
 protected:
  /// Tunes into the folder `configs`.
  void tune(const std::string& shapes, const std::vector<std::string>& more) const {
    const auto result = program_.tune(shapes, more);
    ASSERT_EQ(result.exit_code, 0) << result.err << result.out;
    written_ = parse_json(result.out)["buckets"];
  }
  std::string configs() const { return program_.configs(); }
  std::string config() const { return written_[0]["path"]; }
  Json json_of(const std::vector<std::string>& words, int exit_code = 0) const {
    return json_of(words, exit_code, program_.options());
  }
  Json json_of(std::vector<std::string> words, int exit_code, const SubprocessOptions& options) const {
    words.push_back("--json");
    const auto result = program_.run(words, options);
    EXPECT_EQ(result.exit_code, exit_code) << words.front() << ": " << result.err << result.out;
    const Json json = parse_json(result.out);
    EXPECT_TRUE(json.is_object()) << result.out;
    return json;
  }
  /// A folder with the configs alone.
  std::string configs_alone() const {
    for (const std::string& path : triton_files_in(configs()))
      program_.folder().write("alone/" + std::filesystem::path(path).filename().string(), read_text(path));
    return program_.file("alone");
  }

  BucketProgram program_;
  mutable Json written_;
};

/// The bucket's kernel runs at every M of the bucket, by the variable and by the config folder.
TEST_F(BucketCommands, EveryMOfABucketGetsItsKernel) {
  tune("M,N,K\n4,128,256\n200,128,256\n700,128,256\n", {"--op", "a8w8_blockscale"});
  ASSERT_EQ(written_.size(), 2U) << written_;
  SubprocessOptions by_variable = program_.options();
  by_variable.environment["GEMMTUNE_CONFIG_TRITON"] = configs();
  SubprocessOptions by_folder = program_.options();
  by_folder.environment["GEMMTUNE_CONFIG_DIR"] = configs_alone();
  for (const auto& options : {by_variable, by_folder}) {
    std::set<std::string> files;
    for (const int m : {1, 2, 4, 17, 100, 200, 255, 256, 257, 700, 1024, 2000, 2048}) {
      const Json answer =
          json_of({"lookup", "--op", "a8w8_blockscale", "-m", std::to_string(m), "-n", "128", "-k", "256"}, 0,
                  options);
      const Json& bucket = written_[m <= 256 ? 0 : 1];
      EXPECT_EQ(answer["level"], "bucket") << m;
      EXPECT_EQ(answer["kernelName"], bucket["kernelName"]) << m;
      EXPECT_EQ(answer["row"]["bucket"], bucket["key"]);
      EXPECT_TRUE(answer["runnable"]);
      files.insert(std::filesystem::path(answer["row"]["file"].get<std::string>()).filename().string());
    }
    EXPECT_EQ(files.size(), 1U);
  }
  // Rows of the tuned file beside them go before, at their own M only.
  SubprocessOptions with_rows = program_.options();
  with_rows.environment["GEMMTUNE_CONFIG_DIR"] = configs();
  const auto level = [&](const std::string& m) {
    return json_of({"lookup", "--op", "a8w8_blockscale", "-m", m, "-n", "128", "-k", "256"}, 0,
                   with_rows)["level"];
  };
  EXPECT_EQ(level("200"), "exact");
  EXPECT_EQ(level("199"), "bucket") << "before the row of M = 208 or 256";
}

TEST_F(BucketCommands, CheckRunsBothEndsOfEachBucket) {
  tune(bf16_shapes, {"--libtype", "tiled"});
  Json checked = json_of({"check", configs()});
  ASSERT_EQ(checked["rows"].size(), 2U);
  EXPECT_EQ(checked["rows"][0]["bucket"], "small_M");
  EXPECT_EQ(checked["rows"][0]["state"], "right");
  EXPECT_THAT(checked["rows"][0]["problem"].get<std::string>(), HasSubstr("m=256 n=64 k=64"));

  // A kernel that does not exist, one that does not take the first M, and one of Triton alone are findings.
  const std::string name = std::filesystem::path(config()).filename().string();
  const auto write = [&](const std::string& content) {
    return program_.folder().write("bad/" + name, content);
  };
  checked = json_of(
      {"check", write(R"({"small_M": {"kernelName": "tiled_r1_gone1"}, "medium_M": {"BLOCK_SIZE_M": 16}})")},
      1);
  EXPECT_EQ(checked["rows"][0]["state"], "not runnable");
  EXPECT_THAT(checked["rows"][0]["reason"].get<std::string>(), HasSubstr("gone"));
  EXPECT_THAT(checked["rows"][1]["reason"].get<std::string>(), HasSubstr("only Triton can run"));

  // Sizes that the name does not say are given.
  const std::string arch = name.substr(0, name.find("-GEMM"));
  const std::string all_sizes =
      program_.folder().write("all/" + arch + "-GEMM-A16W16.json",
                              R"({"small_M": {"kernelName": )" + written_[0]["kernelName"].dump() + "}}");
  EXPECT_THAT(program_.run({"check", all_sizes}).err, HasSubstr("its name says no N and K"));
  EXPECT_EQ(json_of({"check", all_sizes, "-n", "64", "-k", "64"})["rows"][0]["state"], "right");
  EXPECT_THAT(program_.run({"check", program_.file("configs/bf16_tuned_gemm.csv"), "-n", "64"}).err,
              HasSubstr("a file and a size"));
}

TEST_F(BucketCommands, BenchTimesBothEndsOfEachBucket) {
  tune(bf16_shapes, {"--libtype", "tiled"});
  const Json timed = json_of({"bench", configs(), "--rounds", "5", "--max-regression", "1000"});
  ASSERT_EQ(timed["rows"].size(), 4U) << timed;
  EXPECT_EQ(timed["rows"][0]["match"], "bucket");
  EXPECT_THAT(timed["rows"][1]["problem"].get<std::string>(), HasSubstr("m=256"));
  EXPECT_EQ(timed["rows"][1]["kernelName"], written_[0]["kernelName"]);
  EXPECT_EQ(program_
                .run({"bench", configs(), "--against", program_.file("configs/bf16_tuned_gemm.csv"),
                      "--rounds", "3", "--max-regression", "1000"})
                .exit_code,
            0);
  const auto other = program_.run({"bench", GEMMTUNE_TEST_DATA "/triton/configs/gemm"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("no bucket of this device"));
}

TEST_F(BucketCommands, DiffAndMergeGoByBucket) {
  tune(bf16_shapes, {"--libtype", "tiled"});
  const std::string name = std::filesystem::path(config()).filename().string();
  const std::string changed = program_.folder().write(
      "b/" + name,
      R"({"small_M": {"kernelName": "skinny_r1_mr1"}, "large_M": {"kernelName": "skinny_r1_mr2"}})");
  EXPECT_EQ(program_.run({"diff", configs(), configs()}).exit_code, 0);
  const Json difference = json_of({"diff", config(), changed}, 1);
  EXPECT_EQ(difference["equal"], 0);
  ASSERT_EQ(difference["changes"].size(), 3U);
  EXPECT_EQ(difference["changes"][0]["kind"], "winner");
  EXPECT_EQ(difference["changes"][0]["bucket"], "small_M");
  EXPECT_EQ(difference["changes"][0]["after"]["kernelName"], "skinny_r1_mr1");
  EXPECT_EQ(difference["changes"][1]["kind"], "removed");
  EXPECT_EQ(difference["changes"][2]["kind"], "added");

  const std::string merged = program_.file("merged.json");
  const Json summary = json_of({"merge", config(), changed, "-o", merged});
  EXPECT_EQ(summary["buckets"], 3);
  EXPECT_EQ(summary["duplicates"], 1);
  const Json content = parse_json(read_text(merged));
  EXPECT_EQ(content["small_M"]["kernelName"], written_[0]["kernelName"]) << "the first file's";
  EXPECT_EQ(content["large_M"]["kernelName"], "skinny_r1_mr2");

  const auto refused = [&](std::vector<std::string> words) {
    const auto result = program_.run(std::move(words));
    EXPECT_EQ(result.exit_code, 2) << result.out;
    return result.err;
  };
  EXPECT_THAT(refused({"merge", config(), changed, "-o", changed}), HasSubstr("is an input"));
  EXPECT_THAT(refused({"merge", config(), "--compress"}), HasSubstr("expected no Triton config"));
  EXPECT_THAT(refused({"merge", config(), program_.file("configs/bf16_tuned_gemm.csv")}),
              HasSubstr("expected one kind"));
  const std::string shipped = GEMMTUNE_TEST_DATA "/triton/configs";
  EXPECT_THAT(refused({"merge", configs(), shipped, "-o", program_.file("one.json")}),
              HasSubstr("expected a folder"));
  EXPECT_EQ(program_.run({"merge", configs(), shipped, "-o", program_.file("all/")}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(program_.file("all/" + name)));
}

TEST_F(BucketCommands, AuditSaysWhatIsWrong) {
  const Json json = json_of({"audit", GEMMTUNE_TEST_DATA "/triton/audit"}, 1);
  const std::map<std::string, int> expected{
      {"missing_bucket", 2}, {"unreachable", 3},    {"unread_key", 3}, {"wrong_size", 1},
      {"duplicate_key", 1},  {"unknown_kernel", 1}, {"other_split", 1}};
  for (const auto& [kind, count] : expected) EXPECT_EQ(json["summary"][kind], count) << kind;
  EXPECT_EQ(json["findings"].size(), 12U);
  EXPECT_EQ(json["files"][0]["format"], "triton_json");
  EXPECT_EQ(json["files"][0]["buckets"], 2);
  const auto text = program_.run({"audit", GEMMTUNE_TEST_DATA "/triton/audit", "--kinds", "missing_bucket"});
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out,
              HasSubstr("gfx942-MOE-FP8_W8A8.json: missing_bucket: no bucket answers M = 256 to 1023\n"));
  EXPECT_THAT(text.out, HasSubstr("11 buckets in 4 files, 2 findings"));

  // A kernel of this device that does not take the sizes of its file.
  tune(bf16_shapes, {"--libtype", "tiled"});
  EXPECT_EQ(json_of({"audit", configs()}, 0)["summary"]["unknown_kernel"], 0) << "large_M is missing";
  const std::string name = std::filesystem::path(config()).filename().string();
  const std::string bad =
      program_.folder().write("bad/" + name, R"({"any": {"kernelName": "tiled_r1_gone1", "gone": 1}})");
  EXPECT_THAT(program_.run({"audit", bad}).out,
              HasSubstr(name + ":1: unknown_kernel: any: kernel 'tiled_r1_gone1'"));
  EXPECT_EQ(program_.run({"audit", bad, "--fix", program_.file("x.csv")}).exit_code, 2);
  EXPECT_THAT(program_.run({"audit", program_.file("none")}).err, HasSubstr("none"));
}

TEST_F(BucketCommands, ExplainCacheAndCoverageTakeThem) {
  tune(bf16_shapes, {"--libtype", "tiled"});
  const Json explained = json_of({"explain", "-m", "5", "-n", "64", "-k", "64", "--table", configs()});
  EXPECT_THAT(explained["dispatch"].get<std::string>(),
              HasSubstr(written_[0]["kernelName"].get<std::string>() + ": bucket small_M (M = 1 to 256), "));
  EXPECT_TRUE(json_of({"explain", "-m", "5", "-n", "64", "-k", "64"})["dispatch"].is_null());
  EXPECT_EQ(json_of({"cache", "warm", configs()})["rows"], 2);
  const Json covered = json_of({"coverage", program_.file("shapes.csv"), "--table", config()});
  EXPECT_EQ(covered["levels"]["bucket"]["shapes"], 3);
  EXPECT_EQ(covered["levels"]["untuned"]["shapes"], 0);
}

/// A fused MoE has AITER's family of its types, its bounds of M, and experts in its name.
TEST_F(BucketCommands, AFusedMoeIsTunedCheckedAndDispatched) {
  const auto line = [](int tokens, int topk) {
    return std::to_string(tokens) + ",128,64,4," + std::to_string(topk) +
           ",ActivationType.Silu,torch.bfloat16,torch.bfloat16,torch.bfloat16,QuantType.No,1,0\n";
  };
  const std::string header =
      "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_"
      "stage1\n";
  tune(header + line(4, 2) + line(255, 2) + line(300, 2), {"--op", "fused_moe"});
  ASSERT_EQ(written_.size(), 2U) << written_;
  EXPECT_THAT(config(), HasSubstr("-MOE-DEFAULT-E=4-N=64-K=128.json"));
  for (const auto& [m, index] : {std::pair(1, 0), {255, 0}, {256, 1}, {1023, 1}}) {
    const Json answer = json_of({"lookup", "--op", "fmoe", "-m", std::to_string(m), "-n", "64", "-k", "128",
                                 "--expert", "4", "--topk", "2", "--table", config()});
    EXPECT_EQ(answer["level"], "bucket") << m;
    EXPECT_EQ(answer["kernelName"], written_[static_cast<std::size_t>(index)]["kernelName"]) << m;
  }
  const Json checked = json_of({"check", config()});
  ASSERT_EQ(checked["rows"].size(), 2U);
  EXPECT_EQ(checked["rows"][1]["state"], "right") << checked;
  EXPECT_THAT(checked["rows"][1]["problem"].get<std::string>(), HasSubstr("m=1023 n=64 k=128"));

  // Two problems of one name are said, and so is an operation that there is none of.
  const auto both =
      program_.run({"tune", "-i", program_.folder().write("two.csv", header + line(4, 2) + line(4, 3)), "-o",
                    program_.file("two"), "--buckets", "--op", "fused_moe", "--quiet"});
  EXPECT_EQ(both.exit_code, 1);
  EXPECT_THAT(both.out, HasSubstr("no bucket: fused_moe m=4 n=64 k=128"));
  EXPECT_THAT(program_.run({"tune", "--op", "a16wfp6", "--buckets", "-o", program_.file("x")}).err,
              HasSubstr("--op a16wfp6: unknown operation"));
}

TEST_F(BucketCommands, ListsOfRequestsMayNameThem) {
  const std::string file =
      GEMMTUNE_TEST_DATA "/triton/configs/gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=2112-K=7168.json";
  const std::string begin = "a8w8_blockscale," + file + ",gfx=gfx950;cu_num=256;M=9;";
  const auto result =
      program_.run({"lookup", "--requests",
                    program_.folder().write("requests.csv", "family,file,request\n" + begin +
                                                                "N=2112;K=7168\n" + begin + "N=64;K=64\n"),
                    "--json"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json answers = parse_json(result.out)["answers"];
  ASSERT_EQ(answers.size(), 2U);
  const Json& first = answers[0];
  EXPECT_EQ(first["level"], "bucket");
  EXPECT_EQ(first["row"]["bucket"], "M_LEQ_64");
  EXPECT_EQ(first["row"]["m_from"], 9);
  EXPECT_EQ(answers[1]["level"], "untuned") << "of other sizes";
}

TEST_F(BucketCommands, ATritonConfigurationIsAMissWithItsReason) {
  const auto answer =
      program_.run({"lookup", "--op", "a8w8_blockscale", "-m", "300", "-n", "2112", "-k", "7168", "--gfx",
                    "gfx950", "--cu_num", "256", "--table", GEMMTUNE_TEST_DATA "/triton/configs"});
  EXPECT_EQ(answer.exit_code, 0) << answer.err;
  EXPECT_THAT(answer.out, HasSubstr("bucket  M=300: any (M = 65 to 4095) ("));
  EXPECT_THAT(answer.out, HasSubstr("cannot run here: a bucket of gfx950"));
  const auto device = program_.run({"devices", "--json"});
  ASSERT_EQ(device.exit_code, 0);
  tune(bf16_shapes, {"--libtype", "tiled"});
  const std::string name = std::filesystem::path(config()).filename().string();
  const std::string triton = program_.folder().write("triton/" + name, R"({"any": {"BLOCK_SIZE_M": 16}})");
  const auto here = program_.run({"lookup", "-m", "5", "-n", "64", "-k", "64", "--table", triton});
  EXPECT_THAT(here.out, HasSubstr("answer: no row: the device's fallback"));
  EXPECT_THAT(here.out, HasSubstr("a configuration that only Triton can run (it has no kernelName)"));
}

}  // namespace
}  // namespace gemmtune::test
