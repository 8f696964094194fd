// vLLM's and SGLang's Triton configs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/all_formats.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/bucket_sets.h"
#include "formats/triton/nearest_loaders.h"
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

TEST(NearestLoaders, ANameIsGoodIfALoaderBuildsIt) {
  const std::string h200_mixture = "E=8,N=14336,device_name=NVIDIA_H200";
  for (const std::string& name :
       {h200_mixture + ",dtype=float8", h200_mixture + ",dtype=FP8_W8A8", h200_mixture + ",dtype=None",
        h200_mixture + ",dtype=fp8_w8a8,block_shape=None",
        h200_mixture + ",dtype=fp8_w8a8,block_shape=(128, 128)",
        h200_mixture + ",dtype=fp8_w8a8,block_shape=[128 ,128]",
        h200_mixture + ",block_shape=[128,128],dtype=fp8_w8a8",
        std::string("E=8,N=14336,device_name=NVIDIA H200"), std::string("E=8,N=14336,device_name="),
        std::string("E=08,N=14336,device_name=NVIDIA_H200"),
        std::string("H=2048,E=8,N=14336,device_name=NVIDIA_H200"),
        std::string("N=512,E=8,device_name=NVIDIA_H200")}) {
    EXPECT_THAT(loaders_of_name(name + ".json"), IsEmpty()) << name;
  }
  const auto programs = [](const std::string& name) {
    std::string text;
    for (const NearestName& one : loaders_of_name(name + ".json"))
      text += std::string(one.loader->program) + " ";
    return text;
  };
  EXPECT_EQ(programs(h200_mixture), "vLLM SGLang ");
  EXPECT_EQ(programs(h200_mixture + ",dtype=fp8_w8a8,block_shape=[128,128]"), "vLLM ");
  EXPECT_EQ(programs(h200_mixture + ",dtype=fp8_w8a8,block_shape=[128, 128]_down"), "SGLang ");
  EXPECT_EQ(programs("E=192,N=192,device_name=NVIDIA_H20-3e_down"), "SGLang ");
  EXPECT_EQ(programs("N=24576,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise"), "SGLang ");
  EXPECT_EQ(
      programs(
          "N=1536,K=7168,device_name=Intel(R)_Arc(TM)_Pro_B70_Graphics,dtype=fp8_w8a8,block_shape=[128,128]"),
      "vLLM ");
  EXPECT_EQ(programs("headdim=64,dstate=128,device_name=NVIDIA_H200,cache_dtype=float32"), "vLLM ");
}

TEST(NearestLoaders, VllmLooksForH200OnItsFamily) {
  const std::string text = default_file(R"("BLOCK_SIZE_M": 64)");
  const auto findings = [&](const std::string& path) {
    const TritonFile file = config_file(path, text);
    return audit_triton_files(std::vector<TritonFile>{file});
  };
  const auto both = findings("E=8,N=14336,device_name=NVIDIA_H200_NVL.json");
  ASSERT_THAT(both, SizeIs(1));
  EXPECT_EQ(both[0].text, "vLLM looks for NVIDIA_H200 on such a device, SGLang for this name");
  EXPECT_EQ(both[0].severity(), Severity::note);
  const auto vllm =
      findings("E=8,N=14336,device_name=NVIDIA_H200_NVL,dtype=fp8_w8a8,block_shape=[128,128].json");
  ASSERT_THAT(vllm, SizeIs(1));
  EXPECT_EQ(vllm[0].severity(), Severity::warning);
  EXPECT_THAT(findings("headdim=64,dstate=128,device_name=NVIDIA_H200,cache_dtype=float32.json"), IsEmpty());
}

TEST(NearestLoaders, AKeyThatIntRefusesEndsTheServer) {
  const auto wrong_keys = [](const std::string& path, const std::string& more) {
    std::string text = default_file(R"("BLOCK_SIZE_M": 64)");
    text.insert(1, more + ", ");
    std::vector<std::string> keys;
    for (const Finding& finding : audit_triton_files(std::vector<TritonFile>{config_file(path, text)})) {
      if (finding.kind != FindingKind::wrong_key) continue;
      EXPECT_EQ(finding.severity(), Severity::error);
      EXPECT_EQ(finding.line, 1U);
      keys.push_back(finding.text.substr(1, finding.text.find('\'', 1) - 1));
    }
    return keys;
  };
  const std::string version = R"("triton_version": "3.6.0")";
  EXPECT_THAT(wrong_keys("E=8,N=64,device_name=X.json", version), IsEmpty()) << "vLLM's mixtures drop it";
  EXPECT_THAT(wrong_keys("triton_3_6_0/E=8,N=64,device_name=X.json", version), ElementsAre("triton_version"));
  EXPECT_THAT(wrong_keys("E=8,N=64,device_name=X_down.json", version), ElementsAre("triton_version"));
  EXPECT_THAT(wrong_keys(h200, version), ElementsAre("triton_version"));
  for (const std::string key : {"_note", "1.0", "1e3"})
    EXPECT_THAT(wrong_keys("E=8,N=64,device_name=X.json", "\"" + key + "\": 1"), ElementsAre(key));
  for (const std::string key : {"01", " 1", "-1", "1_0"})
    EXPECT_THAT(wrong_keys("E=8,N=64,device_name=X.json", "\"" + key + "\": {}"), IsEmpty()) << key;
  EXPECT_EQ(python_int("1_0"), 10);
  EXPECT_EQ(python_int("1__0"), std::nullopt);
  EXPECT_EQ(python_int(""), std::nullopt);
}

