// Every table of AITER's: read, looked up, written again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/text.h"
#include "formats/aiter/lookup_requests.h"
#include "formats/aiter/rates.h"
#include "formats/aiter/tuned_csv.h"
#include "scratch_folder.h"
#include "support/fixtures.h"
#include "tuned/key.h"
#include "tuned/table.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string tables_data(const std::string& name) {
  return std::string(GEMMTUNE_TEST_DATA) + "/tables/" + name;
}

TunedFile read_table(const std::string& name) {
  auto file = read_tuned_csv(tables_data(name));
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : TunedFile();
}

/// "exact:16 name", "untuned".
std::string answer(const TunedTable& table, OperationForm operation, const std::string& request) {
  const auto key = parse_table_request(operation, request);
  EXPECT_TRUE(key.ok()) << key.message();
  if (!key.ok()) return key.message();
  const auto hits = table.lookup(*key);
  if (hits.empty()) return "untuned";
  return std::string(to_string(hits[0].match)) + ":" + std::to_string(hits[0].hit_m) + " " +
         hits[0].entry->kernel_name;
}

TEST(AllTables, A8w8IsKeyedByTheWeightsType) {
  const TunedFile file = read_table("a8w8_tuned_gemm.csv");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  const TunedTable table(file.entries);
  const std::string shape = ";N=1280;K=8192;q_dtype_w=";
  EXPECT_EQ(answer(table, Operation::a8w8, "gfx=gfx942;cu_num=80;M=1" + shape + "torch.int8"),
            "exact:1 first_v3");
  EXPECT_EQ(answer(table, Operation::a8w8, "gfx=gfx942;cu_num=80;M=9" + shape + "torch.int8"), "untuned");
  EXPECT_EQ(answer(table, Operation::a8w8, "gfx=gfx942;cu_num=80;M=9" + shape + "torch.float8_e4m3fnuz"),
            "fine:16 second_v1");
  EXPECT_EQ(answer(table, Operation::a8w8, "gfx=gfx942;cu_num=80;M=9" + shape + "torch.float8_e4m3fn"),
            "untuned");
  // What the key does not hold does not matter.
  LookupKey key = *parse_table_request(Operation::a8w8, "gfx=gfx942;cu_num=80;M=1" + shape + "torch.int8");
  key.problem.y_type = DataType::f16;
  key.problem.bias = true;
  EXPECT_THAT(table.lookup(key), SizeIs(1));
}

TEST(AllTables, A8w8Of2024AnswersNoDeviceAndIsInt8) {
  const TunedFile file = read_table("a8w8_tuned_gemm_2024.csv");
  EXPECT_THAT(file.diagnostics, ::testing::ElementsAre(HasSubstr("no column cu_num")));
  EXPECT_EQ(file.entries.at(0).problem.w_type, DataType::i8);
}

TEST(AllTables, BpreshuffleWithoutGfxAndWithDirtyCells) {
  const TunedFile file = read_table("a8w8_bpreshuffle_tuned_gemm.csv");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_THAT(file.entries, SizeIs(3));
  EXPECT_TRUE(std::isinf(file.entries[1].us));
  EXPECT_EQ(file.entries[2].problem.w_type, DataType::f8_e4m3fnuz) << "a tab behind the type";
  EXPECT_TRUE(is_packed(file.entries[2].problem));
  const TunedTable table(file.entries);
  const std::string shape = ";N=128;K=5120;q_dtype_w=torch.int8";
  EXPECT_EQ(answer(table, OperationForm(Operation::a8w8, true), "gfx=gfx942;cu_num=304;M=100" + shape),
            "coarse:128 _ZN5aiter3twoE");
  EXPECT_EQ(answer(table, OperationForm(Operation::a8w8, true), "gfx=sm_90;cu_num=304;M=100" + shape),
            "untuned")
      << "a file without gfx is of AMD devices";
}

TEST(AllTables, BlockscaleTriesFineBeforeCoarse) {
  const TunedTable table(read_table("a8w8_blockscale_tuned_gemm.csv").entries);
  const std::string device = "gfx=gfx950;cu_num=256;";
  EXPECT_EQ(answer(table, Operation::a8w8_blockscale, device + "M=2;N=2048;K=3072"), "fine:16 wide_v1");
  EXPECT_EQ(answer(table, Operation::a8w8_blockscale, device + "M=1;N=2048;K=3072"), "exact:1 small_v1");
  EXPECT_EQ(answer(table, OperationForm(Operation::a8w8_blockscale, true), device + "M=1;N=2048;K=3072"),
            "untuned");
}

