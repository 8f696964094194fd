#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "formats/shapes/shape_list.h"
#include "formats/yaml_guard.h"
#include "scratch_folder.h"
#include "support/fixtures.h"
#include "support/gemm_results.h"

namespace gemmtune {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

std::string tune_gemm_data(const std::string& name) {
  return std::string(GEMMTUNE_TEST_DATA) + "/tune_gemm/" + name;
}

GemmResultFile parse(const std::string& content) {
  auto file = parse_gemm_results("r.yaml", content);
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : GemmResultFile();
}

GemmResultFile read_results(const std::string& name) {
  auto file = read_gemm_results(tune_gemm_data(name));
  EXPECT_TRUE(file.ok()) << file.message();
  return file.ok() ? std::move(*file) : GemmResultFile();
}

TEST(GemmResults, Version2) {
  const GemmResultFile file = read_results("results_v2.yaml");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  EXPECT_EQ(file.version, TuneGemmVersion::v2);
  ASSERT_THAT(file.results, SizeIs(3));
  const GemmResult& first = file.results[0];
  EXPECT_EQ(first.k, 4096);
  EXPECT_EQ(first.a_order, std::nullopt);
  EXPECT_THAT(first.parameters, SizeIs(7));
  EXPECT_EQ(first.find("SPLIT_K")->integer(), 8);
  EXPECT_EQ(first.tflops, 0.31);
  EXPECT_EQ(first.us, 6.72);
  EXPECT_EQ(file.results[1].tflops, 7.619e-06);
  EXPECT_EQ(file.results[2].line, 3U);
  EXPECT_EQ(write_gemm_results(file.results, file.version), *read_file(tune_gemm_data("results_v2.yaml")));
}

TEST(GemmResults, Version34) {
  const GemmResultFile file = read_results("results_v3_4.yaml");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  EXPECT_EQ(file.version, TuneGemmVersion::v3_4);
  ASSERT_THAT(file.results, SizeIs(3));
  EXPECT_EQ(file.results[1].a_order, Order::column_major);
  EXPECT_EQ(file.results[1].b_order, Order::row_major);
  EXPECT_TRUE(file.results[1].find("instruction_sched_variant")->quoted);
  EXPECT_EQ(file.results[1].find("instruction_sched_variant")->integer(), std::nullopt);
  EXPECT_EQ(file.results[2].us, std::nullopt);
  EXPECT_EQ(write_gemm_results(file.results, file.version), *read_file(tune_gemm_data("results_v3_4.yaml")));
}

TEST(GemmResults, NumbersAsTheToolPrintsThem) {
  EXPECT_EQ(gemm_result_number(0.000012345, TuneGemmVersion::v2), "1.234e-05");
  EXPECT_EQ(gemm_result_number(0.0001, TuneGemmVersion::v2), "0.00");
  EXPECT_EQ(gemm_result_number(1234.56, TuneGemmVersion::v2), "1234.56");
  EXPECT_EQ(gemm_result_number(1234.56, TuneGemmVersion::v3_4), "1234.6");
  EXPECT_EQ(gemm_result_number(1000, TuneGemmVersion::v3_4), "1000.00");
}

TEST(GemmResults, ParametersInTheOrderOfTheVersion) {
  std::vector<GemmParameter> parameters{
      {"kpack", "2"}, {"mine", "1"}, {"num_warps", "4"}, {"BLOCK_SIZE_M", "16"}};
  order_parameters(TuneGemmVersion::v3_4, parameters);
  EXPECT_EQ(parameters[0].name, "BLOCK_SIZE_M");
  EXPECT_EQ(parameters[1].name, "num_warps");
  EXPECT_EQ(parameters[2].name, "kpack");
  EXPECT_EQ(parameters[3].name, "mine");
  GemmResult result{.m = 1, .n = 2, .k = 3, .a_order = Order::row_major, .b_order = Order::column_major};
  EXPECT_EQ(write_gemm_results({result}, TuneGemmVersion::v2), "- {'M': 1, 'N': 2, 'K': 3}\n");
  EXPECT_EQ(write_gemm_results({result}, TuneGemmVersion::v3_4),
            "- {'M': 1, 'N': 2, 'K': 3, 'rowMajorA': 'T', 'rowMajorB': 'N'}\n");
}

TEST(GemmResults, DirtIsReportedAndTheRestIsUsed) {
  const GemmResultFile file = read_results("dirty.yaml");
  EXPECT_THAT(file.diagnostics,
              ElementsAre(HasSubstr("dirty.yaml:9: column M: value '0', expected a whole number from 1"),
                          HasSubstr("dirty.yaml:10: column K"), HasSubstr("dirty.yaml:11: column rowMajorA"),
                          HasSubstr("dirty.yaml:12: column M: value '', expected the key once"),
                          HasSubstr("dirty.yaml:13: column BLOCK_SIZE_M"),
                          HasSubstr("dirty.yaml:14: column -: value '17', expected a map"),
                          HasSubstr("dirty.yaml:15: column comment: value '# TFLOPS: inf")));
  ASSERT_THAT(file.results, SizeIs(3));
  EXPECT_EQ(file.results[0].find("note")->text, "it's one, two");
  EXPECT_EQ(file.results[0].find("EVEN_K")->text, "True");
  EXPECT_FALSE(file.results[0].find("EVEN_K")->quoted);
  EXPECT_EQ(file.results[1].us, 2.0);
  EXPECT_TRUE(file.results[1].find("kpack")->quoted);
  EXPECT_EQ(file.results[1].b_order, Order::row_major);
  EXPECT_EQ(file.results[2].us, std::nullopt);

  GemmResultFile again = parse(write_gemm_results(file.results, file.version));
  ASSERT_THAT(again.results, SizeIs(3));
  for (std::size_t index = 0; index < again.results.size(); ++index) {
    again.results[index].line = file.results[index].line;
    EXPECT_EQ(again.results[index], file.results[index]) << index;
  }
}

TEST(GemmResults, ATextIsNoComment) {
  const GemmResultFile file =
      parse("- {'M': 1, 'N': 2, 'K': 3, 'a': '# TFLOPS: x', 'b} # TFLOPS: 1 time(us): 2': 0}\n");
  EXPECT_THAT(file.diagnostics, IsEmpty());
  ASSERT_THAT(file.results, SizeIs(1));
  EXPECT_EQ(file.results[0].us, std::nullopt);
}

/// Found by gemm_results_fuzz: sixteen levels of brackets in a text were read, and written as the
/// seventeenth.
TEST(GemmResults, ATextOpensNoBrackets) {
  const std::string deep = std::string(16, '[') + "1" + std::string(16, ']');
  const GemmResultFile file = parse("- M: 8\n  N: 128\n  K: 256\n  kpack: '" + deep +
                                    "'\n- {'M': 1, 'N': 2, 'K': 3, 'a{': 1}\n- {'M': 1, 'N': 2, 'K': 3}\n");
  EXPECT_THAT(file.diagnostics,
              ElementsAre(HasSubstr("column kpack: value '', expected a number or a text of one line"),
                          HasSubstr("expected names as keys")));
  ASSERT_THAT(file.results, SizeIs(1));
  EXPECT_THAT(parse(write_gemm_results(file.results, file.version)).diagnostics, IsEmpty());
}

TEST(GemmResults, BenchmarkTable) {
  EXPECT_EQ(write_gemm_benchmark_csv(read_results("results_v3_4.yaml").results),
            "trans,M,N,K,TFLOPS,us\n"
            "TN,4864,4096,4160,512.40,323.51\n"
            "NT,8192,8192,8192,1100.2,999.40\n");
}

TEST(GemmResults, WhatIsMadeToBreakAReaderIsRefused) {
  const auto refused = [](const std::string& content) {
    const auto file = parse_gemm_results("r.yaml", content);
    EXPECT_FALSE(file.ok()) << content.substr(0, 40);
    return std::string(file.message());
  };
  EXPECT_THAT(refused("{'M': 1}"), HasSubstr("r.yaml:1: expected a list of maps"));
  EXPECT_THAT(refused("- {'M': 1\n- {'M'"), HasSubstr("r.yaml:"));
  EXPECT_THAT(refused(std::string(100000, '[')), HasSubstr("nested deeper than 16"));
  EXPECT_THAT(refused("- - - - - - - - - - - - - - - - - - x\n"), HasSubstr("nested deeper"));
  EXPECT_THAT(refused("- &a [x, x]\n- &b [*a, *a]\n- &c [*b, *b]\n"), HasSubstr("r.yaml:1: an anchor"));
  EXPECT_THAT(refused("- 1\n- *a\n"), HasSubstr("r.yaml:"));
  EXPECT_THAT(refused(std::string("- {'M': 1\0}", 11)), HasSubstr("r.yaml:1: a NUL byte"));
  EXPECT_THAT(refused(std::string("\xFF\xFE-\0 \0{\0}\0", 10)), HasSubstr("NUL byte"));
  EXPECT_THAT(refused(std::string(max_yaml_bytes + 1, ' ')), HasSubstr("expected at most"));
  EXPECT_THAT(parse("- {'M': 1" + std::string(1 << 20, '0') + ", 'N': 1, 'K': 1}\n").diagnostics, SizeIs(1));
  EXPECT_THAT(parse("").results, IsEmpty());
  EXPECT_EQ(read_gemm_results(tune_gemm_data("absent.yaml")).code(), StatusCode::not_found);
}

TEST(GemmSizes, HaveTheOrdersOfTheirOperands) {
  const auto list = read_shape_list(tune_gemm_data("results_v3_4.yaml"), {});
  ASSERT_TRUE(list.ok()) << list.message();
  ASSERT_THAT(list->rows, SizeIs(3));
  EXPECT_EQ(list->rows[0].problem.x_order, Order::row_major);
  EXPECT_EQ(list->rows[0].problem.w_order, Order::row_major);
  EXPECT_EQ(list->rows[1].problem.x_order, Order::column_major);
  EXPECT_EQ(list->rows[1].problem.w_order, Order::column_major);
}

TEST(GemmResultFixtures, EveryFileIsReadAndWrittenAsItIs) {
  GEMMTUNE_NEEDS_FIXTURES(folder);
  const std::string results = folder + "/tune_gemm/fallback_tuned_configs.yaml";
  const auto file = read_gemm_results(results);
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_THAT(file->diagnostics, IsEmpty());
  EXPECT_THAT(file->results, SizeIs(63));
  EXPECT_EQ(write_gemm_results(file->results, file->version), *read_file(results));

  const std::string sizes = folder + "/tune_gemm/tuning_gemm_sizes.yaml";
  const auto list = read_gemm_results(sizes);
  ASSERT_TRUE(list.ok()) << list.message();
  EXPECT_THAT(list->diagnostics, IsEmpty());
  EXPECT_THAT(list->results, SizeIs(63));
}

}  // namespace
}  // namespace gemmtune