TEST(NearestLoaders, OfTwoKeysOfOneNumberTheLastCountsInThePlaceOfTheFirst) {
  const TritonFile file = config_file(
      "E=8,N=64,device_name=X.json",
      R"({"01": {"num_warps": 1}, "3": {"num_warps": 2}, "1": {"num_warps": 4}, "-5": {"num_warps": 8}})");
  const auto at = [&](std::int64_t m) { return find_bucket(file, m)->bucket->config.integer("num_warps"); };
  EXPECT_EQ(at(1), 4);
  EXPECT_EQ(at(2), 4) << "as near as 3, and its key came first";
  EXPECT_EQ(at(3), 2);
  for (const BucketSpan& span : bucket_spans(file))
    EXPECT_EQ(find_bucket(file, span.m_from)->bucket, span.bucket);
}

TEST(NearestLoaders, ABlockBeyondTheScalesBlock) {
  const auto findings = [](const std::string& path, const std::string& parameters) {
    return audit_triton_files(std::vector<TritonFile>{config_file(path, default_file(parameters))});
  };
  const auto dense = findings(h200, R"("BLOCK_SIZE_M": 64, "BLOCK_SIZE_K": 256)");
  ASSERT_THAT(dense, SizeIs(18));
  EXPECT_EQ(dense[0].kind, FindingKind::wrong_size);
  EXPECT_EQ(dense[0].severity(), Severity::error);
  EXPECT_THAT(dense[0].text, HasSubstr("the results are wrong"));
  const auto mixture = findings("E=8,N=64,device_name=X,dtype=fp8_w8a8,block_shape=[128,128].json",
                                R"("BLOCK_SIZE_M": 64, "BLOCK_SIZE_K": 256)");
  ASSERT_THAT(mixture, SizeIs(18));
  EXPECT_EQ(mixture[0].severity(), Severity::note);
  EXPECT_THAT(mixture[0].text, HasSubstr("is launched as 128"));
}

TEST(NearestLoaders, IllegalValuesAndParametersOfOtherKernels) {
  const std::string name = "E=8,N=64,device_name=X.json";
  const auto texts = [&](const std::string& parameters) {
    return audit_of({config_file(name, default_file(parameters))});
  };
  EXPECT_THAT(texts(R"("BLOCK_SIZE_M": 48)"),
              Contains(HasSubstr("wrong_value 1: parameter BLOCK_SIZE_M: value 48")));
  EXPECT_THAT(texts(R"("BLOCK_SIZE_M": 64, "GROUP_SIZE_M": 0)"),
              Contains(HasSubstr("GROUP_SIZE_M: value 0")));
  EXPECT_THAT(texts(R"("BLOCK_SIZE_M": 64, "num_warps": "4")"), Contains(HasSubstr("num_warps: value '4'")));
  EXPECT_THAT(texts(R"("BLOCK_SIZE_M": 64, "SWAP_AB": true)"), IsEmpty()) << "SGLang's";
  EXPECT_THAT(texts(R"("tile_m": 64, "tile_n": 64, "tile_k": 128, "tile_n2": 64, "tile_k2": 128)"), IsEmpty())
      << "FlyDSL's";
  EXPECT_THAT(texts(R"("BLOCK_SIZE_M": 64, "nothing": 1)"), Contains(HasSubstr("unread_key")));
}

TEST(NearestLoaders, ANullBucketIsSglangsDefault) {
  const std::string name = "N=24576,K=4096,device_name=NVIDIA_L40S,dtype=fp8_w8a8_channelwise.json";
  std::string text = default_file(R"("BLOCK_SIZE_M": 64)");
  text.replace(text.find(R"({"BLOCK_SIZE_M": 64})"), 20, "null");
  const TritonFile file = config_file(name, text);
  ASSERT_THAT(file.buckets, SizeIs(18)) << "the file's other buckets are there";
  EXPECT_TRUE(file.buckets[0].is_null);
  EXPECT_EQ(write_triton_json(file), text);
  EXPECT_THAT(audit_of({file}), IsEmpty());
  EXPECT_THAT(audit_of({config_file(h200, text)}), ElementsAre(HasSubstr("wrong_value 1: null")));
  const MergedConfigs merged = merge_triton_files(std::vector<TritonFile>{file});
  EXPECT_EQ(write_triton_json(merged.files.at(0)), text);
}

