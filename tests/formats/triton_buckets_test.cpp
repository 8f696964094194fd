// Buckets of Triton configs: their spans, as rows, audited, compared and merged.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "formats/triton/bucket_file.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/bucket_sets.h"
#include "formats/triton/triton_audit.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_folder.h"
#include "formats/triton/triton_lookup.h"
#include "support/fixtures.h"
#include "support/temporary_folder.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

TritonFile config(const std::string& name, const std::string& content) {
  auto file = parse_triton_json(name, content);
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TritonFile();
}

std::string spans_of(const TritonFile& file) {
  std::string text;
  for (const BucketSpan& span : bucket_spans(file))
    text += fmt::format("{}:{}-{} ", span.bucket->key, span.m_from,
                        span.m == max_dimension ? "" : std::to_string(span.m));
  return text;
}

TEST(BucketSpans, AreThoseOfTheLookUpInEveryScheme) {
  const std::string gemm = "gfx950-GEMM-A16W16-N=1-K=1.json";
  EXPECT_EQ(spans_of(config(gemm, R"({"small_M": {}, "medium_M": {}, "large_M": {}})")),
            "small_M:1-256 medium_M:257-2048 large_M:2049- ");
  EXPECT_EQ(spans_of(config("gfx950-MOE-DEFAULT.json", R"({"small_M": {}, "medium_M": {}, "large_M": {}})")),
            "small_M:1-255 medium_M:256-1023 large_M:1024- ");
  EXPECT_EQ(spans_of(config(gemm, R"({"M_LEQ_8": {}, "M_LEQ_64": {}, "M_GEQ_4096": {}, "any": {}})")),
            "M_LEQ_8:1-8 M_LEQ_64:9-64 any:65-4095 M_GEQ_4096:4096- ");
  EXPECT_EQ(
      spans_of(config(gemm, R"({"small": {}, "medium_M64": {}, "large": {}, "xlarge_M512": {}, "any": {}})")),
      "small:1-31 any:32-32 medium_M64:33-64 any:65-128 large:129-256 xlarge_M512:257-512 any:513- ");
  EXPECT_EQ(spans_of(config(gemm, R"({"M_LEQ_320": {}, "any": {}})")), "any:1- ")
      << "no bound of this kernel";
  EXPECT_EQ(spans_of(config("gfx950-BATCHED_GEMM-AFP4WFP4.json", R"({"M_LEQ_320": {}, "any": {}})")),
            "M_LEQ_320:1-320 any:321- ");
}

/// At every M that matters the span's bucket is the one that AITER's look-up finds.
TEST(BucketSpans, AgreeWithTheLookUpAtEveryM) {
  const TritonFile file = config("gfx950-GEMM-A16W16.json",
                                 R"({"M_LEQ_4": {}, "M_LEQ_128": {}, "M_GEQ_512": {}, "M_GEQ_2048": {}})");
  for (std::int64_t m = 1; m <= 10000; ++m) {
    const TritonBucket* expected = find_bucket(file, m) ? find_bucket(file, m)->bucket : nullptr;
    const TritonBucket* found = nullptr;
    for (const BucketSpan& span : bucket_spans(file))
      if (span.m_from <= m && m <= span.m) found = span.bucket;
    ASSERT_EQ(found, expected) << m;
  }
}

