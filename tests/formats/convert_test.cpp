#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/all_formats.h"
#include "formats/triton/triton_json.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

struct Converted {
  std::string text;
  std::vector<std::string> left_out;
};

Result<Converted> convert(const std::string& source, const std::string& content, std::string_view to,
                          const ConversionOptions& options = {}) {
  const auto target = find_format(to);
  if (!target.ok()) return target.status();
  auto rows = detect_format(source, content).read(source, content, options);
  if (!rows.ok()) return rows.status();
  auto text = write_rows(**target, *rows, options);
  if (!text.ok()) return text.status();
  Converted converted{std::move(*text), {}};
  for (const LeftOut& item : rows->left_out) converted.left_out.push_back(describe(source, item));
  return converted;
}

Converted good(const std::string& source, const std::string& content, std::string_view to,
               const ConversionOptions& options = {}) {
  auto converted = convert(source, content, to, options);
  EXPECT_TRUE(converted.ok()) << converted.message();
  return converted.ok() ? std::move(*converted) : Converted();
}

ConversionOptions mi300() {
  ConversionOptions options;
  options.gfx = "gfx942";
  options.cu_num = 304;
  options.x_type = DataType::f16;
  return options;
}

const std::string seed_rows =
    "cu_num,M,N,K,bias,dtype,outdtype,scaleAB,bpreshuffle,libtype,solidx,splitK,us,kernelName,err_ratio,"
    "tflops,bw\n"
    "304,16,64,128,False,torch.float16,torch.float16,False,False,triton,0,1,8.0,"
    "BM16_BN64_BK64_GM1_SK1_nW4_nS2_EU0_kP2_mfma16_schedNONE,0.0,0.03,2.82\n"
    "304,32,64,128,False,torch.float16,torch.float16,False,False,hipblaslt,4711,0,9.0,Cijk_a,0.0,0.06,3.19\n";

TEST(Formats, NamesAreUniqueAndDetected) {
  for (const Format& format : all_formats()) EXPECT_EQ(*find_format(format.name), &format);
  EXPECT_FALSE(find_format("xml").ok());
  const auto name_of = [](const std::string& source, const std::string& content) {
    return std::string(detect_format(source, content).name);
  };
  EXPECT_EQ(name_of("a.csv", seed_rows), "seed");
  EXPECT_EQ(name_of("a.csv", "# note\ngfx,cu_num,M,N,K,us\n"), "aiter");
  EXPECT_EQ(name_of("a.csv", "M,N,K\n1,2,3\n"), "untuned");
  EXPECT_EQ(name_of("a.csv", "preshuffle, use_rowwise, algo_index\n"), "hipblaslt_csv");
  EXPECT_EQ(name_of("a.csv", "Validator,PT_VERSION,2.11.0\n"), "tunableop");
  EXPECT_EQ(name_of("a.csv", "ScaledGemmTunableOp_Float8_e4m3fn_Float8_e4m3fn_Half_TN,tn_1\n"), "tunableop");
  EXPECT_EQ(name_of("standard input", "{\"any\": {}}"), "triton_json");
  EXPECT_EQ(name_of("standard input", "- {'M': 1}\n"), "tune_gemm_yaml");
}

TEST(Convert, SeedRowsGetTodaysHeader) {
  const Converted aiter = good("bf16_tuned_gemm.csv", seed_rows, "aiter");
  EXPECT_THAT(aiter.text, HasSubstr("gfx,cu_num,M,N,K"));
  EXPECT_THAT(aiter.text, HasSubstr("gfx942,304,16,64,128,False,torch.float16"));
  EXPECT_THAT(aiter.left_out, IsEmpty());
  const Converted seed = good("bf16_tuned_gemm.csv", aiter.text, "seed");
  EXPECT_THAT(seed.text, Not(HasSubstr("gfx")));
  EXPECT_EQ(good("bf16_tuned_gemm.csv", seed.text, "aiter").text, aiter.text);
}

