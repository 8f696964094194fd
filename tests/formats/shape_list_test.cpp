#include "formats/shapes/shape_list.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "base/file.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

class ShapeListTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "gemmtune_shapes_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& content) const {
    const std::string path = (folder_ / name).string();
    EXPECT_TRUE(write_file_atomically(path, content).ok());
    return path;
  }
  Result<ShapeList> read(const std::string& content, const ShapeListOptions& options = {}) const {
    return read_shape_list(write("bf16_untuned_gemm.csv", content), options);
  }
  fs::path folder_;
};

TEST_F(ShapeListTest, ReadsAitersHeaderWithItsDirt) {
  const auto list = read(
      "\xef\xbb\xbfM,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\r\n"
      "64, 256, 5120,False,torch.bfloat16,torch.float32,False,False\r\n"
      "\r\n"
      "1,128,6144,TRUE,torch.float16\t,torch.float16,0,True");
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_EQ(list->rows.size(), 2U);
  EXPECT_TRUE(list->diagnostics.empty());
  const Problem& first = list->rows[0].problem;
  EXPECT_EQ(print(first), "a16w16 m=64 n=256 k=5120 x=bf16 w=bf16 y=f32 bias=0 scale_ab=0 layout=plain");
  EXPECT_EQ(list->rows[0].line, 2U);
  const Problem& second = list->rows[1].problem;
  EXPECT_EQ(print(second), "a16w16 m=1 n=128 k=6144 x=f16 w=f16 y=f16 bias=1 scale_ab=0 layout=any");
  EXPECT_EQ(list->rows[1].line, 4U);
}

TEST_F(ShapeListTest, OldHeadersHaveDefaults) {
  const auto list = read("K,N,M,dtype,bias\n64,32,16,torch.bfloat16,False\n");
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_EQ(list->rows[0].problem.m, 16);
  EXPECT_EQ(list->rows[0].problem.k, 64);
  EXPECT_EQ(list->rows[0].problem.y_type, DataType::bf16);
}

TEST_F(ShapeListTest, AMissingKeyColumnIsNamed) {
  const auto list = read("M,N,bias,dtype\n1,2,False,torch.bfloat16\n");
  EXPECT_EQ(list.code(), StatusCode::invalid_argument);
  EXPECT_NE(list.message().find("has no column K"), std::string::npos) << list.message();
  const auto untyped = read("M,N,K\n1,2,3\n");
  ASSERT_TRUE(untyped.ok()) << untyped.message();
  EXPECT_EQ(untyped->rows[0].problem.x_type, DataType::bf16);
  ASSERT_EQ(untyped->notes.size(), 1U);
  EXPECT_NE(untyped->notes[0].find("read as a16w16 of bf16"), std::string::npos) << untyped->notes[0];
  ShapeListOptions options;
  options.x_type = DataType::f16;
  const auto typed = read("M,N,K\n1,2,3\n", options);
  ASSERT_TRUE(typed.ok()) << typed.message();
  EXPECT_EQ(typed->rows[0].problem.y_type, DataType::f16);
}

TEST_F(ShapeListTest, BadRowsBecomeDiagnosticsAndTheRestIsUsed) {
  const std::string text =
      "M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle\n"
      "0,256,512,False,torch.bfloat16,torch.bfloat16,False,False\n"
      "-3,256,512,False,torch.bfloat16,torch.bfloat16,False,False\n"
      "1099511627776,256,512,False,torch.bfloat16,torch.bfloat16,False,False\n"
      "1e3x,256,512,False,torch.bfloat16,torch.bfloat16,False,False\n"
      "1,256,512,maybe,torch.bfloat16,torch.bfloat16,False,False\n"
      "1,256,512,False,torch.complex64,torch.bfloat16,False,False\n"
      "1,256\n"
      "2147483647,2147483647,2147483647,False,torch.bfloat16,torch.bfloat16,False,False\n"
      "7,256,512,False,torch.bfloat16,torch.bfloat16,False,False\n";
  const auto list = read(text);
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_EQ(list->rows.size(), 1U);
  EXPECT_EQ(list->rows[0].problem.m, 7);
  ASSERT_EQ(list->diagnostics.size(), 8U);
  EXPECT_NE(list->diagnostics[0].find(
                "bf16_untuned_gemm.csv:2: column M: value '0', expected a whole number from 1"),
            std::string::npos)
      << list->diagnostics[0];
  EXPECT_NE(list->diagnostics[2].find("value '1099511627776'"), std::string::npos);
  EXPECT_NE(list->diagnostics[4].find("column bias: value 'maybe'"), std::string::npos);
  EXPECT_NE(list->diagnostics[5].find("column dtype: value 'torch.complex64'"), std::string::npos);
  EXPECT_NE(list->diagnostics[6].find(":8: column K: value ''"), std::string::npos);
  EXPECT_NE(list->diagnostics[7].find("2^47"), std::string::npos);
  ShapeListOptions strict;
  strict.strict = true;
  EXPECT_EQ(read(text, strict).code(), StatusCode::invalid_argument);
}

TEST_F(ShapeListTest, DuplicatesAreOneAndCallsAddUp) {
  const auto list = read(
      "M,N,K,dtype,calls,layer\n1,2,3,torch.bfloat16,16,qkv\n4,5,6,torch.bfloat16,,\n1,2,3,bf16,2,other\n");
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_EQ(list->rows.size(), 2U);
  EXPECT_EQ(list->rows[0].calls, 18);
  EXPECT_EQ(list->rows[0].layer, "qkv");
  EXPECT_EQ(list->rows[1].calls, 1);
}

