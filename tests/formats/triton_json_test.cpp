#include "formats/triton/triton_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "base/file.h"
#include "formats/triton/triton_lookup.h"
#include "support/fixtures.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string triton_data(const std::string& name) {
  return std::string(GEMMTUNE_TEST_DATA) + "/triton/" + name;
}

TritonFile read_triton(const std::string& name) {
  auto file = read_triton_json(triton_data(name));
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TritonFile();
}

TritonFile parse(const std::string& content) {
  auto file = parse_triton_json("x.json", content);
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TritonFile();
}

/// Key of the bucket for `m`, with '*' where it was not tuned; "" for none.
std::string key_at(const TritonFile& file, std::int64_t m,
                   std::span<const std::int64_t> bounds = default_triton_bounds) {
  const auto match = find_bucket(file, m, bounds);
  return match ? match->bucket->key + (match->tuned ? "" : "*") : "";
}

void expect_round_trip(const std::string& path) {
  const auto file = read_triton_json(path);
  ASSERT_TRUE(file.ok()) << file.message();
  const std::string text = write_triton_json(*file);
  EXPECT_EQ(text, *read_file(path)) << path;
  const auto again = parse_triton_json(path, text);
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->buckets, file->buckets);
  EXPECT_EQ(again->notes, file->notes);
}

std::vector<std::string> json_files(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.path().extension() == ".json") paths.push_back(entry.path().string());
  }
  return paths;
}

TEST(TritonJson, ParametersKeepTheirOrderAndTypes) {
  const TritonFile file = read_triton("configs/gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=2112-K=7168.json");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  EXPECT_EQ(file.scheme, TritonScheme::bounds);
  EXPECT_EQ(file.name.arch, "gfx950");
  EXPECT_EQ(file.name.family, "GEMM-A8W8_BLOCKSCALE");
  EXPECT_EQ(file.name.n, 2112);
  EXPECT_EQ(file.name.k, 7168);
  EXPECT_EQ(file.name.b, std::nullopt);
  ASSERT_THAT(file.buckets, SizeIs(5));
  const TritonBucket& first = file.buckets[0];
  EXPECT_EQ(first.key, "M_LEQ_8");
  EXPECT_EQ(first.kind, BucketKind::m_leq);
  EXPECT_EQ(first.bound, 8);
  EXPECT_EQ(first.line, 2U);
  EXPECT_EQ(file.buckets[1].line, 14U);
  EXPECT_EQ(first.config.parameters.front().first, "BLOCK_SIZE_M");
  EXPECT_EQ(first.config.integer("NUM_KSPLIT"), 14);
  EXPECT_EQ(*first.config.find("cache_modifier"), TritonValue(std::string(".cg")));
  EXPECT_EQ(*file.buckets[1].config.find("cache_modifier"), TritonValue(nullptr));
  EXPECT_EQ(first.config.find("kpack"), nullptr);
  EXPECT_EQ(file.buckets[4].config.integer("kpack"), 2);
}

TEST(TritonJson, EveryOwnFileIsWrittenAsItWasRead) {
  const auto paths = json_files(triton_data(""));
  EXPECT_GE(paths.size(), 12U);
  for (const std::string& path : paths) {
    if (!path.ends_with("truncated.json") && !path.ends_with("notes.json")) expect_round_trip(path);
  }
}

TEST(TritonJson, NotesAreKeptAndNeverFound) {
  const TritonFile file = read_triton("notes.json");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_THAT(file.notes, SizeIs(3));
  EXPECT_EQ(file.notes[0].key, "_origin");
  EXPECT_THAT(file.notes[0].json, HasSubstr("2.5"));
  EXPECT_EQ(file.notes[1].json, "\"measured twice\"");
  EXPECT_EQ(file.notes[1].before, 1U);
  EXPECT_EQ(file.notes[2].json, "3");
  EXPECT_EQ(*file.buckets[1].config.find("EVEN_K"), TritonValue(true));
  EXPECT_EQ(write_triton_json(file), *read_file(triton_data("notes.json")));
}

TEST(TritonJson, IndentationAndFinalNewlineAreTheFiles) {
  const TritonFile two = parse("{\n  \"any\": {\n    \"BLOCK_SIZE_M\": 16\n  }\n}");
  EXPECT_EQ(two.indent, 2);
  EXPECT_FALSE(two.final_newline);
  EXPECT_EQ(write_triton_json(parse("{\"any\":{}}")), "{\"any\": {}}");
  EXPECT_EQ(write_triton_json(parse("{}\n")), "{}\n");
}

