// vLLM's and SGLang's Triton configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/all_formats.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/bucket_sets.h"
#include "formats/triton/triton_audit.h"
#include "formats/triton/triton_folder.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

const std::string h200 = "N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128,128].json";

std::string nearest_data(const std::string& name) {
  return std::string(GEMMTUNE_TEST_DATA) + "/nearest/" + name;
}

TritonFile config_file(const std::string& path, const std::string& content) {
  auto file = parse_triton_json(path, content);
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TritonFile();
}

std::string bucket(int m, const std::string& parameters) {
  return "\"" + std::to_string(m) + "\": {" + parameters + "}";
}

std::string nearest_key(const TritonFile& file, std::int64_t m) {
  const auto match = find_bucket(file, m);
  return match ? match->bucket->key : "none";
}

/// "kind text" of each.
std::vector<std::string> audit_of(std::initializer_list<TritonFile> files) {
  std::vector<std::string> found;
  for (const Finding& finding : audit_triton_files(std::vector<TritonFile>(files)))
    found.push_back(std::string(to_string(finding.kind)) + " " + finding.text);
  return found;
}

/// All the usual keys with these parameters.
std::string default_file(const std::string& parameters) {
  std::string text;
  for (const int m : {1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 256, 512, 1024, 1536, 2048, 3072, 4096})
    text += (text.empty() ? "{" : ", ") + bucket(m, parameters);
  return text + "}";
}

TEST(Nearest, BothSpellingsOfANameAreOne) {
  const auto vllm = parse_triton_file_name("/x/" + h200);
  ASSERT_TRUE(vllm);
  EXPECT_EQ(vllm->arch, "NVIDIA_H200");
  EXPECT_EQ(vllm->family, nearest_dense_family);
  EXPECT_EQ(vllm->n, 1536);
  EXPECT_EQ(vllm->k, 7168);
  EXPECT_EQ(vllm->specialisation, "N=1536,K=7168,dtype=fp8_w8a8,block_shape=[128,128]");
  EXPECT_EQ(parse_triton_file_name(
                "N=1536,K=7168,device_name=NVIDIA_H200,dtype=fp8_w8a8,block_shape=[128, 128].json"),
            vllm);
  const auto mixture = parse_triton_file_name(
      "triton_3_6_0/E=256,N=128,device_name=NVIDIA_H200,dtype=fp8_w8a8,per_channel_quant=True_down.json");
  ASSERT_TRUE(mixture);
  EXPECT_EQ(mixture->family, nearest_moe_family);
  EXPECT_EQ(mixture->e, 256);
  EXPECT_TRUE(mixture->specialisation.ends_with(down_suffix));
  EXPECT_NE(parse_triton_file_name("gfx942-GEMM-A8W8-N=1-K=2.json")->family, nearest_dense_family);
}

TEST(Nearest, TheNearestKeyAnswersAndTheFirstOfTwo) {
  const TritonFile file =
      config_file("a.json", R"({"16": {"num_warps": 1}, "64": {"num_warps": 2}, "1": {"num_warps": 4}})");
  EXPECT_EQ(file.scheme, TritonScheme::nearest);
  EXPECT_EQ(nearest_key(file, 1), "1");
  EXPECT_EQ(nearest_key(file, 8), "1");
  EXPECT_EQ(nearest_key(file, 9), "16");
  EXPECT_EQ(nearest_key(file, 40), "16") << "as near as 64, and stands first";
  EXPECT_EQ(nearest_key(file, 41), "64");
  EXPECT_EQ(nearest_key(file, 100000), "64");
  std::vector<std::string> spans;
  for (const BucketSpan& span : bucket_spans(file))
    spans.push_back(span.bucket->key + ":" + std::to_string(span.m_from));
  EXPECT_THAT(spans, ElementsAre("1:1", "16:9", "64:41"));
}