TEST(AllTables, BatchedIsNotPadded) {
  const TunedFile file = read_table("bf16_tuned_batched_gemm.csv");
  EXPECT_EQ(file.schema().operation, OperationForm(Operation::batched_bf16));
  const TunedTable table(file.entries);
  const std::string device = "gfx=gfx942;cu_num=304;";
  EXPECT_EQ(answer(table, Operation::batched_bf16, device + "B=16;M=1;N=1280;K=8192"), "exact:1 batched_v1");
  EXPECT_EQ(answer(table, Operation::batched_bf16, device + "B=8;M=1;N=1280;K=8192"), "untuned");
  TunedEntry padded = file.entries.at(0);
  padded.problem.m = 16;
  const TunedTable sixteen({padded});
  EXPECT_EQ(answer(sixteen, Operation::batched_bf16, device + "B=16;M=15;N=1280;K=8192"), "untuned");
}

const std::string moe_shape =
    ";model_dim=2304;inter_dim=1536;expert=8;topk=2;dtype=torch.bfloat16;q_dtype_a=torch.float8_e4m3fn;"
    "q_dtype_w=torch.float8_e4m3fn;q_type=QuantType.per_1x128;use_g1u1=1;doweight_stage1=1;act_type="
    "ActivationType.";

TEST(AllTables, MoeTakesItsActivationThenTheFirstRowOfAny) {
  const TunedFile file = read_table("tuned_fmoe.csv");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_THAT(file.entries, SizeIs(5));
  EXPECT_DOUBLE_EQ(file.entries[0].err_ratio, 0.038);
  EXPECT_EQ(file.entries[0].stages->kernel_name2, "stage2_a");
  EXPECT_EQ(file.entries[1].stages->kernel_name2, "") << "Null";
  EXPECT_TRUE(file.entries[1].stages->run_1stage);
  EXPECT_EQ(file.entries[4].stages->tag, "exact-m4096-a");
  const TunedTable table(file.entries);
  const std::string device = "gfx=gfx950;cu_num=256;token=";
  EXPECT_EQ(answer(table, Operation::fused_moe, device + "4" + moe_shape + "Silu"), "exact:4 stage1_s");
  EXPECT_EQ(answer(table, Operation::fused_moe, device + "4" + moe_shape + "Swiglu"), "exact:4 stage1_a");
  EXPECT_EQ(answer(table, Operation::fused_moe, device + "3" + moe_shape + "Silu"), "coarse:4 stage1_s")
      << "3 is no tier: its row is never asked for";
  EXPECT_EQ(answer(table, Operation::fused_moe, device + "8" + moe_shape + "Silu"), "exact:8 eight")
      << "the faster row is tagged flydsl_fallback";
  EXPECT_EQ(answer(table, Operation::fused_moe, device + "7" + moe_shape + "Gelu"), "coarse:8 eight");
  EXPECT_EQ(answer(table, Operation::fused_moe, "gfx=gfx942;cu_num=256;token=4" + moe_shape + "Silu"),
            "untuned")
      << "a row without gfx and 256 compute units is of gfx950";
}

TEST(AllTables, MoeTiersAboveThirtyTwoThousand) {
  TunedEntry low = read_table("tuned_fmoe.csv").entries.at(0);
  low.problem.m = 32768;
  low.us = 1e6;
  TunedEntry high = low;
  high.problem.m = 131072;
  TunedEntry between = low;
  between.problem.m = 65536;
  const std::string device = "gfx=gfx950;cu_num=256;token=";
  const TunedTable both({low, between, high});
  const TunedTable lower({low, between});
  const auto hit = [&](const TunedTable& table, const std::string& tokens) {
    return answer(table, Operation::fused_moe, device + tokens + moe_shape + "Gelu");
  };
  EXPECT_EQ(hit(both, "16384"), "untuned");
  EXPECT_EQ(hit(both, "16385"), "coarse:32768 stage1_a");
  EXPECT_EQ(hit(both, "32768"), "exact:32768 stage1_a");
  EXPECT_EQ(hit(both, "65536"), "coarse:32768 stage1_a");
  EXPECT_EQ(hit(both, "131071"), "coarse:32768 stage1_a");
  EXPECT_EQ(hit(both, "131072"), "exact:131072 stage1_a");
  EXPECT_EQ(hit(both, "2000000"), "coarse:131072 stage1_a");
  EXPECT_EQ(hit(lower, "2000000"), "coarse:32768 stage1_a");
}