TEST(BucketRows, SayWhatTheNameSays) {
  const auto rows =
      bucket_rows(config("x86-amx-BATCHED_GEMM-A8W8-B=4-N=64-K=32.json",
                         "{\n\"M_LEQ_8\": {\"kernelName\": \"batched_r1_mr8\", \"mr\": 8},\n\"any\": "
                         "{\"BLOCK_SIZE_M\": 16, \"cache_modifier\": null}}"));
  ASSERT_TRUE(rows.ok()) << rows.message();
  ASSERT_THAT(*rows, SizeIs(2));
  const TunedEntry& own = rows->front();
  EXPECT_EQ(own.gfx, "x86-amx");
  EXPECT_EQ(own.problem.operation, Operation::batched_a8w8);
  EXPECT_EQ(own.problem.batch, 4);
  EXPECT_EQ(own.problem.n, 64);
  EXPECT_EQ(own.problem.k, 32);
  EXPECT_EQ(own.problem.m, 8);
  EXPECT_EQ(own.m_from, 1);
  EXPECT_EQ(own.kernel_name, "batched_r1_mr8");
  EXPECT_EQ(own.libtype, "batched");
  EXPECT_EQ(own.bucket, "M_LEQ_8");
  EXPECT_EQ(own.line, 2U);
  EXPECT_EQ((*rows)[1].kernel_name, "BLOCK_SIZE_M=16;cache_modifier=null");
  EXPECT_EQ((*rows)[1].libtype, "triton");

  const auto unknown = bucket_rows(config("gfx950-GEMM-A16WFP6.json", R"({"any": {}})"));
  EXPECT_THAT(unknown.message(), HasSubstr("configs of 'GEMM-A16WFP6', which is no operation of gemmtune"));
  EXPECT_THAT(bucket_rows(config("x.json", R"({"any": {}})")).message(), HasSubstr("says no family"));
  EXPECT_TRUE(bucket_rows(config("x.json", R"({"any": {}})"), OperationForm(Operation::a8w8)).ok());
}

TEST(BucketRows, AreRunAtBothEndsOfTheirM) {
  const TritonFile file = config(
      "gfx950-GEMM-A16W16-N=64-K=32.json",
      R"({"M_LEQ_16": {}, "any": {}, "_problem": "a16w16 m=9 n=64 k=32 x=f16 w=f16 y=f32 bias=0 scale_ab=0 layout=plain"})");
  auto rows = rows_to_run(file);
  ASSERT_TRUE(rows.ok()) << rows.message();
  ASSERT_THAT(*rows, SizeIs(2));
  EXPECT_EQ((*rows)[0].m_from, 1);
  EXPECT_EQ((*rows)[0].problem.m, 16);
  EXPECT_EQ((*rows)[0].problem.x_type, DataType::f16) << "of the note";
  EXPECT_EQ((*rows)[1].m_from, 17);
  EXPECT_EQ((*rows)[1].problem.m, 32) << "twice the M before it";

  const auto other = problem_of_file(config(
      "gfx950-GEMM-A16W16-N=128-K=32.json",
      R"({"any": {}, "_problem": "a16w16 m=9 n=64 k=32 x=f16 w=f16 y=f32 bias=0 scale_ab=0 layout=plain"})"));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->n, 128) << "a note of another size is none of this file";
  EXPECT_EQ(other->x_type, DataType::bf16);
  EXPECT_THAT(problem_of_file(config("gfx950-GEMM-A16W16.json", "{}")).message(), HasSubstr("no N and K"));
  EXPECT_THAT(problem_of_file(config("gfx950-MOE-DEFAULT-E=8-N=64-K=32.json", "{}")).message(),
              HasSubstr("no note _problem"));
}

