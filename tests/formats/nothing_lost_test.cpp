// Nothing is lost in silence: what a reader does not understand is carried, what a writer cannot carry is
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/aiter/lookup_requests.h"
#include "formats/aiter/merge_tables.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/all_formats.h"
#include "formats/csv/csv.h"
#include "formats/shapes/shape_list.h"
#include "formats/triton/triton_json.h"
#include "tuned/table.h"

namespace gemmtune::nothing_lost_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

std::string lost_data(const std::string& name) { return std::string(GEMMTUNE_TEST_DATA "/lost/") + name; }

std::string content_of(const std::string& path) {
  auto content = read_file(path);
  EXPECT_TRUE(content.ok()) << content.message();
  return content.ok() ? std::move(*content) : std::string();
}

struct Converted {
  Status status;
  std::string text;
  std::vector<std::string> left_out;
  std::vector<std::string> notes;
};

Converted convert(const std::string& path, std::string_view to, const ConversionOptions& options = {}) {
  const std::string content = content_of(path);
  Converted converted;
  auto rows = detect_format(path, content).read(path, content, options);
  converted.status = rows.status();
  if (!rows.ok()) return converted;
  auto text = write_rows(**find_format(to), *rows, options);
  converted.status = text.status();
  if (text.ok()) converted.text = std::move(*text);
  for (const LeftOut& item : rows->left_out) converted.left_out.push_back(describe("f", item));
  converted.notes = rows->notes;
  return converted;
}

TunedFile table(const std::string& path) {
  auto file = read_tuned_csv(path);
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TunedFile();
}

// Issue 19, 1: AITER's one-stage kernels have flat = 2, and run_1stage may be True.
TEST(NothingLost, FlatIsACountAndSwitchesMayBeWords) {
  const std::string path = lost_data("flat_2_tuned_fmoe.csv");
  const TunedFile file = table(path);
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_THAT(file.entries, SizeIs(3));
  EXPECT_EQ(file.entries[0].stages->flat, 2);
  EXPECT_TRUE(file.entries[0].stages->run_1stage);
  const Converted converted = convert(path, "aiter");
  EXPECT_THAT(converted.left_out, IsEmpty());
  const auto again = parse_tuned_csv("tuned_fmoe.csv", converted.text);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->entries[0].stages->flat, 2);
  EXPECT_TRUE(again->entries[0].stages->run_1stage);
}

// Issue 19, 1: a cell that nobody understands stands as it was.
TEST(NothingLost, AnUnknownWordIsCarried) {
  std::string content = content_of(lost_data("flat_2_tuned_fmoe.csv"));
  content.replace(content.find(",2,"), 3, ",2,");
  const auto at = content.find("True,0,2");
  ASSERT_NE(at, std::string::npos);
  content.replace(at, 8, "maybe,0,2");
  const auto file = parse_tuned_csv("tuned_fmoe.csv", content);
  ASSERT_TRUE(file.ok());
  EXPECT_THAT(file->diagnostics, ElementsAre(HasSubstr("'maybe'")));
  EXPECT_THAT(unread_rows(*file), IsEmpty());
  EXPECT_THAT(write_tuned_csv(Operation::fused_moe, file->entries, CsvSchema::aiter),
              HasSubstr(",maybe,0,2"));
}

