// `gemmtune tune --op` for every operation: from its untuned file to a tuned one in AITER's format that reads
// back, looks up, and whose row runs right.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/program.h"
#include "formats/json.h"

namespace gemmtune::test::tune_operations_test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::StartsWith;

struct Case {
  std::string operation;
  std::string file;  // AITER's name, which tells the operation
  std::string untuned;
  std::string tuned_header;  // its beginning
  std::string kernel;        // the beginning of the row's name
  std::vector<std::string> lookup;
};

std::vector<Case> cases() {
  const std::string dense = "gfx,cu_num,M,N,K,";
  const std::string batched = "gfx,cu_num,B,M,N,K,";
  const std::string moe =
      "token,model_dim,inter_dim,expert,topk,act_type,dtype,q_dtype_a,q_dtype_w,q_type,use_g1u1,doweight_"
      "stage1\n";
  const std::vector<std::string> sizes{"-m", "5", "-n", "96", "-k", "128"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), sizes.begin(), sizes.end());
    return more;
  };
  return {
      {"a8w8", "a8w8_tuned_gemm.csv", "M,N,K,q_dtype_w\n5,96,128,torch.int8\n", dense,
       "(quantized|tiled)_r1_", sizes},
      {"a8w8_bpreshuffle", "a8w8_bpreshuffle_tuned_gemm.csv", "M,N,K,q_dtype_w\n5,96,128,torch.int8\t\n",
       dense, "(quantized|streaming|tiled)_r1_", with({"--indtype", "int8"})},
      {"a8w8_blockscale", "a8w8_blockscale_tuned_gemm.csv", "M,N,K\n5,96,128\n", dense, "quantized_r1_",
       sizes},
      {"a8w8_blockscale_bpreshuffle", "a8w8_blockscale_bpreshuffle_tuned_gemm.csv",
       "M,N,K,q_dtype_w\n5,96,128,torch.float8_e4m3fn\n", dense, "(quantized|streaming)_r1_", sizes},
      {"a4w4_blockscale", "a4w4_blockscale_tuned_gemm.csv", "M,N,K\n5,96,128\n", dense, "quantized_r1_",
       sizes},
      {"a16w4", "a16w4_tuned_gemm.csv", "M,N,K,bias,q_dtype_a\n5,96,128,True,torch.bfloat16\n",
       dense + "bias,q_dtype_a,q_dtype_w,outdtype,bpreshuffle,", "(skinny_w4|quantized)_r1_",
       with({"--bias"})},
      {"a8w4", "a8w4_tuned_gemm.csv", "M,N,K\n5,96,128\n", dense, "(skinny_w4|quantized)_r1_", sizes},
      {"batched_bf16", "bf16_tuned_batched_gemm.csv", "B,M,N,K\n3,5,96,128\n", batched, "batched_r1_",
       with({"-b", "3"})},
      {"batched_a8w8", "a8w8_tuned_batched_gemm.csv", "B,M,N,K\n3,5,96,128\n", batched, "batched_r1_",
       with({"-b", "3"})},
      {"fused_moe",
       "tuned_fmoe.csv",
       moe + "8,128,96,5,2,ActivationType.Silu,torch.bfloat16,torch.float8_e4m3fn,torch.float8_e4m3fn,"
             "QuantType.per_Token,1,0\n",
       "gfx,cu_num,token,model_dim,inter_dim,",
       "moe_r1_",
       {}},
  };
}

class TuneOperations : public ::testing::TestWithParam<Case> {
 protected:
  SimulatedProgram program;
};

TEST_P(TuneOperations, FromTheUntunedFileToARowThatRuns) {
  const Case& test = GetParam();
  const std::string input = program.folder().write("untuned.csv", test.untuned);
  const std::string output = program.file(test.file);
  const std::vector<std::string> words = {"tune", "--op",     test.operation, "-i",      input, "-o",
                                          output, "--budget", "60",           "--iters", "5",   "--json"};
  const auto tuned = program.run(words);
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err << tuned.out;
  const Json summary = parse_json(tuned.out);
  ASSERT_EQ(summary["problems"].size(), 1U);

  const std::string file = read_text(output);
  EXPECT_THAT(file, StartsWith(test.tuned_header));
  EXPECT_THAT(file, ContainsRegex(test.kernel));

  // The row reads back: there is nothing left to do.
  const auto again = program.run(words);
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(parse_json(again.out)["problems"][0]["state"], "done already") << again.out;

  const auto checked = program.run({"check", output});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("1 right, 0 not"));

  if (test.lookup.empty()) return;
  std::vector<std::string> lookup{"lookup", "--op", test.operation, "--table", output, "--json"};
  lookup.insert(lookup.end(), test.lookup.begin(), test.lookup.end());
  const auto found = program.run(lookup);
  ASSERT_EQ(found.exit_code, 0) << found.err;
  const Json report = parse_json(found.out);
  EXPECT_EQ(report["level"], "exact") << found.out;
  EXPECT_EQ(report["runnable"], true) << found.out;
  EXPECT_THAT(report["kernelName"].get<std::string>(), ContainsRegex("^" + test.kernel));
}

/// A second run of `tune --op` reads its own output, as all commands read it, by --op.
TEST_P(TuneOperations, OpNamesTheOperationOfFilesWhoseNamesDoNot) {
  const Case& test = GetParam();
  const std::string input = program.folder().write("a.csv", test.untuned);
  const std::string output = program.file("x.csv");
  const std::string other = program.file("y.csv");
  const std::vector<std::string> op{"--op", test.operation};
  const auto run = [&](std::vector<std::string> words) {
    words.insert(words.end(), op.begin(), op.end());
    return program.run(words);
  };
  const std::vector<std::string> quick{"--budget", "60", "--iters", "5", "--confirmations", "1", "--json"};
  const auto tune = [&](std::vector<std::string> words) {
    words.insert(words.begin(), "tune");
    words.insert(words.end(), quick.begin(), quick.end());
    return run(std::move(words));
  };
  const auto first = tune({"-i", input, "-o", output});
  ASSERT_EQ(first.exit_code, 0) << first.err << first.out;
  const auto again = tune({"-i", input, "-o", output});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(parse_json(again.out)["problems"][0]["state"], "done already") << again.out;
  const auto further = tune({"-i", input, "-o", other + ":" + output});
  ASSERT_EQ(further.exit_code, 0) << further.err;
  EXPECT_EQ(parse_json(further.out)["problems"][0]["state"], "done already") << further.out;
  const auto own = tune({"-i", output, "-o", output, "--all"});
  EXPECT_EQ(own.exit_code, 0) << own.err;

  const auto operator_time = run({"tune", "--run_config", output, "--iters", "1"});
  EXPECT_EQ(operator_time.exit_code, 0) << operator_time.err;
  const auto checked = run({"check", output});
  EXPECT_EQ(checked.exit_code, 0) << checked.out << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("1 right, 0 not"));
  const auto timed = run({"bench", output, "--against", output, "--rounds", "2", "--max-regression", "1000"});
  EXPECT_EQ(timed.exit_code, 0) << timed.out << timed.err;
  const auto warmed = run({"cache", "warm", output});
  EXPECT_EQ(warmed.exit_code, 0) << warmed.out << warmed.err;
  EXPECT_THAT(warmed.out, HasSubstr("1 built, 0 not"));
}

INSTANTIATE_TEST_SUITE_P(All, TuneOperations, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.operation; });

}  // namespace
}  // namespace gemmtune::test::tune_operations_test