TEST(BucketFiles, HaveAitersNames) {
  Problem problem = default_problem(Operation::a8w8_blockscale);
  problem.n = 64;
  problem.k = 128;
  EXPECT_EQ(bucket_file_name("gfx950", problem), "gfx950-GEMM-A8W8_BLOCKSCALE-N=64-K=128.json");
  problem = default_problem(Operation::batched_bf16);
  problem.n = 64;
  problem.k = 128;
  problem.batch = 3;
  EXPECT_EQ(bucket_file_name("x86-amx", problem), "x86-amx-BATCHED_GEMM-BF16-B=3-N=64-K=128.json");
  problem = default_problem(Operation::fused_moe);
  problem.n = 64;
  problem.k = 128;
  problem.moe.experts = 8;
  problem.x_type = problem.w_type = DataType::f8_e4m3fn;
  EXPECT_EQ(bucket_file_name("x86-amx", problem), "x86-amx-MOE-FP8_W8A8-E=8-N=64-K=128.json");
  EXPECT_EQ(parse_triton_file_name("x86-amx-MOE-FP8_W8A8-E=8-N=64-K=128.json")->e, 8);
  EXPECT_EQ(parse_triton_file_name("x86-amx-MOE-FP8_W8A8-E=8-N=64-K=128.json")->family, "MOE-FP8_W8A8");
  problem.x_type = DataType::bf16;
  EXPECT_EQ(bucket_file_name("x86-amx", problem), std::nullopt) << "AITER has no kernel of bf16 with fp8";
  problem.w_type = DataType::f4_e2m1;
  EXPECT_EQ(bucket_file_name("x86-amx", problem), "x86-amx-MOE-MX_FP4-E=8-N=64-K=128.json");
  EXPECT_EQ(bucket_file_name("gfx950", default_problem(OperationForm(Operation::a8w8, true))), std::nullopt);
}

std::vector<std::string> audited(const std::vector<TritonFile>& files) {
  std::vector<std::string> texts;
  for (const Finding& finding : audit_triton_files(files))
    texts.push_back(fmt::format("{}:{}: {}: {}",
                                std::filesystem::path(files[finding.source].path).filename().string(),
                                finding.line, to_string(finding.kind), finding.text));
  return texts;
}

std::vector<TritonFile> read_all(const std::string& folder) {
  std::vector<TritonFile> files;
  for (const std::string& path : triton_files_in(folder)) {
    auto file = read_triton_json(path);
    EXPECT_TRUE(file.ok()) << file.message();
    if (file.ok()) files.push_back(std::move(*file));
  }
  return files;
}

/// nc 0 of `quantized`: the columns of the register tile, no block of none.
TEST(BucketFiles, ABlockOfNoColumnsIsTheRegisterTiles) {
  const std::string name = "quantized_r1_isaavx2_wplain_mr2_nr32_kc256_mc64_nc";
  const auto columns_of = [&](const std::string& nc) {
    return bucket_config(name + nc, {{"mr", "2"}, {"nr", "32"}, {"kc", "256"}, {"mc", "64"}, {"nc", nc}})
        .integer("BLOCK_SIZE_N");
  };
  EXPECT_EQ(columns_of("0"), 32);
  EXPECT_EQ(columns_of("128"), 128);
}

TEST(TritonAudit, FindsEveryKind) {
  const auto files = read_all(GEMMTUNE_TEST_DATA "/triton/audit");
  ASSERT_THAT(files, SizeIs(4));
  const std::string dense = "gfx950-GEMM-A16W16-N=512-K=1000.json";
  EXPECT_THAT(
      audited(files),
      ElementsAre(
          "gfx942-MOE-FP8_W8A8.json:0: missing_bucket: no bucket answers M = 256 to 1023",
          dense + ":0: missing_bucket: no bucket answers M from 65",
          dense + ":2: unread_key: M_LEQ_16: parameter 'EVEN_K': no kernel reads it",
          dense + ":2: other_split: M_LEQ_16: K = 1000 is launched with NUM_KSPLIT 1 and BLOCK_SIZE_K 512, "
                  "not 4 and 512",
          dense + ":8: unreachable: 'M_LEQ_20': the kernel does not look for the bound 20",
          dense + ":11: unread_key: M_LEQ_64: parameter 'nr': no kernel reads it, the kernelName does not "
                  "have it",
          dense + ":16: unreachable: 'small_M' is a key of another scheme than the file's others; no look-up "
                  "finds it",
          dense + ":19: unread_key: 'M_LT_9': no look-up reads this key",
          dense + ":22: duplicate_key: 'M_LEQ_64' stands there twice; the last one counts",
          dense + ":22: unknown_kernel: M_LEQ_64: kernelName 'Cijk_Alik': no name of a kernel of gemmtune",
          "gfx950-GEMM-A16WFP4.json:5: unreachable: 'any': other buckets answer all of its M",
          HasSubstr("gfx950-GEMM-AFP4WFP4-N=512-K=100.json:0: wrong_size: the sizes of its name: ")));
}