TEST(AllTables, SixHeadersOfMoeMeanTheSame) {
  for (int variant = 1; variant <= 6; ++variant) {
    const TunedFile file = read_table("tuned_fmoe_variant_" + std::to_string(variant) + ".csv");
    EXPECT_THAT(file.diagnostics, IsEmpty()) << variant;
    ASSERT_THAT(file.entries, SizeIs(1)) << variant;
    const TunedEntry& entry = file.entries[0];
    EXPECT_EQ(entry.us, 24.5) << variant;
    EXPECT_EQ(entry.kernel_name, "first_blockscaleBf16") << variant;
    EXPECT_EQ(entry.stages->us2, 14.5) << variant;
    EXPECT_TRUE(entry.stages->xbf16) << variant << ": in its column, or from the name";
    EXPECT_EQ(entry.stages->flat, 0) << variant;
    EXPECT_DOUBLE_EQ(entry.err_ratio, 0.004) << variant;
  }
}

TEST(AllTables, ShortMoeRowsKeepTheirMeaning) {
  const TunedFile file = read_table("tuned_fmoe_short_rows.csv");
  ASSERT_THAT(file.entries, SizeIs(1));
  EXPECT_EQ(file.entries[0].us, 24.5);
  EXPECT_EQ(file.entries[0].stages->flat, 0);
  EXPECT_THAT(file.diagnostics, ::testing::ElementsAre(HasSubstr(
                                    ":2: column flat: value '1.73', expected a whole number of at least 0")));
}

TEST(AllTables, MoeOf2024) {
  const TunedFile file = read_table("tuned_fmoe_2024.csv");
  ASSERT_THAT(file.entries, SizeIs(1));
  EXPECT_EQ(file.entries[0].us, 24.5);
  EXPECT_EQ(file.entries[0].cu_num, 0);
}

TEST(AllTables, TablesThatAreOnlyReadAnswerNothing) {
  const struct {
    const char* name;
    TableKind kind;
    std::size_t rows;
  } cases[] = {{"dsv4_batched_gemm_a8w8_blockscale_mxscale_tuned.csv", TableKind::batched_mxscale, 1},
               {"tuned_fhmoe.csv", TableKind::heterogeneous_moe, 2},
               {"tuned_grouped_fmoe.csv", TableKind::grouped_moe, 1}};
  for (const auto& one : cases) {
    const TunedFile file = read_table(one.name);
    EXPECT_THAT(file.diagnostics, IsEmpty()) << one.name;
    EXPECT_EQ(file.schema().kind, one.kind) << one.name;
    ASSERT_THAT(file.entries, SizeIs(one.rows)) << one.name;
    for (const TunedEntry& entry : file.entries) {
      EXPECT_FALSE(is_of_look_up(entry));
      const TunedTable table({entry});
      EXPECT_THAT(table.lookup({entry.gfx, entry.cu_num, entry.problem}), IsEmpty());
      EXPECT_FALSE(publish(tables_data(one.name), {entry}, {}).ok());
    }
  }
  const auto heterogeneous = read_table("tuned_fhmoe.csv").entries;
  EXPECT_NE(heterogeneous.at(0).other_key, heterogeneous.at(1).other_key);
}

TEST(AllTables, RequestsThatMeanNothingAreNamed) {
  const auto message = [](const char* text) {
    return parse_table_request(Operation::a8w8_blockscale, text).message();
  };
  EXPECT_THAT(message("gfx=gfx950;cu_num=256;M=1;N=2"), HasSubstr("column K: value ''"));
  EXPECT_THAT(message("gfx=gfx950;M=1;N=2;K=3"), HasSubstr("has no cu_num"));
  EXPECT_THAT(message("gfx=gfx950;cu_num=256;M=1;N=2;K=3;bias=True"), HasSubstr("'bias' is no key"));
  EXPECT_THAT(message("gfx=gfx950;cu_num=many;M=1;N=2;K=3"), HasSubstr("column cu_num: value 'many'"));
  EXPECT_THAT(message("M"), HasSubstr("expected key=value"));
}