/// The config at each M of the file that the conversion gives, and what it left out.
std::pair<TritonFile, std::vector<LeftOut>> converted(const std::string& name, const std::string& text,
                                                      std::string_view to, std::optional<bool> thirds = {}) {
  ConversionOptions options;
  options.thirds = thirds;
  auto rows = read_triton_rows(name, text, options);
  EXPECT_TRUE(rows.ok()) << rows.message();
  const auto written = write_rows(**find_format(to), *rows, options);
  EXPECT_TRUE(written.ok()) << written.message();
  return {config_file("gfx950-GEMM-A8W8_BLOCKSCALE-N=1536-K=7168.json", *written), rows->left_out};
}

TEST(NearestConversion, BoundsBecomeTheEndsOfTheirIntervals) {
  const std::string bounds =
      R"({"M_LEQ_1": {"num_warps": 1}, "M_LEQ_16": {"num_warps": 2}, "M_LEQ_64": {"num_warps": 4}, "any": {"num_warps": 8}})";
  const std::string name = "gfx950-GEMM-A8W8_BLOCKSCALE-N=1536-K=7168.json";
  const auto [file, left_out] = converted(name, bounds, "vllm_json");
  for (const LeftOut& item : left_out)
    EXPECT_NE(item.kind, LeftOutKind::key) << item.name << ": " << item.why;
  const TritonFile before = config_file(name, bounds);
  for (std::int64_t m = 1; m < 200; ++m)
    EXPECT_EQ(find_bucket(file, m)->bucket->config, find_bucket(before, m)->bucket->config) << m;
}

TEST(NearestConversion, MidpointsThatNoBoundHasAreNamed) {
  const std::string nearest =
      R"({"1": {"num_warps": 1}, "16": {"num_warps": 2}, "64": {"num_warps": 4}, "8192": {"num_warps": 8}})";
  const auto [file, left_out] = converted(h200, nearest, "triton_json");
  EXPECT_EQ(find_bucket(file, 8)->bucket->config.integer("num_warps"), 1) << "half way to 16";
  EXPECT_EQ(find_bucket(file, 16)->bucket->config.integer("num_warps"), 2);
  EXPECT_EQ(find_bucket(file, 4096)->bucket->config.integer("num_warps"), 4) << "4128 is half way to 8192";
  std::vector<std::string> texts;
  for (const LeftOut& item : left_out)
    if (item.kind == LeftOutKind::key) texts.push_back(item.name + ": " + item.why);
  EXPECT_THAT(texts, Contains("16: M = 33 to 40: another bucket answers in the new file"));
}

TEST(TritonConversion, AConfigKeepsItsKeysAndItsBytes) {
  const std::string name = "gfx942-MOE-DEFAULT.json";
  for (const std::string& text :
       {std::string("{\n  \"small_M\": {\n    \"a\": 1\n  },\n  \"medium_M\": {\n    \"a\": 2\n  },\n  "
                    "\"large_M\": {\n    \"a\": 3\n  }\n}"),
        std::string("{\n \"any\": {\n  \"a\": 1\n },\n \"M_LEQ_16\": {\n  \"a\": 2\n },\n \"_note\": 3\n}\n"),
        std::string(R"({"M_LEQ_16": {"a": 1}, "any": {"a": 2}})")}) {
    auto rows = read_triton_rows(name, text, {});
    ASSERT_TRUE(rows.ok()) << rows.message();
    const auto written = write_rows(**find_format("triton_json"), *rows, {});
    ASSERT_TRUE(written.ok()) << written.message();
    EXPECT_EQ(*written, text);
    EXPECT_THAT(rows->left_out, IsEmpty());
  }
  const std::string version = R"({"triton_version": "3.6.0", "4": {"a": 1}, "1": {"a": 2}})";
  auto rows = read_triton_rows("E=8,N=64,device_name=X.json", version, {});
  ASSERT_TRUE(rows.ok());
  EXPECT_EQ(*write_rows(**find_format("vllm_json"), *rows, {}), version);
}

TEST(TritonConversion, ATableOfConfigsHasNoTimes) {
  ConversionOptions options;
  options.cu_num = 256;
  auto rows = read_triton_rows("gfx950-GEMM-A16W16-N=64-K=128.json", R"({"M_LEQ_16": {"a": 1}})", options);
  ASSERT_TRUE(rows.ok());
  ASSERT_TRUE(write_rows(**find_format("aiter"), *rows, options).ok());
  ASSERT_THAT(rows->left_out, SizeIs(1));
  EXPECT_THAT(rows->left_out[0].why, HasSubstr("no look-up chooses such rows"));
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
  rows->parts.push_back({"\x1b]0;title\x07", "two\nlines", 0});
  EXPECT_THAT(*write_rows(**find_format("listing"), *rows, {}),
              HasSubstr("\\x1b]0;title\\x07: two\\x0alines\n"));
  EXPECT_THAT(*listing, HasSubstr("8: fp4_gemm (4, 7168), (7168, 4608): CudnnFp4GemmRunner, tactic 3\n"));
  const auto table = write_rows(**find_format("aiter"), *rows, {});
  EXPECT_THAT(table.message(), HasSubstr("indices of one version of a library on one GPU"));
}

}  // namespace
}  // namespace gemmtune