TEST_F(ShapeListTest, WriteThenReadIsTheIdentity) {
  const auto list = read(
      "M,N,K,bias,dtype,outdtype,bpreshuffle,calls,layer\n"
      "1,2,3,True,torch.bfloat16,torch.float32,True,16,\"a,b\"\n9,2,3,0,fp16,fp16,0,1,\n");
  ASSERT_TRUE(list.ok()) << list.message();
  const auto again = read(write_shape_list(list->rows));
  ASSERT_TRUE(again.ok()) << again.message();
  ASSERT_EQ(again->rows.size(), list->rows.size());
  for (std::size_t i = 0; i < list->rows.size(); ++i) {
    EXPECT_EQ(again->rows[i].problem, list->rows[i].problem);
    EXPECT_EQ(again->rows[i].calls, list->rows[i].calls);
    EXPECT_EQ(again->rows[i].layer, list->rows[i].layer);
  }
}

TEST_F(ShapeListTest, TheOperationComesFromFlagHeaderOrName) {
  const std::string sizes = "M,N,K\n1,2,3\n";
  ShapeListOptions options;
  options.x_type = DataType::bf16;
  const auto bare = read_shape_list(write("sizes.csv", sizes), options);
  ASSERT_TRUE(bare.ok()) << bare.message();
  EXPECT_EQ(bare->operation, OperationForm(Operation::a16w16)) << "as gradlib's lists";
  EXPECT_EQ(bare->notes.size(), 1U);
  ShapeListOptions to_file;
  to_file.output = "x_a8w8_blockscale_tuned_gemm.csv";
  const auto for_file = read_shape_list(write("sizes.csv", sizes), to_file);
  ASSERT_TRUE(for_file.ok()) << for_file.message();
  EXPECT_EQ(for_file->operation, OperationForm(Operation::a8w8_blockscale));
  const auto unknown = read_shape_list(write("sizes.csv", "M,N,K,q_dtype_w\n1,2,3,torch.int8\n"), {});
  EXPECT_NE(unknown.message().find("name it with --op"), std::string::npos) << unknown.message();
  const auto other = read_shape_list(write("x_a8w8_blockscale_untuned_gemm.csv", sizes), {});
  ASSERT_TRUE(other.ok()) << other.message();
  EXPECT_EQ(other->operation, OperationForm(Operation::a8w8_blockscale));
  options.operation = OperationForm(Operation::a16w16);
  EXPECT_TRUE(read_shape_list(write("sizes.csv", sizes), options).ok());
  const auto moe = read_shape_list(write("untuned.csv", "token,model_dim\n1,2\n"), {});
  EXPECT_NE(moe.message().find("no column inter_dim, expert, topk, dtype, q_dtype_a, q_dtype_w"),
            std::string::npos)
      << moe.message();
  const auto wrong = read_shape_list(write("untuned.csv", "B,M,N,K\n1,1,2,3\n"), options);
  EXPECT_NE(wrong.message().find("table of batched_bf16, batched_a8w8, expected a16w16"), std::string::npos)
      << wrong.message();
}

TEST_F(ShapeListTest, DamagedFilesAreNamed) {
  EXPECT_FALSE(read("").ok());
  EXPECT_TRUE(read("M,N,K,dtype\n").ok()) << "a header alone is a list of no shapes";
  EXPECT_NE(read(std::string("M,N,K,dtype\n1,2\0,3,bf16\n", 24)).message().find(":2: a NUL byte"),
            std::string::npos);
  EXPECT_NE(read("M,N,K,dtype\n\"1,2,3,bf16\n").message().find(":2: a quote without its end"),
            std::string::npos);
  EXPECT_EQ(read_shape_list((folder_ / "missing.csv").string(), {}).code(), StatusCode::not_found);
  EXPECT_EQ(read_shape_list(folder_.string(), {}).code(), StatusCode::invalid_argument);
}

TEST_F(ShapeListTest, ReadsTuneGemmsSizes) {
  const auto list =
      read_shape_list(write("sizes.yaml",
                            "- {'M': 16, 'N': 32, 'K': 64, 'rowMajorA': 'T', 'rowMajorB': 'N'} # TFLOPS: 1\n"
                            "- M: 8\n  N: 8\n  K: 8\n  rowMajorB: T\n"
                            "- {M: 0, N: 1, K: 1}\n- {M: 1, N: 1, K: 1, rowMajorA: Q}\n- 7\n"),
                      {});
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_EQ(list->rows.size(), 2U);
  EXPECT_EQ(list->rows[0].problem.x_type, DataType::f16);
  EXPECT_EQ(list->rows[0].problem.w_order, Order::row_major);
  EXPECT_EQ(list->rows[1].problem.w_order, Order::column_major);
  ASSERT_EQ(list->diagnostics.size(), 3U);
  EXPECT_NE(list->diagnostics[0].find("sizes.yaml:6: column M: value '0'"), std::string::npos)
      << list->diagnostics[0];
  EXPECT_NE(list->diagnostics[1].find("rowMajorA: value 'Q'"), std::string::npos);
}

TEST_F(ShapeListTest, RefusesWhatIsNoListOfSizes) {
  for (const std::string& text : {std::string("{a: 1}"), std::string("- [1, 2"), std::string(100000, '['),
                                  std::string("- {M: 1"), std::string("&a [*a]")}) {
    EXPECT_FALSE(read_shape_list(write("sizes.yaml", text), {}).ok()) << text.substr(0, 20);
  }
  std::string dashes;
  for (int i = 0; i < 10000; ++i) dashes += "- ";
  EXPECT_FALSE(read_shape_list(write("sizes.yaml", dashes), {}).ok());
}

}  // namespace
}  // namespace gemmtune