TEST(TritonAudit, SplitsAreThoseOfTheFamilysOwnFunction) {
  const auto split = [](const std::string& family, std::int64_t k, std::int64_t splits, std::int64_t block) {
    TritonConfig one;
    one.set("NUM_KSPLIT", splits);
    one.set("BLOCK_SIZE_K", block);
    const auto result = apply_split_k(one, k, triton_launch_rule(family));
    EXPECT_TRUE(result.ok()) << result.message();
    return fmt::format("{} of {}", result->num_ksplit, result->block_size_k);
  };
  // AITER's get_splitk() of these configs, at e4048607.
  EXPECT_EQ(split("GEMM-AFP4WFP4", 7168, 16, 512), "14 of 512") << "N=2112 M_LEQ_8";
  EXPECT_EQ(split("GEMM-AFP4WFP4", 7168, 8, 1024), "7 of 1024") << "N=2112 M_LEQ_32";
  EXPECT_EQ(split("GEMM-AFP4WFP4", 7168, 4, 1024), "1 of 1024") << "N=4096 M_LEQ_64 loses its split";
  EXPECT_EQ(split("GEMM-AFP4WFP4", 512, 4, 512), "1 of 512");
  EXPECT_EQ(split("GEMM-AFP4WFP4", 128, 1, 1024), "1 of 128");
  EXPECT_EQ(split("GEMM-AFP4WFP4", 2304, 4, 256), "3 of 256");
  EXPECT_EQ(split("GEMM-AFP4WFP4_PRESHUFFLED", 7168, 8, 512), "7 of 512");
  EXPECT_EQ(split("GEMM-AFP4WFP4_PRESHUFFLED", 3584, 4, 512), "2 of 512");
  EXPECT_EQ(split("GEMM-A8W8_BLOCKSCALE_PRESHUFFLED", 512, 8, 128), "8 of 64") << "only the block shrinks";
  EXPECT_EQ(split("GEMM-A8W8", 1024, 16, 256), "4 of 256");
  EXPECT_FALSE(apply_split_k({}, 64, triton_launch_rule("GEMM-OF-TOMORROW")).ok());
}

TEST(TritonAudit, TheBoundsOfTheFamilysCallerAreSearched) {
  const std::string bounds = R"({"M_LEQ_4": {}, "M_LEQ_31": {}, "any": {}})";
  EXPECT_THAT(audited({config("gfx950-GEMM-AFP4WFP4_PRESHUFFLED-N=64-K=64.json", bounds)}), IsEmpty());
  EXPECT_THAT(
      audited({config("gfx950-GEMM-AFP4WFP4_PRESHUFFLED-N=64-K=64.json", R"({"M_LEQ_1": {}, "any": {}})")}),
      ElementsAre(HasSubstr("does not look for the bound 1")));
  EXPECT_THAT(audited({config("gfx950-GEMM-A8W8-N=64-K=64.json", bounds)}),
              ElementsAre(HasSubstr("does not look for the bound 31")));
}

TEST(TritonAudit, OfAnUnknownFamilyParametersAreNotJudged) {
  EXPECT_THAT(audited({config("gfx950-GEMM-OF-TOMORROW-N=64-K=64.json", R"({"any": {"new_key": 1}})")}),
              IsEmpty());
  EXPECT_THAT(audited({config("gfx950-GEMM-A8W8-N=64-K=64.json", R"({"any": {"new_key": 1}})")}), SizeIs(1));
  EXPECT_THAT(
      audited({config("gfx950-GEMM-A8W8-N=64-K=64.json", R"({"any": {"BLOCK_SIZE_M": 48}})")}),
      ElementsAre(HasSubstr("wrong_value: any: parameter BLOCK_SIZE_M: value 48, expected a power of two")));
  EXPECT_THAT(audited({config("gfx950-GEMM-A8W8-N=64-K=64.json", R"({"any": null})")}),
              ElementsAre(HasSubstr("wrong_value: any: null")));
}