TEST(Convert, RowsOfOtherDevicesDoNotFitASeedTable) {
  const Converted aiter =
      good("bf16_tuned_gemm.csv",
           "gfx,cu_num,M,N,K,dtype,libtype,us,kernelName\nx86-amx,8,1,2,3,bf16,tiled,5.0,tiled_r1\n", "seed");
  EXPECT_THAT(aiter.left_out, ElementsAre(HasSubstr("bf16_tuned_gemm.csv:2: x86-amx")));
}

TEST(Convert, UnknownColumnsAreCarriedAndSizesWithoutWinnersNamed) {
  const std::string rows = "cu_num,M,N,K,dtype,us,kernelName,mood\n80,1,2,3,bf16,5.0,a,fine\n";
  const Converted carried = good("bf16_tuned_gemm.csv", rows, "aiter");
  EXPECT_THAT(carried.left_out, IsEmpty());
  EXPECT_THAT(carried.text, HasSubstr(",env,accuracy,speedup_low,speedup_high,mood\n"));
  EXPECT_THAT(carried.text, HasSubstr(",fine\n"));
  EXPECT_EQ(good("bf16_tuned_gemm.csv", carried.text, "aiter").text, carried.text);
  EXPECT_THAT(good("bf16_tuned_gemm.csv", rows, "untuned").left_out,
              ElementsAre(HasSubstr("column mood: 1 row: untuned has no place for it")));
  EXPECT_THAT(good("bf16_untuned_gemm.csv", "M,N,K,dtype\n1,2,3,bf16\n", "aiter", mi300()).left_out,
              ElementsAre(HasSubstr("a size without a winner")));
}

TEST(Convert, TuneGemmResultsAndBack) {
  const std::string yaml =
      "- {'M': 16, 'N': 64, 'K': 128, 'rowMajorA': 'T', 'rowMajorB': 'N', 'BLOCK_SIZE_M': 16, "
      "'BLOCK_SIZE_N': 64, "
      "'BLOCK_SIZE_K': 64, 'GROUP_SIZE_M': 1, 'SPLIT_K': 2, 'num_warps': 4, 'num_stages': 2, 'waves_per_eu': "
      "0, "
      "'matrix_instr_nonkdim': 16, 'kpack': 2, 'instruction_sched_variant': 'none'} # TFLOPS: 0.03 time(us): "
      "8.00\n";
  const Converted csv = good("r.yaml", yaml, "aiter", mi300());
  EXPECT_THAT(csv.text,
              HasSubstr("gfx942,304,16,64,128,False,torch.float16,torch.float16,False,False,triton,0,2,8.0,"
                        "BM16_BN64_BK64_GM1_SK2_nW4_nS2_EU0_kP2_mfma16_schedNONE,,0.03,"));
  EXPECT_EQ(good("bf16_tuned_gemm.csv", csv.text, "tune_gemm_yaml").text, yaml);
  EXPECT_EQ(good("r.yaml", yaml, "tune_gemm_sizes").text,
            "- {'M': 16, 'N': 64, 'K': 128, 'rowMajorA': 'T', 'rowMajorB': 'N'}\n");
}

TEST(Convert, TuneGemmNeedsTypesAndADevice) {
  const std::string yaml = "- {'M': 16, 'N': 64, 'K': 128, 'BLOCK_SIZE_M': 16}\n";
  const auto message = [&](const ConversionOptions& options) {
    const auto converted = convert("r.yaml", yaml, "aiter", options);
    return converted.ok() ? std::string() : converted.message();
  };
  ConversionOptions options;
  EXPECT_THAT(message(options), HasSubstr("--indtype"));
  options.x_type = DataType::bf16;
  EXPECT_THAT(message(options), HasSubstr("--cu_num"));
  options.cu_num = 96;
  EXPECT_THAT(message(options), HasSubstr("--gfx"));
  options.gfx = "gfx1250";
  EXPECT_EQ(message(options), "");
}