TEST(Nearest, AFileIsWrittenAsItWasRead) {
  for (const std::string& path : config_files_in(nearest_data(""))) {
    const auto content = read_file(path);
    ASSERT_TRUE(content.ok());
    EXPECT_EQ(write_triton_json(config_file(path, *content)), *content) << path;
  }
  EXPECT_THAT(config_files_in(nearest_data("")), SizeIs(3));
  EXPECT_THAT(triton_files_in(nearest_data("")), IsEmpty()) << "look-up does not read them";
}

TEST(Nearest, AuditNamesALostShareNoiseOrderAndName) {
  const std::string kernel = R"("BLOCK_SIZE_M": 64, "GROUP_SIZE_M": )";
  EXPECT_THAT(audit_of({config_file(h200, default_file(kernel + "1"))}), IsEmpty());
  const auto lost = audit_of(
      {config_file(h200, "{" + bucket(2048, kernel + "1") + ", " + bucket(4096, kernel + "1") + "}")});
  EXPECT_THAT(lost, ElementsAre(HasSubstr("missing_bucket keys 1, 2, 4, 8")));
  EXPECT_THAT(lost[0], HasSubstr("M = 1 gets the config of 2048"));
  std::string noisy = default_file(kernel + "1");
  noisy.replace(noisy.find("\"2\": {\"BLOCK_SIZE_M\": 64, \"GROUP_SIZE_M\": 1"), 43,
                "\"2\": {\"BLOCK_SIZE_M\": 64, \"GROUP_SIZE_M\": 64");
  EXPECT_THAT(audit_of({config_file(h200, noisy)}),
              ElementsAre(HasSubstr("noise GROUP_SIZE_M is 1, 64, 1, 1, 1, 1, 1, 1, 1 at M = 1, 2")));
  const std::string mixture = "E=8,N=64,device_name=NVIDIA_H200.json";
  EXPECT_THAT(audit_of({config_file(mixture, noisy)}), IsEmpty()) << "each expert has rows of its own";
  std::string large = noisy;  // two rows of blocks at M = 2
  for (std::size_t at = 0; (at = large.find("\"BLOCK_SIZE_M\": 64", at)) != std::string::npos;)
    large.replace(at, 18, "\"BLOCK_SIZE_M\": 1");
  EXPECT_THAT(audit_of({config_file(h200, large)}), IsEmpty());
  EXPECT_THAT(audit_of({config_file(
                  h200, default_file(kernel + "1").substr(0, default_file(kernel + "1").size() - 1) + ", " +
                            bucket(3, kernel + "1") + "}")}),
              ElementsAre(HasSubstr("key_order '3' stands behind '4096'")));
  EXPECT_THAT(audit_of({config_file("best.json", default_file(kernel + "1"))}),
              ElementsAre(HasSubstr("unreachable its name is none")));
}

TEST(Nearest, ADownProjectionHasItsFirstFilesRows) {
  const std::string folder = nearest_data("triton_3_6_0/");
  std::vector<TritonFile> files;
  for (const std::string& path : config_files_in(nearest_data("")))
    files.push_back(config_file(path, *read_file(path)));
  std::vector<std::string> unpaired;
  for (const Finding& finding : audit_triton_files(files))
    if (finding.kind == FindingKind::unpaired) unpaired.push_back(finding.text);
  EXPECT_THAT(unpaired, ElementsAre(HasSubstr("M = 32: BLOCK_SIZE_M is 64, "), HasSubstr("M = 48")));
  const std::string a = "s/E=8,N=64,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json";
  const std::string b = "s/E=8,N=64,device_name=X,dtype=fp8_w8a8,block_shape=[128, 128].json";
  const std::string text = default_file(R"("BLOCK_SIZE_M": 64)");
  EXPECT_THAT(audit_of({config_file(a, text), config_file(b, text)}),
              ElementsAre(HasSubstr("duplicate_key s/E=8")));
  EXPECT_THAT(audit_of({config_file(a, text), config_file("t/" + b.substr(2), text)}), IsEmpty())
      << "of another Triton";
}