TEST(TritonJson, UnknownKeysKeysTwiceAndOtherSchemesAreDiagnostics) {
  const TritonFile file = read_triton("unknown_keys.json");
  EXPECT_THAT(file.diagnostics,
              ElementsAre(HasSubstr("unknown_keys.json:2: column bucket: value 'M_LEQ_08', expected M_LEQ_x"),
                          HasSubstr("unknown_keys.json:14: column bucket: value 'M_LT_16'"),
                          HasSubstr("unknown_keys.json:27: 'small_M' is a key of another scheme")));
  EXPECT_THAT(file.notes, SizeIs(2));
  EXPECT_EQ(key_at(file, 5), "M_LEQ_16");

  const TritonFile twice = parse("{\"any\": {\"a\": 1, \"a\": 2},\n\"any\": {\"a\": 3}}");
  EXPECT_THAT(twice.diagnostics, ElementsAre(HasSubstr("x.json:1: 'a' stands there twice"),
                                             HasSubstr("x.json:2: 'any' stands there twice")));
  EXPECT_EQ(twice.buckets[0].config.integer("a"), 2);
  EXPECT_EQ(find_bucket(twice, 1)->bucket->config.integer("a"), 3);
}

TEST(TritonJson, ErrorsNameFileAndLine) {
  const auto message = [](const std::string& content) {
    return std::string(parse_triton_json("x.json", content).message());
  };
  EXPECT_THAT(read_triton_json(triton_data("truncated.json")).message(),
              HasSubstr("truncated.json:12: no JSON"));
  EXPECT_THAT(message(""), HasSubstr("x.json: empty, expected a Triton config"));
  EXPECT_THAT(message("{\"name\": \"x\"}"),
              HasSubstr("x.json: is JSON, but no Triton config: no key is a bucket"));
  EXPECT_THAT(message("[]"), HasSubstr("x.json:1: expected an object of M buckets"));
  EXPECT_THAT(message("3"), HasSubstr("expected an object of M buckets"));
  EXPECT_THAT(message("{\n\"any\": 3}"), HasSubstr("x.json:2: column any: value '3', expected an object of"));
  EXPECT_THAT(message("{\"any\":\n[]}"), HasSubstr("x.json:2: column any: value 'a list'"));
  EXPECT_THAT(message("{\"any\": {\n\"BLOCK_SIZE_M\": 1.5}}"),
              HasSubstr("x.json:2: column BLOCK_SIZE_M: value '1.5', expected a whole number"));
  EXPECT_THAT(message("{\"any\": {\"a\": 18446744073709551615}}"), HasSubstr("value '18446744073709551615'"));
  EXPECT_THAT(message("{\"any\": {\"a\": {}}}"), HasSubstr("column a: value 'an object'"));
  EXPECT_THAT(message("{\"any\": {}} {}"), HasSubstr("x.json:1: no JSON"));
  EXPECT_EQ(read_triton_json(triton_data("absent.json")).code(), StatusCode::not_found);
}

TEST(TritonJson, WhatIsMadeToBreakAReaderIsRefused) {
  const auto refused = [](const std::string& content) {
    const auto file = parse_triton_json("x.json", content);
    EXPECT_FALSE(file.ok());
    EXPECT_LT(file.message().size(), 400U);
    return std::string(file.message());
  };
  EXPECT_THAT(refused("{\"_deep\": " + std::string(100000, '[')), HasSubstr("nested deeper than 64 levels"));
  refused("{\"any\": {\"a\": 1" + std::string(1 << 20, '0') + "}}");
  EXPECT_THAT(refused(std::string("{\"any\": {\"a\": \"\0\"}}", 20)), HasSubstr("x.json:1: a NUL byte"));
  EXPECT_THAT(refused(std::string("{\"any\": {}}\n\0more", 18)),
              HasSubstr("x.json:2: a NUL byte, expected JSON"));
  refused(std::string("\xFF\xFE{\0\"\0a\0", 8));
  refused("{\"any\": {\"a\": \"\x80\"}}");
  EXPECT_THAT(parse("\xEF\xBB\xBF{\"any\": {}}").buckets, SizeIs(1));
}

TEST(TritonLookup, BoundsUpwardsThenDownwardsThenAny) {
  const TritonFile file = read_triton("configs/gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=2112-K=7168.json");
  EXPECT_EQ(key_at(file, 1), "M_LEQ_8");
  EXPECT_EQ(key_at(file, 8), "M_LEQ_8");
  EXPECT_EQ(key_at(file, 9), "M_LEQ_64");
  EXPECT_EQ(key_at(file, 65), "any*");
  EXPECT_EQ(key_at(file, 320), "any*");
  EXPECT_EQ(key_at(file, 4096), "M_GEQ_4096");
  EXPECT_EQ(key_at(file, 100000), "M_GEQ_4096");
  EXPECT_EQ(key_at(file, 0), "");
  constexpr std::int64_t with_320[] = {8, 64, 320};
  EXPECT_EQ(key_at(file, 320, with_320), "M_LEQ_320");
  EXPECT_EQ(key_at(file, 4096, with_320), "any*");
  EXPECT_EQ(key_at(parse("{\"M_LEQ_16\": {}}"), 17), "");
}

