// Buckets of Triton configs in a table: which of them a problem finds, and where it stands among the rows.
#include "tuned/bucket_index.h"

#include <gtest/gtest.h>

#include <limits>

#include "tuned/table.h"

namespace gemmtune {
namespace {

TunedEntry bucket(std::int64_t from, std::int64_t m, std::int64_t n, const std::string& kernel,
                  std::uint32_t source = 0) {
  TunedEntry entry;
  entry.gfx = "gfx950";
  entry.problem.m = m;
  entry.problem.n = n;
  entry.problem.k = n == 0 ? 0 : 64;
  entry.m_from = from;
  entry.bucket = "any";
  entry.kernel_name = kernel;
  entry.source = source;
  entry.us = std::numeric_limits<double>::quiet_NaN();
  return entry;
}

TunedEntry tuned_row(std::int64_t m, const std::string& kernel) {
  TunedEntry entry;
  entry.gfx = "gfx950";
  entry.cu_num = 256;
  entry.problem.m = m;
  entry.problem.n = 128;
  entry.problem.k = 64;
  entry.us = 5;
  entry.kernel_name = kernel;
  return entry;
}

Problem asked(std::int64_t m, std::int64_t n = 128) {
  Problem problem;
  problem.m = m;
  problem.n = n;
  problem.k = 64;
  return problem;
}

std::string answers(const TunedTable& table, const Problem& problem, int cu_num = 256,
                    const std::string& gfx = "gfx950") {
  std::string text;
  for (const LookupHit& hit : table.lookup({gfx, cu_num, problem}))
    text += std::string(to_string(hit.match)) + ":" + hit.entry->kernel_name + " ";
  return text;
}

TEST(Buckets, StandBehindRangesAndBeforePaddedRows) {
  TunedEntry range = tuned_row(40, "range");
  range.m_from = 20;
  const TunedTable table(
      {tuned_row(16, "row16"), tuned_row(32, "row32"), range, bucket(1, 256, 128, "special")});
  EXPECT_EQ(answers(table, asked(16)), "exact:row16 bucket:special ");
  EXPECT_EQ(answers(table, asked(30)), "range:range bucket:special fine:row32 ");
  EXPECT_EQ(answers(table, asked(9)), "bucket:special fine:row16 ");
  EXPECT_EQ(answers(table, asked(257)), "") << "no bucket and no row";
}

/// A row of this N and K, even of another M, goes before a file that knows no sizes.
TEST(Buckets, OfAllSizesComeLast) {
  const TunedTable table({tuned_row(16, "row16"), bucket(1, max_dimension, 0, "default")});
  EXPECT_EQ(answers(table, asked(9)), "fine:row16 bucket:default ");
  EXPECT_EQ(answers(table, asked(9, 256)), "bucket:default ") << "other sizes";
}

TEST(Buckets, OfASpecialFileReplaceTheDefaultWholesale) {
  const TunedTable table({bucket(1, max_dimension, 0, "default"), bucket(1, 16, 128, "special", 1)});
  EXPECT_EQ(answers(table, asked(16)), "bucket:special ");
  EXPECT_EQ(answers(table, asked(17)), "") << "AITER raises an error there; the default does not answer";
  EXPECT_EQ(answers(table, asked(17, 256)), "bucket:default ");
}

TEST(Buckets, OfTheFirstFileOfANameCount) {
  const TunedTable table(
      {bucket(1, 16, 128, "first", 3), bucket(17, 32, 128, "second", 4), bucket(33, 64, 128, "third", 3)});
  EXPECT_EQ(answers(table, asked(5)), "bucket:first ");
  EXPECT_EQ(answers(table, asked(20)), "") << "of the second file, which is not read";
  EXPECT_EQ(answers(table, asked(64)), "bucket:third ");
}

TEST(Buckets, AnswerEveryDeviceOfTheirArchitecture) {
  const TunedTable table({bucket(1, 16, 128, "special")});
  EXPECT_EQ(answers(table, asked(5), 304), "bucket:special ");
  EXPECT_EQ(answers(table, asked(5), 256, "gfx942"), "");
  Problem with_bias = asked(5);
  with_bias.bias = true;
  with_bias.x_type = with_bias.w_type = with_bias.y_type = DataType::f16;
  EXPECT_EQ(answers(table, with_bias), "bucket:special ") << "the file's name says neither";
}

TEST(Buckets, AreOfRowMajorOperands) {
  const TunedTable table({bucket(1, max_dimension, 0, "default")});
  Problem problem = asked(5);
  problem.w_order = Order::column_major;
  EXPECT_EQ(answers(table, problem), "");
  problem.w_order = Order::row_major;
  problem.x_order = Order::column_major;
  EXPECT_EQ(answers(table, problem), "");
}

TEST(Buckets, OfABatchGoBeforeThoseOfAnyBatch) {
  TunedEntry of_any = bucket(1, 64, 128, "any batch");
  TunedEntry of_four = bucket(1, 16, 128, "four", 1);
  of_any.problem.operation = of_four.problem.operation = Operation::batched_bf16;
  of_any.problem.batch = 0;
  of_four.problem.batch = 4;
  const TunedTable table({of_any, of_four});
  Problem problem = asked(8);
  problem.operation = Operation::batched_bf16;
  problem.batch = 4;
  EXPECT_EQ(answers(table, problem), "bucket:four ");
  problem.batch = 5;
  EXPECT_EQ(answers(table, problem), "bucket:any batch ");
}

/// A fused MoE's file says kinds of types, not the types: fp8 of both kinds, bf16 and fp16.
TEST(Buckets, OfAMixtureAreOfKindsOfTypes) {
  TunedEntry fp8 = bucket(1, 255, 0, "fp8");
  fp8.problem.operation = Operation::fused_moe;
  fp8.problem.x_type = fp8.problem.w_type = DataType::f8_e4m3fn;
  TunedEntry special = fp8;
  special.kernel_name = "special";
  special.problem.n = 256;
  special.problem.k = 512;
  special.problem.moe.experts = 8;
  special.source = 1;
  const TunedTable table({fp8, special});
  Problem problem = default_problem(Operation::fused_moe);
  problem.m = 17;
  problem.n = 256;
  problem.k = 512;
  problem.moe.experts = 8;
  problem.moe.topk = 2;
  problem.x_type = problem.w_type = DataType::f8_e4m3fnuz;
  EXPECT_EQ(answers(table, problem), "bucket:special ");
  problem.moe.experts = 16;
  EXPECT_EQ(answers(table, problem), "bucket:fp8 ");
  problem.x_type = problem.w_type = DataType::bf16;
  EXPECT_EQ(answers(table, problem), "");
}

}  // namespace
}  // namespace gemmtune