TEST(TritonFolder, AFamilysFirstPlaceWithADefaultFileCounts) {
  test::TemporaryFolder folder;
  const std::string config_text = R"({"any": {}})";
  const auto write = [&](const std::string& name) { folder.write(name, config_text); };
  write("gemm/gfx1250-GEMM-A8W8_BLOCKSCALE_PRESHUFFLED.json");
  write("gemm/gfx1250-GEMM-A8W8_BLOCKSCALE_PRESHUFFLED-N=7168-K=768.json");
  write("gemm/gluon/gfx1250-GEMM-A8W8_BLOCKSCALE_PRESHUFFLED.json");
  write("gemm/gluon/gfx1250-GEMM-A8W8_BLOCKSCALE_PRESHUFFLED-N=64-K=64.json");
  write("gemm/gfx950-GEMM-A8W8_BLOCKSCALE.json");
  write("gemm/gluon/gfx950-GEMM-A8W8_BLOCKSCALE.json");
  write("gemm/gluon/gfx950-GEMM-A8W8_BLOCKSCALE-N=64-K=64.json");
  std::vector<std::string> names;
  for (const std::string& path : triton_files_in(folder.path()))
    names.push_back(path.substr(folder.path().size() + 1));
  EXPECT_THAT(names, ElementsAre("gemm/gfx950-GEMM-A8W8_BLOCKSCALE.json",
                                 "gemm/gluon/gfx1250-GEMM-A8W8_BLOCKSCALE_PRESHUFFLED-N=64-K=64.json",
                                 "gemm/gluon/gfx1250-GEMM-A8W8_BLOCKSCALE_PRESHUFFLED.json"))
      << "gfx1250's kernels take Gluon's configs first, those of gfx950 Triton's";
  std::vector<TritonFile> files;
  for (const std::string& path : config_files_in(folder.path())) files.push_back(*read_triton_json(path));
  EXPECT_THAT(files, SizeIs(7)) << "an audit reads all";
  EXPECT_THAT(audited(files), IsEmpty()) << "configs of two kernels are no duplicates";
}

TEST(TritonAudit, TwoFilesOfOneNameAreNamed) {
  const std::vector<TritonFile> files{config("a/gfx950-GEMM-A8W8-N=64-K=64.json", R"({"any": {}})"),
                                      config("b/gfx950-GEMM-A8W8-N=64-K=64.json", R"({"any": {}})"),
                                      config("b/gfx950-GEMM-A8W8-N=64-K=32.json", R"({"any": {}})")};
  EXPECT_THAT(audited(files), ElementsAre("gfx950-GEMM-A8W8-N=64-K=64.json:0: duplicate_key: "
                                          "a/gfx950-GEMM-A8W8-N=64-K=64.json comes first and has this name"));
}