TEST(Nearest, ConvertedToRowsAndBack) {
  const auto content = read_file(nearest_data(h200));
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(detect_format(h200, *content).name, "vllm_json");
  ConversionOptions device;
  device.gfx = "sm_90";
  device.cu_num = 132;
  auto rows = read_triton_rows(h200, *content, device);
  ASSERT_TRUE(rows.ok()) << rows.message();
  auto same = write_rows(**find_format("vllm_json"), *rows, device);
  ASSERT_TRUE(same.ok()) << same.message();
  EXPECT_EQ(*same, *content);
  EXPECT_THAT(rows->left_out, IsEmpty());
  auto table = write_rows(**find_format("aiter"), *rows, device);
  ASSERT_TRUE(table.ok()) << table.message();
  auto again = read_aiter_rows("a8w8_blockscale_tuned_gemm.csv", *table, device);
  ASSERT_TRUE(again.ok()) << again.message();
  ASSERT_THAT(again->entries, SizeIs(18));
  auto back = write_rows(**find_format("vllm_json"), *again, device);
  ASSERT_TRUE(back.ok()) << back.message();
  EXPECT_EQ(*back, *content);
  EXPECT_THAT(again->notes, Contains(HasSubstr("the nearest M, not the next larger one")));
}

TEST(Nearest, MergedAndComparedAcrossSpellings) {
  const TritonFile vllm = config_file("a/E=8,N=64,device_name=X,block_shape=[128,128].json",
                                      R"({"4": {"num_warps": 4}, "1": {"num_warps": 4}})");
  const TritonFile sglang = config_file("b/E=8,N=64,device_name=X,block_shape=[128, 128].json",
                                        R"({"1": {"num_warps": 8}, "2": {"num_warps": 4}})");
  const MergedConfigs merged = merge_triton_files(std::vector<TritonFile>{vllm, sglang});
  ASSERT_THAT(merged.files, SizeIs(1));
  EXPECT_EQ(merged.duplicates, 1U);
  std::string keys;
  for (const TritonBucket& one : merged.files[0].buckets) keys += one.key + " ";
  EXPECT_EQ(keys, "1 2 4 ");
  EXPECT_EQ(merged.files[0].buckets[0].config.integer("num_warps"), 4);
  EXPECT_THAT(compare_triton_files(std::vector<TritonFile>{vllm}, std::vector<TritonFile>{sglang}).changes,
              SizeIs(3));
}

TEST(Flashinfer, WhatIsThereIsListedAndNothingCarried) {
  const auto content = read_file(std::string(GEMMTUNE_TEST_DATA) + "/flashinfer/cache.json");
  ASSERT_TRUE(content.ok());
  EXPECT_EQ(detect_format("autotuner.json", *content).name, "flashinfer");
  auto rows = read_flashinfer_rows("autotuner.json", *content, {});
  ASSERT_TRUE(rows.ok()) << rows.message();
  EXPECT_THAT(rows->notes, ElementsAre("autotuner.json:2: cublas_version is '*': it is not checked",
                                       "autotuner.json:2: _metadata says no cudnn_version"));
  ASSERT_THAT(rows->left_out, SizeIs(1));
  EXPECT_THAT(rows->left_out[0].why, HasSubstr("key 'bad', expected ('operation', 'runner', (shapes))"));
  EXPECT_EQ(rows->left_out[0].line, 12U);
  const auto listing = write_rows(**find_format("listing"), *rows, {});
  ASSERT_TRUE(listing.ok()) << listing.message();
  EXPECT_THAT(*listing, HasSubstr("_metadata gpu: NVIDIA B200\n"));
  EXPECT_THAT(*listing, HasSubstr("8: fp4_gemm (4, 7168), (7168, 4608): CudnnFp4GemmRunner, tactic 3\n"));
  const auto table = write_rows(**find_format("aiter"), *rows, {});
  EXPECT_THAT(table.message(), HasSubstr("indices of one version of a library on one GPU"));
}

}  // namespace
}  // namespace gemmtune