TEST(TritonLookup, NamesBeforeDecember2025) {
  const TritonFile file = read_triton("before_december_2025.json");
  EXPECT_EQ(file.scheme, TritonScheme::named);
  EXPECT_EQ(key_at(file, 31), "small");
  EXPECT_EQ(key_at(file, 32), "medium_M32");
  EXPECT_EQ(key_at(file, 33), "medium_M64");
  EXPECT_EQ(key_at(file, 128), "medium_M128");
  EXPECT_EQ(key_at(file, 129), "large");
  EXPECT_EQ(key_at(file, 257), "xlarge");
  EXPECT_EQ(key_at(file, 513), "xlarge_M1024");
  EXPECT_EQ(key_at(file, 1025), "xlarge");
  EXPECT_EQ(key_at(parse("{\"small\": {}, \"any\": {}}"), 64), "any*");
}

TEST(TritonLookup, ThreeSizesOfTheTunerAndOfMixturesOfExperts) {
  const TritonFile gemm = read_triton("gfx942-GEMM-A8W8_BLOCKSCALE-N=1024-K=3072.json");
  EXPECT_EQ(gemm.scheme, TritonScheme::thirds);
  EXPECT_EQ(key_at(gemm, 256), "small_M");
  EXPECT_EQ(key_at(gemm, 257), "medium_M");
  EXPECT_EQ(key_at(gemm, 2048), "medium_M");
  EXPECT_EQ(key_at(gemm, 2049), "large_M");
  const TritonFile moe = read_triton("gfx942-MOE-FP8_W8A8.json");
  EXPECT_EQ(moe.scheme, TritonScheme::moe);
  EXPECT_EQ(key_at(moe, 255), "small_M");
  EXPECT_EQ(key_at(moe, 256), "medium_M");
  EXPECT_EQ(key_at(moe, 1023), "medium_M");
  EXPECT_EQ(key_at(moe, 1024), "large_M");
}

TEST(TritonLookup, FileNames) {
  const auto batched = parse_triton_file_name("a/gfx950-BATCHED_GEMM-AFP4WFP4-B=16-N=512-K=128.json");
  ASSERT_TRUE(batched);
  EXPECT_EQ(*batched, (TritonFileName{"gfx950", "BATCHED_GEMM-AFP4WFP4", "B=16-N=512-K=128", 512, 128, 16}));
  EXPECT_EQ(triton_file_name("gfx950", "BATCHED_GEMM-AFP4WFP4", 512, 128, 16),
            "gfx950-BATCHED_GEMM-AFP4WFP4-B=16-N=512-K=128.json");
  EXPECT_EQ(triton_file_name("gfx950", "GEMM-A8W8", {}, {}, {}), "gfx950-GEMM-A8W8.json");
  EXPECT_EQ(triton_file_name("", "GEMM-A8W8", {}, {}, {}), "DEFAULT.json");
  EXPECT_EQ(triton_file_name("", "GEMM-A8W8", 16, 32, {}), "GEMM-A8W8-N=16-K=32.json");

  const auto folder = parse_triton_file_name("configs/gfx950/triton/gemm/gemm_a8w8_blockscale/DEFAULT.json");
  ASSERT_TRUE(folder);
  EXPECT_EQ(*folder, (TritonFileName{"gfx950", "GEMM-A8W8_BLOCKSCALE", "", {}, {}, {}}));
  const auto special = parse_triton_file_name("gfx950/triton/gemm/gemm_x/GEMM-X-N4=512-N16=256-K=7168.json");
  ASSERT_TRUE(special);
  EXPECT_EQ(*special, (TritonFileName{"gfx950", "GEMM-X", "N4=512-N16=256-K=7168", {}, 7168, {}}));
  EXPECT_EQ(parse_triton_file_name("MI300X-MOE-INT8.json")->arch, "MI300X");
  EXPECT_FALSE(parse_triton_file_name("a.csv"));
}