TEST(BucketSets, DifferenceIsByNameAndBucket) {
  const std::string name = "gfx950-GEMM-A8W8-N=64-K=64.json";
  const std::vector<TritonFile> before{
      config("a/" + name, R"({"M_LEQ_8": {"kernelName": "tiled_r1_a1", "x": 1},
      "M_LEQ_16": {"BLOCK_SIZE_M": 16}, "any": {"BLOCK_SIZE_M": 32}})"),
      config("a/gfx950-GEMM-A8W8.json", R"({"any": {}})")};
  const std::vector<TritonFile> after{
      config("b/" + name, R"({"M_LEQ_8": {"kernelName": "tiled_r1_a1", "x": 2},
      "M_LEQ_16": {"BLOCK_SIZE_M": 64}, "M_LEQ_32": {"BLOCK_SIZE_M": 16}, "any": {"BLOCK_SIZE_M": 32}})")};
  const BucketDifference difference = compare_triton_files(before, after);
  EXPECT_EQ(difference.equal, 2U) << "the kernel decides, not what stands beside it";
  std::vector<std::string> changes;
  for (const BucketChange& change : difference.changes)
    changes.push_back(fmt::format("{} {} {}", to_string(change.kind), change.place().file->path,
                                  change.place().bucket->key));
  EXPECT_THAT(changes, ElementsAre("winner b/" + name + " M_LEQ_16", "removed a/gfx950-GEMM-A8W8.json any",
                                   "added b/" + name + " M_LEQ_32"));
  // Two single files are compared whatever their names are.
  EXPECT_THAT(compare_triton_files(std::vector{config("old.json", R"({"any": {"a": 1}})")},
                                   std::vector{config("gfx950-GEMM-A8W8.json", R"({"any": {"a": 1}})")})
                  .changes,
              IsEmpty());
}

TEST(BucketSets, MergedTheFirstBucketOfAKeyStays) {
  const std::string name = "gfx950-GEMM-A8W8-N=64-K=64.json";
  const MergedConfigs merged = merge_triton_files(std::vector{
      config("a/" + name, R"({"M_LEQ_16": {"a": 1}, "_regret": {"M_LEQ_16": 0.5}, "_why": "x"})"),
      config(
          "b/" + name,
          R"({"any": {"a": 4}, "M_LEQ_16": {"a": 2}, "M_LEQ_8": {"a": 3}, "_regret": {"M_LEQ_16": 0.1, "M_LEQ_8": 0.2}, "_why": "y"})"),
      config("c/" + name, R"({"small_M": {"a": 5}})"),
      config("c/gfx950-GEMM-A8W8.json", R"({"any": {"a": 6}})")});
  EXPECT_EQ(merged.duplicates, 1U);
  EXPECT_EQ(merged.buckets, 4U);
  ASSERT_THAT(merged.files, SizeIs(2));
  EXPECT_EQ(merged.files[0].path, "a/" + name);
  std::string keys;
  for (const TritonBucket& bucket : merged.files[0].buckets)
    keys += fmt::format("{}={} ", bucket.key, bucket.config.integer("a").value_or(0));
  EXPECT_EQ(keys, "M_LEQ_8=3 M_LEQ_16=1 any=4 ");
  ASSERT_THAT(merged.files[0].notes, SizeIs(2));
  EXPECT_EQ(merged.files[0].notes[0].json, R"({"M_LEQ_16":0.5,"M_LEQ_8":0.2})");
  std::vector<std::string> left_out;
  for (const LeftOut& item : merged.left_out) left_out.push_back(describe(item.source, item));
  EXPECT_THAT(left_out, ElementsAre(HasSubstr("_why"), HasSubstr("small_M")));
  // What is written is read again as the same.
  const TritonFile again = config(name, write_triton_json(merged.files[0]));
  EXPECT_EQ(again.buckets.size(), 3U);
  EXPECT_EQ(again.notes.size(), 2U);
}

/// AITER's real files: what an audit finds in them.
TEST(TritonAudit, OfAitersFilesIsClean) {
  GEMMTUNE_NEEDS_FIXTURES(fixtures);
  const auto files = read_all(fixtures + "/aiter/ops/triton/configs");
  const auto old_files = read_all(fixtures + "/legacy-2025-12-triton");
  EXPECT_THAT(files, SizeIs(8));
  EXPECT_THAT(old_files, SizeIs(3));
  EXPECT_THAT(audited(files), IsEmpty());
  EXPECT_THAT(audited(old_files), IsEmpty());
}

}  // namespace
}  // namespace gemmtune