TEST(Convert, OrdersThatTheColumnsLackAreLeftOut) {
  const std::string yaml =
      "- {'M': 16, 'N': 64, 'K': 128, 'rowMajorA': 'T', 'rowMajorB': 'T', 'BLOCK_SIZE_M': 16}\n";
  EXPECT_THAT(good("r.yaml", yaml, "aiter", mi300()).left_out,
              ElementsAre(HasSubstr("row-major operands only")));
  EXPECT_THAT(good("r.yaml", yaml, "tune_gemm_yaml_v2").left_out, ElementsAre(HasSubstr("orders")));
  EXPECT_THAT(good("r.yaml", yaml, "tune_gemm_yaml").text, HasSubstr("'rowMajorB': 'T'"));
}

TEST(Convert, OnlyHipblasltRowsFitItsTable) {
  const Converted csv = good("bf16_tuned_gemm.csv", seed_rows, "hipblaslt_csv");
  EXPECT_THAT(csv.left_out, ElementsAre(HasSubstr("bf16_tuned_gemm.csv:2: libtype 'triton'"),
                                        HasSubstr("column cu_num: 1 row"), HasSubstr("column us: 1 row")));
  EXPECT_THAT(
      csv.text,
      HasSubstr("false,false,T,N,64,32,128,f16_r,128,0,f16_r,128,0,f16_r,64,0,f32_r,1,4711,Cijk_a\n"));
  const Converted back = good("hip_online_tuning_res.csv", csv.text, "seed", mi300());
  EXPECT_THAT(
      back.text,
      HasSubstr("304,32,64,128,False,torch.float16,torch.float16,False,False,hipblaslt,4711,0,,Cijk_a,"));
}

TEST(Convert, TritonBucketsAndBack) {
  const std::string name = "gfx942-GEMM-A8W8_BLOCKSCALE-N=1024-K=3072.json";
  const std::string json =
      R"({"M_LEQ_16": {"BLOCK_SIZE_M": 16, "cache_modifier": ".cg", "x": null, "note": "a;b=1", "NUM_KSPLIT": 4},)"
      R"( "M_LEQ_64": {"BLOCK_SIZE_M": 32, "on": true, "text": "7"}, "any": {"BLOCK_SIZE_M": 64}})";
  ConversionOptions options;
  options.cu_num = 304;
  const Converted csv = good(name, json, "aiter", options);
  EXPECT_THAT(csv.left_out, ElementsAre(HasSubstr("column us: 2 rows: a Triton config has no times"),
                                        HasSubstr("key any: aiter has no place for it")));
  EXPECT_THAT(csv.text, HasSubstr("gfx942,304,16,1024,3072,triton,0,4,,"));
  EXPECT_THAT(csv.text, HasSubstr("\"BLOCK_SIZE_M=32;on=true;text=\"\"7\"\"\","));
  const Converted back = good("a8w8_blockscale_tuned_gemm.csv", csv.text, "triton_json");
  const auto before = parse_triton_json(name, json);
  const auto after = parse_triton_json(name, back.text);
  ASSERT_TRUE(before.ok() && after.ok()) << after.message();
  ASSERT_THAT(after->buckets, SizeIs(3));
  for (const std::size_t bucket : {0U, 1U}) {
    EXPECT_EQ(after->buckets[bucket].key, before->buckets[bucket].key);
    EXPECT_EQ(after->buckets[bucket].config, before->buckets[bucket].config);
  }
  EXPECT_EQ(after->buckets[2].config, before->buckets[1].config);  // any is the largest M written
}