// Issue 19, 10: a type that gemmtune does not know is a text of the key.
TEST(NothingLost, AnUnknownTypeIsCarriedAndLookedUpAsText) {
  const std::string header = "gfx,cu_num,M,N,K,q_dtype_w,kernelId,splitK,us,kernelName,tflops,bw,errRatio\n";
  const std::string rows =
      "gfx950,256,16,512,512,torch.uint32,0,0,5.0,of_uint32,1.68,9.0,0.0\n"
      "gfx950,256,16,512,512,nvfp4_bf16,0,0,4.0,of_nvfp4,2.1,9.0,0.0\n"
      "gfx950,256,16,512,512,torch.int8,0,0,6.0,of_int8,1.4,49.15,0.0\n";
  auto file = parse_tuned_csv("a8w8_tuned_gemm.csv", header + rows, {});
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_THAT(file->diagnostics, IsEmpty());
  ASSERT_THAT(file->entries, SizeIs(3));
  EXPECT_THAT(write_tuned_csv(Operation::a8w8, file->entries, CsvSchema::aiter),
              HasSubstr("gfx950,256,16,512,512,torch.uint32,0,0,5.0,of_uint32,1.68,9.0,0.0"));
  const TunedTable table(file->entries);
  for (const auto& [type, kernel] :
       {std::pair("torch.uint32", "of_uint32"), std::pair("nvfp4_bf16", "of_nvfp4"),
        std::pair("torch.int8", "of_int8")}) {
    const auto key = parse_table_request(
        Operation::a8w8, std::string("gfx=gfx950;cu_num=256;M=16;N=512;K=512;q_dtype_w=") + type);
    ASSERT_TRUE(key.ok()) << key.message();
    const auto hits = table.lookup(*key);
    ASSERT_THAT(hits, SizeIs(1)) << type;
    EXPECT_EQ(hits.front().entry->kernel_name, kernel);
  }
  auto converted = read_aiter_rows("a8w8_tuned_gemm.csv", header + rows, {});
  ASSERT_TRUE(converted.ok());
  ASSERT_TRUE(write_rows(**find_format("untuned"), *converted, {}).ok());
  ASSERT_THAT(converted->left_out, SizeIs(2));
  EXPECT_THAT(describe("f", converted->left_out.front()), HasSubstr("f:2: q_dtype_w=torch.uint32"));
  // A cell that a short row shifts here is no type.
  EXPECT_THAT(parse_tuned_csv("a8w8_tuned_gemm.csv", header + "gfx950,256,16,512,512,0.5,0,0,5.0,a,,,\n", {})
                  ->diagnostics,
              SizeIs(1));
}

// Issue 19, 26: pandas reads the line ends of old Macs, too.
TEST(NothingLost, LoneCarriageReturnsEndLines) {
  const std::string text = "M,N,K,dtype\r16,512,1024,bf16\r\r32,512,1024,bf16\r";
  const auto list = parse_shape_list("x.csv", text, {});
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_THAT(list->rows, SizeIs(2));
  EXPECT_EQ(list->rows.back().line, 4U);
  EXPECT_EQ(detect_format("bf16_tuned_gemm.csv", "gfx,us\rgfx950,1\r").name, "aiter");
}

// Two columns that differ in case: the one with the table's own name counts, the other is carried.
TEST(NothingLost, ColumnsThatDifferInCaseAreTwo) {
  const std::string text =
      "m,gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName\n7,gfx950,256,16,512,512,0,0,5.0,a\n";
  const auto file = parse_tuned_csv("a8w8_tuned_gemm.csv", text, {});
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->entries.front().problem.m, 16);
  const auto again = parse_tuned_csv("a8w8_tuned_gemm.csv",
                                     write_tuned_csv(Operation::a8w8, file->entries, CsvSchema::aiter), {});
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_EQ(again->entries.front().problem.m, 16);
  ASSERT_NE(find_carried(again->entries.front(), "m"), nullptr);
  EXPECT_EQ(*find_carried(again->entries.front(), "m"), "7");
}

// A first cell that begins like a comment keeps its row.
TEST(NothingLost, ACellMayBeginLikeAComment) { EXPECT_EQ(csv_cell("#1"), "\"#1\""); }

// Issue 18, 5: a list of sizes is none of these.
TEST(NothingLost, OtherFormatsAreNoShapeLists) {
  EXPECT_THAT(parse_shape_list("x.json", R"({"any": {"BLOCK_SIZE_M": 16}})", {}).message(),
              HasSubstr("x.json: is triton_json"));
  EXPECT_THAT(parse_shape_list("x.csv", "m,n,k,algo_index\n1,2,3,4\n", {}).message(),
              HasSubstr("x.csv: is hipblaslt_csv"));
}

TEST(NothingLost, FilesOfOneFormatAreOneConversion) {
  const std::string header = "M,N,K,dtype,mood\n";
  auto rows = read_untuned_rows("a.csv", header + "16,512,1024,bf16,x\n", {});
  ASSERT_TRUE(rows.ok());
  auto more = read_untuned_rows("b.csv", header + "32,512,1024,bf16,y\n", {});
  ASSERT_TRUE(more.ok());
  ASSERT_TRUE(rows->append(std::move(*more)).ok());
  EXPECT_THAT(rows->entries, SizeIs(2));
  ASSERT_THAT(rows->left_out, SizeIs(2));
  EXPECT_THAT(describe("x", rows->left_out.back()), HasSubstr("b.csv:1: column mood: 1 row"));
  auto tuned = read_aiter_rows("a8w8_tuned_gemm.csv", "gfx,cu_num,M,N,K,kernelId,splitK,us,kernelName\n", {});
  ASSERT_TRUE(tuned.ok());
  EXPECT_THAT(rows->append(std::move(*tuned)).message(), HasSubstr("not of the operation"));
}