// ---- written again
// ------------------------------------------------------------------------------------------

class AllTablesWritten : public ScratchTest, public ::testing::WithParamInterface<const char*> {};

TEST_P(AllTablesWritten, ReadWriteReadIsTheIdentity) {
  const TunedFile file = read_table(GetParam());
  const OperationForm operation = file.schema().operation;
  const std::string text = write_tuned_csv(operation, file.entries, CsvSchema::aiter);
  const auto again = parse_tuned_csv("again.csv", text, {.operation = operation});
  ASSERT_TRUE(again.ok()) << again.message();
  EXPECT_THAT(again->diagnostics, IsEmpty());
  EXPECT_EQ(write_tuned_csv(operation, again->entries, CsvSchema::aiter), text);
  ASSERT_EQ(again->entries.size(), file.entries.size());
  for (std::size_t row = 0; row < file.entries.size(); ++row) {
    EXPECT_EQ(again->entries[row].problem, file.entries[row].problem);
    EXPECT_EQ(again->entries[row].kernel_name, file.entries[row].kernel_name);
  }
}

TEST_P(AllTablesWritten, PublishingWhatAFileSaysChangesNoByte) {
  const std::string before = *read_file(tables_data(GetParam()));
  const std::string copy = write(GetParam(), before);
  for (const TunedEntry& entry : read_table(GetParam()).entries) {
    if (entry.cu_num == 0 || !valid_time(entry.us)) continue;
    const Status status = publish(copy, {entry}, {});
    ASSERT_TRUE(status.ok()) << status.message();
  }
  EXPECT_EQ(content(GetParam()), before);
}

TEST_P(AllTablesWritten, ANewRowLeavesTheOthersByteForByte) {
  const std::string before = *read_file(tables_data(GetParam()));
  const TunedFile file = read_table(GetParam());
  const std::string copy = write(GetParam(), before);
  TunedEntry entry = file.entries.at(0);
  entry.problem.m = 4096;
  entry.us = 12.5;
  if (file.has_gfx) entry.gfx = "gfx1250";
  const Status status = publish(copy, {entry}, {});
  if (!file.columns.has(Column::cu_num)) {
    EXPECT_THAT(status.message(), HasSubstr("no column cu_num"));
    EXPECT_EQ(content(GetParam()), before);
    return;
  }
  ASSERT_TRUE(status.ok()) << status.message();
  const std::string after = content(GetParam());
  const std::string rows = before.substr(before.find('\n'));
  EXPECT_THAT(after, HasSubstr(std::string(trim(rows))));
  const auto again = read_tuned_csv(copy);
  ASSERT_TRUE(again.ok());
  ASSERT_EQ(again->entries.size(), file.entries.size() + 1);
  EXPECT_EQ(again->entries.back().us, 12.5);
  EXPECT_EQ(group_of(again->entries.back().problem), group_of(entry.problem));
}

INSTANTIATE_TEST_SUITE_P(
    Files, AllTablesWritten,
    ::testing::Values("a8w8_tuned_gemm.csv", "a8w8_bpreshuffle_tuned_gemm.csv",
                      "a8w8_blockscale_tuned_gemm.csv", "a8w8_blockscale_bpreshuffle_tuned_gemm.csv",
                      "a4w4_blockscale_tuned_gemm.csv", "bf16_tuned_batched_gemm.csv",
                      "a8w8_tuned_batched_gemm.csv", "tuned_fmoe_variant_1.csv", "tuned_fmoe_variant_2.csv",
                      "tuned_fmoe_variant_3.csv", "tuned_fmoe_variant_4.csv", "tuned_fmoe_variant_5.csv",
                      "tuned_fmoe_variant_6.csv", "tuned_fmoe_2024.csv", "a8w8_tuned_gemm_2024.csv"),
    [](const auto& parameter) {
      std::string name = parameter.param;
      std::erase_if(name, [](char c) { return c == '.'; });
      return name;
    });

}  // namespace
}  // namespace gemmtune