TEST(Convert, TritonFilesHoldOneSizeAndKnownBounds) {
  const std::string rows =
      "gfx,cu_num,M,N,K,libtype,us,kernelName\n"
      "gfx942,304,16,64,128,triton,5.0,BLOCK_SIZE_M=16\n"
      "gfx942,304,24,64,128,triton,5.0,BLOCK_SIZE_M=16\n"
      "gfx942,304,4096,64,128,triton,5.0,BLOCK_SIZE_M=64\n"
      "gfx942,304,16,96,128,triton,5.0,BLOCK_SIZE_M=16\n"
      "gfx942,304,8,64,128,ck,5.0,a8w8\n";
  const std::string name = "a8w8_blockscale_tuned_gemm.csv";
  EXPECT_THAT(good(name, rows, "triton_json").left_out,
              ElementsAre(HasSubstr("another one's"), HasSubstr("'a8w8' (ck)"), HasSubstr("M = 24: no bound"),
                          HasSubstr("column cu_num: 2 rows"), HasSubstr("column us: 2 rows")));
  ConversionOptions options;
  options.thirds = true;
  const Converted thirds = good(name, rows, "triton_json", options);
  const auto file = parse_triton_json("x.json", thirds.text);
  ASSERT_TRUE(file.ok());
  ASSERT_THAT(file->buckets, SizeIs(2));
  EXPECT_EQ(file->buckets[0].key, "small_M");
  EXPECT_EQ(file->buckets[1].key, "large_M");
  EXPECT_THAT(thirds.left_out, ::testing::Contains(HasSubstr("M = 16: small_M holds a row with a larger M")));
  EXPECT_FALSE(convert(name, "gfx,cu_num,M,N,K,libtype,us,kernelName\n", "triton_json").ok());
}

/// The callers of gemm_afp4wfp4's preshuffled kernel look for 31, those of no other kernel do.
TEST(Convert, ABoundThatOneFamilyLooksForIsKept) {
  const std::string name = "gfx950-GEMM-AFP4WFP4_PRESHUFFLED-N=64-K=128.json";
  const std::string json =
      R"({"M_LEQ_16": {"a": 1}, "M_LEQ_31": {"a": 2}, "M_LEQ_64": {"a": 3}, "any": {"a": 4}})";
  ConversionOptions options;
  options.cu_num = 256;
  options.operation = OperationForm(Operation::a16w4);
  EXPECT_EQ(good(name, json, "triton_json", options).text, json);
  const Converted csv = good(name, json, "aiter", options);
  EXPECT_THAT(csv.text, HasSubstr("gfx950,256,31,64,128,"));
  const auto back =
      parse_triton_json(name, good("a16w4_tuned_gemm.csv", csv.text, "triton_json", options).text);
  ASSERT_TRUE(back.ok()) << back.message();
  ASSERT_THAT(back->buckets, SizeIs(4));
  EXPECT_EQ(back->buckets[1].key, "M_LEQ_31");
  EXPECT_EQ(back->buckets[1].config.integer("a"), 2);
}

TEST(Convert, ATritonFileWithoutSizesNeedsThem) {
  const std::string json = R"({"M_LEQ_16": {"BLOCK_SIZE_M": 16}})";
  ConversionOptions options;
  options.cu_num = 304;
  auto missing = convert("gfx942-GEMM-A16W16.json", json, "aiter", options);
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.message(), HasSubstr("give -n and -k"));
  options.n = 64;
  options.k = 128;
  EXPECT_THAT(good("gfx942-GEMM-A16W16.json", json, "aiter", options).text,
              HasSubstr("gfx942,304,16,64,128,False,"));
  EXPECT_FALSE(convert("gfx942-MOE-FP8_W8A8.json", json, "aiter", options).ok());
}

TEST(Convert, EveryFormatTakesTheTestDataOfItsOwn) {
  for (const char* path :
       {"/tune_gemm/results_v2.yaml", "/tune_gemm/results_v3_4.yaml", "/hipblaslt/online.csv",
        "/tuned/today_18.csv", "/tuned/january_17.csv", "/untuned/sizes.yaml"}) {
    const auto content = read_file(std::string(GEMMTUNE_TEST_DATA) + path);
    ASSERT_TRUE(content.ok()) << path;
    const auto converted = convert(path, *content, "untuned", mi300());
    EXPECT_TRUE(converted.ok()) << path << ": " << converted.message();
  }
}

}  // namespace
}  // namespace gemmtune