// Issue 19, 2: rows tagged as fallback stay out of look-ups.
TEST(NothingLost, TheTagOfAFallbackRowIsKept) {
  const Converted converted = convert(lost_data("tagged_tuned_fmoe.csv"), "aiter");
  EXPECT_THAT(converted.left_out, IsEmpty());
  EXPECT_THAT(converted.text, HasSubstr("flydsl_fallback"));
  auto again = parse_tuned_csv("tuned_fmoe.csv", converted.text);
  ASSERT_TRUE(again.ok());
  ASSERT_THAT(again->entries, SizeIs(2));
  const LookupKey key{again->entries[1].gfx, again->entries[1].cu_num, again->entries[1].problem};
  ASSERT_EQ(again->entries[1].stages->tag, "flydsl_fallback");
  EXPECT_THAT(TunedTable(again->entries).lookup(key), IsEmpty());
}

// Issue 19, 3: gfx950 and gfx1250 have 256 compute units both.
TEST(NothingLost, ASeedTableHoldsOneArchitectureOfACuNum) {
  const std::string path = lost_data("two_architectures_bf16_tuned_gemm.csv");
  const Converted seed = convert(path, "seed");
  ASSERT_FALSE(seed.status.ok());
  EXPECT_THAT(seed.status.message(), HasSubstr("line 2 is of gfx950 and line 3 of gfx1250, both with 256"));
  std::vector<TunedFile> files;
  files.push_back(table(path));
  const auto merged = merge_tables(files, {.schema = CsvSchema::seed});
  ASSERT_FALSE(merged.ok());
  EXPECT_THAT(merged.message(), HasSubstr("gfx1250"));
  EXPECT_TRUE(convert(path, "aiter").status.ok());
}

// Issue 19, 4: `any` is a bucket like the others.
TEST(NothingLost, TritonConfigsKeepTheirOpenBuckets) {
  const std::string path = lost_data("gfx942-GEMM-A16W16-ATOMIC-N=1024-K=512.json");
  const Converted converted = convert(path, "triton_json");
  ASSERT_TRUE(converted.status.ok()) << converted.status.message();
  EXPECT_THAT(converted.left_out, IsEmpty());
  const auto before = parse_triton_json(path, content_of(path));
  const auto after = parse_triton_json(path, converted.text);
  ASSERT_TRUE(before.ok() && after.ok());
  for (const TritonBucket& bucket : before->buckets) {
    const auto same = std::find_if(after->buckets.begin(), after->buckets.end(),
                                   [&](const TritonBucket& other) { return other.key == bucket.key; });
    ASSERT_NE(same, after->buckets.end()) << bucket.key;
    EXPECT_EQ(same->config, bucket.config) << bucket.key;
  }
  EXPECT_EQ(after->buckets.size(), before->buckets.size());
  EXPECT_EQ(after->notes.size(), before->notes.size());
  // Only other formats need to know whose problem it is.
  ConversionOptions without_gfx;
  without_gfx.cu_num = 304;
  const Converted csv = convert(path, "aiter", without_gfx);
  ASSERT_FALSE(csv.status.ok());
  EXPECT_THAT(csv.status.message(), HasSubstr("family 'GEMM-A16W16-ATOMIC'"));
}

// Issue 19, 4: without `any` in the file none is invented.
TEST(NothingLost, NoBucketIsInvented) {
  const auto text = [](const std::string& json) {
    ConversionOptions options;
    auto rows = detect_format("x.json", json).read("x.json", json, options);
    EXPECT_TRUE(rows.ok());
    const auto written = write_rows(**find_format("triton_json"), *rows, options);
    return written.ok() ? *written : written.message();
  };
  EXPECT_THAT(text(R"({"M_LEQ_16": {"A": 1}})"), Not(HasSubstr("any")));
  EXPECT_THAT(text(R"({"M_LEQ_320": {"A": 1}, "any": {}})"), HasSubstr("M_LEQ_320"));
}

