// `tune --buckets` from outside: files, keys and regret, and that look-up finds the buckets again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/bucket_program.h"
#include "formats/json.h"
#include "formats/shapes/shape_list.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune::test::buckets_test {
namespace {

using ::testing::HasSubstr;

/// bf16_shapes in float32, for which each CPU has a default kernel.
std::string f32_shapes() {
  std::string shapes = bf16_shapes;
  for (std::size_t at = 0; (at = shapes.find("bfloat16", at)) != std::string::npos;)
    shapes.replace(at, 8, "float32");
  return shapes;
}

class BucketsCli : public ::testing::Test {
 protected:
  SubprocessResult tune(const std::string& shapes, const std::vector<std::string>& more) const {
    return program_.tune(shapes, more);
  }

  BucketProgram program_;
};

TEST_F(BucketsCli, OneKernelAnswersABucketAndTheRegretIsWritten) {
  const auto result = tune(f32_shapes(), {"--libtype", "tiled,skinny"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json document = parse_json(result.out);
  ASSERT_EQ(document["buckets"].size(), 2U) << document["bucket_problems"];
  EXPECT_EQ(document["buckets"][0]["key"], "small_M");
  EXPECT_EQ(document["buckets"][0]["ms"], 2);
  const std::string path = document["buckets"][0]["path"];
  EXPECT_THAT(path, HasSubstr("-GEMM-A16W16-N=64-K=64.json"));
  const auto file = read_triton_json(path);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_TRUE(file->diagnostics.empty()) << file->diagnostics.front();
  EXPECT_EQ(file->name.family, "GEMM-A16W16");
  EXPECT_EQ(file->name.n, 64);
  for (const auto& [m, index] : {std::pair{1, 0}, {9, 0}, {256, 0}, {257, 1}, {2048, 1}}) {
    const auto match = find_bucket(*file, m);
    ASSERT_TRUE(match && match->tuned) << m;
    EXPECT_EQ(
        *match->bucket->config.find("kernelName"),
        TritonValue(document["buckets"][static_cast<std::size_t>(index)]["kernelName"].get<std::string>()));
  }
  EXPECT_FALSE(find_bucket(*file, 2049)) << "nothing was tuned there";
  // One key of ours; what AITER has a key for stands under that one.
  for (const TritonBucket& bucket : file->buckets) {
    for (const auto& [key, value] : bucket.config.parameters)
      EXPECT_TRUE(key == "kernelName" || key.starts_with("BLOCK_SIZE_") || key == "NUM_KSPLIT") << key;
  }
  ASSERT_EQ(file->notes.size(), 2U);
  EXPECT_EQ(file->notes[0].key, "_regret");
  EXPECT_EQ(file->notes[1].key, "_problem");
  EXPECT_THAT(file->notes[1].json, HasSubstr("a16w16 m=300 n=64 k=64 x=f32"));
  const Json regrets = parse_json(file->notes[0].json);
  EXPECT_EQ(regrets["medium_M"], 0.0) << "one M: no regret";
  EXPECT_GE(regrets["small_M"], 0.0);
}

TEST_F(BucketsCli, EqualKeysAreReplacedAndOthersStay) {
  ASSERT_EQ(tune(bf16_shapes, {"--libtype", "tiled"}).exit_code, 0);
  std::string path;
  for (const auto& file : std::filesystem::directory_iterator(program_.file("configs")))
    if (file.path().filename().string().find("GEMM-A16W16") != std::string::npos) path = file.path();
  ASSERT_FALSE(path.empty());
  const std::string name = std::filesystem::path(path).filename();
  program_.folder().write("configs/" + name,
                          R"({"small_M": {"mr": 77}, "large_M": {"mr": 5}, "_why": "by hand"})");
  const auto again = tune(bf16_shapes, {"--libtype", "tiled"});
  ASSERT_EQ(again.exit_code, 0) << again.err;
  const Json json = parse_json(read_text(path));
  EXPECT_TRUE(json["small_M"].contains("kernelName")) << json;
  EXPECT_NE(json["small_M"].value("mr", 0), 77);
  EXPECT_EQ(json["large_M"]["mr"], 5);
  EXPECT_EQ(json["_why"], "by hand");
  EXPECT_TRUE(json["_regret"].contains("small_M"));
  const auto other = tune(bf16_shapes, {"--libtype", "tiled", "--bucket-scheme", "bounds"});
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("scheme thirds, expected bounds"));
}

TEST_F(BucketsCli, BoundsAreTheSmallestThatHoldTheM) {
  const auto result = tune(bf16_shapes, {"--libtype", "tiled", "--bucket-scheme", "bounds"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  std::vector<std::string> keys;
  const Json document = parse_json(result.out);
  for (const Json& one : document["buckets"]) keys.push_back(one["key"]);
  EXPECT_EQ(keys, (std::vector<std::string>{"M_LEQ_1", "M_LEQ_16", "M_LEQ_512"}));
}

TEST_F(BucketsCli, BlockScaleHasNamesOfItsOwn) {
  const auto result = tune("M,N,K\n4,128,256\n", {"--op", "a8w8_blockscale"});
  ASSERT_EQ(result.exit_code, 0) << result.err;
  const Json document = parse_json(result.out);
  EXPECT_THAT(document["buckets"][0]["path"].get<std::string>(),
              HasSubstr("-GEMM-A8W8_BLOCKSCALE-N=128-K=256.json"));
}

TEST_F(BucketsCli, WhatDoesNotGoTogetherIsRefused) {
  EXPECT_EQ(tune(bf16_shapes, {"--m-range", "1:4"}).exit_code, 2);
  EXPECT_EQ(tune(bf16_shapes, {"--bucket-scheme", "halves"}).exit_code, 2);
  EXPECT_EQ(program_.run({"tune", "--buckets", "-o", program_.file("x")}).exit_code, 2)
      << "no shapes of bf16";
}

}  // namespace
}  // namespace gemmtune::test::buckets_test