TEST(TritonLookup, DefaultAndSpecialisedFiles) {
  const std::string root = triton_data("configs");
  const auto used = [&](const TritonQuery& query) {
    const auto paths = find_triton_files(root, query);
    return paths.ok() ? fs::path(paths->used()).lexically_relative(root).string() : paths.message();
  };
  EXPECT_EQ(used({.arch = "gfx950", .family = "GEMM-A8W8_BLOCKSCALE", .n = 2112, .k = 7168}),
            "gemm/gfx950-GEMM-A8W8_BLOCKSCALE-N=2112-K=7168.json");
  EXPECT_EQ(used({.arch = "gfx950", .family = "GEMM-A8W8_BLOCKSCALE", .n = 2112, .k = 1}),
            "gemm/gfx950-GEMM-A8W8_BLOCKSCALE.json");
  EXPECT_EQ(used({.arch = "gfx950", .family = "BATCHED_GEMM-AFP4WFP4", .n = 512, .k = 128, .b = 16}),
            "gemm/gfx950-BATCHED_GEMM-AFP4WFP4-B=16-N=512-K=128.json");
  EXPECT_EQ(used({.arch = "gfx950", .family = "BATCHED_GEMM-AFP4WFP4", .n = 512, .k = 128, .b = 8}),
            "gemm/gfx950-BATCHED_GEMM-AFP4WFP4-N=512-K=128.json");
  EXPECT_EQ(used({.arch = "gfx950", .family = "GEMM-AFP4WFP4", .n = 7168, .k = 2048}),
            "gfx950/triton/gemm/gemm_afp4wfp4/GEMM-AFP4WFP4-N=7168-K=2048.json");
  EXPECT_EQ(
      used({.arch = "gfx950", .family = "GEMM-AFP4WFP4", .n = 7168, .k = 2048, .specialisation = "N4=1"}),
      "gfx950/triton/gemm/gemm_afp4wfp4/DEFAULT.json");
  EXPECT_EQ(used({.arch = "gfx950", .family = "GEMM-A16W16"}), "gfx950/gluon/gemm/gemm_a16w16/DEFAULT.json");
  EXPECT_EQ(used({.arch = "gfx950", .family = "GEMM-A8W8_BLOCKSCALE", .backend = "gluon"}),
            "gemm/gfx950-GEMM-A8W8_BLOCKSCALE.json");
  EXPECT_THAT(used({.arch = "gfx950", .family = "GEMM-A16W16", .backend = "triton"}),
              HasSubstr("no default file of GEMM-A16W16 for gfx950: none of "));
}

TEST(TritonLookup, SplitKIsFixedUpAtLaunch) {
  const auto split = [](std::int64_t block, std::int64_t splits, std::int64_t k) {
    TritonConfig config;
    config.set("BLOCK_SIZE_K", block);
    config.set("NUM_KSPLIT", splits);
    const auto result = apply_split_k(config, k);
    EXPECT_TRUE(result.ok()) << result.message();
    return result.ok() ? *result : SplitK();
  };
  EXPECT_EQ(split(128, 14, 7168), (SplitK{14, 128, 512}));
  EXPECT_EQ(split(128, 7, 7168), (SplitK{7, 128, 1024}));
  EXPECT_EQ(split(256, 16, 1024), (SplitK{4, 256, 256}));  // 16 → 8 → 4
  EXPECT_EQ(split(512, 1, 300), (SplitK{1, 256, 300}));    // one block at most as long as the split
  EXPECT_EQ(split(128, 1, 8), (SplitK{1, 16, 8}));         // no block below 16
  EXPECT_EQ(split(128, 3, 1000), (SplitK{3, 128, 384}));   // 334 → 384
  EXPECT_EQ(split(128, 8, 1152), (SplitK{5, 128, 256}));   // 144 → 256: fewer splits do
  EXPECT_FALSE(apply_split_k(TritonConfig{}, 128).ok());
  TritonConfig config;
  config.set("BLOCK_SIZE_K", std::int64_t{128});
  EXPECT_EQ(*apply_split_k(config, 512), (SplitK{1, 128, 512}));
  config.set("NUM_KSPLIT", std::string("two"));
  EXPECT_THAT(apply_split_k(config, 512).message(), HasSubstr("NUM_KSPLIT"));
  EXPECT_FALSE(apply_split_k(config, -1).ok());
}

TEST(TritonFixtures, EveryFileIsReadAndWrittenAsItIs) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  std::vector<std::string> paths = json_files(folder + "/aiter/ops/triton");
  const auto legacy = json_files(folder + "/legacy-2025-12-triton");
  paths.insert(paths.end(), legacy.begin(), legacy.end());
  EXPECT_EQ(paths.size(), 11U);
  for (const std::string& path : paths) {
    const auto file = read_triton_json(path);
    ASSERT_TRUE(file.ok()) << file.message();
    EXPECT_THAT(file->diagnostics, IsEmpty()) << path;
    EXPECT_THAT(file->name.arch, ::testing::StartsWith("gfx")) << path;
    EXPECT_THAT(file->name.family, HasSubstr("-")) << path;
    for (const std::int64_t m : {1, 64, 1000, 20000}) EXPECT_TRUE(find_bucket(*file, m)) << path << ' ' << m;
    expect_round_trip(path);
  }
}

}  // namespace
}  // namespace gemmtune