// Issue 19, 5: the header decides; a name that disagrees is said.
TEST(NothingLost, ABatchedHeaderBeatsTheFilesName) {
  const TunedFile file = table(lost_data("batched_header_bf16_tuned_gemm.csv"));
  EXPECT_EQ(file.schema().operation, OperationForm(Operation::batched_bf16));
  ASSERT_THAT(file.entries, SizeIs(2));
  EXPECT_THAT(file.diagnostics, ElementsAre(HasSubstr(":1: the header is that of a table of batched_bf16")));
  std::vector<TunedFile> files;
  files.push_back(table(lost_data("batched_header_bf16_tuned_gemm.csv")));
  const auto merged = merge_tables(files, {});
  ASSERT_TRUE(merged.ok());
  EXPECT_EQ(merged->rows, 2U);
  EXPECT_THAT(unread_rows(files[0]), IsEmpty());
}

// Issue 19, 6: gate_mode alone does not make a table one of grouped MoE.
TEST(NothingLost, AMoeTableWithGateModeAnswersLookUps) {
  const TunedFile file = table(lost_data("gate_mode_tuned_fmoe.csv"));
  EXPECT_EQ(file.schema().kind, TableKind::fused_moe);
  ASSERT_THAT(file.entries, SizeIs(1));
  const LookupKey key{"gfx950", 256, file.entries[0].problem};
  EXPECT_THAT(TunedTable(file.entries).lookup(key), SizeIs(1));
  EXPECT_THAT(convert(lost_data("gate_mode_tuned_fmoe.csv"), "aiter").text, HasSubstr(",gate_mode\n"));
}

TEST(NothingLost, GroupedMoeHasATopkOfMinusOne) {
  const TunedFile file = table(lost_data("any_topk_tuned_grouped_fmoe.csv"));
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_THAT(file.entries, SizeIs(1));
  EXPECT_EQ(file.entries[0].problem.moe.topk, -1);
}

// Issue 19, 11: a parameter that tune_gemm's names do not have.
TEST(NothingLost, UnknownParametersOfTuneGemmAreCarried) {
  const std::string path = lost_data("stream_k.yaml");
  ConversionOptions options;
  options.gfx = "gfx942";
  options.cu_num = 304;
  options.x_type = DataType::f16;
  const Converted csv = convert(path, "aiter", options);
  ASSERT_TRUE(csv.status.ok()) << csv.status.message();
  EXPECT_THAT(csv.left_out, IsEmpty());
  EXPECT_THAT(csv.text, HasSubstr("BM128_BN128_BK64_GM4_nW8;NUM_SMS=304;mode='a;b'"));
  auto rows = detect_format("bf16_tuned_gemm.csv", csv.text).read("bf16_tuned_gemm.csv", csv.text, options);
  ASSERT_TRUE(rows.ok());
  const auto back = write_rows(**find_format("tune_gemm_yaml"), *rows, options);
  ASSERT_TRUE(back.ok());
  EXPECT_EQ(*back, content_of(path));
}

// Issue 19, 13: an error with more digits than are written, and columns that nobody knows.
TEST(NothingLost, NumbersKeepTheirDigits) {
  const std::string path = lost_data("digits_a8w8_tuned_gemm.csv");
  const Converted converted = convert(path, "aiter");
  EXPECT_THAT(converted.left_out, IsEmpty());
  EXPECT_THAT(converted.text, HasSubstr("0.0312345678"));
  EXPECT_THAT(converted.text, HasSubstr("5.12345678"));
  EXPECT_THAT(converted.text, HasSubstr(",note\n"));
}

TEST(NothingLost, CallsAndLayersOfAListAreKept) {
  const std::string path = lost_data("calls_bf16_untuned_gemm.csv");
  const Converted list = convert(path, "untuned");
  EXPECT_THAT(list.text, HasSubstr(",7,qkv\n"));
  EXPECT_THAT(list.left_out, ElementsAre(HasSubstr("column mood: 1 row")));
}

TEST(NothingLost, EveryFileIsCalledByItsFormat) {
  const Status refused = require_tuned_format("x.json", "{\"any\": {}}");
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.message(), HasSubstr("x.json: is triton_json"));
  EXPECT_FALSE(require_tuned_format("r.yaml", "- {'M': 1}\n").ok());
  EXPECT_TRUE(require_tuned_format("a.csv", "gfx,cu_num,M,N,K,us\n").ok());
}

}  // namespace
}  // namespace gemmtune::nothing_lost_test
