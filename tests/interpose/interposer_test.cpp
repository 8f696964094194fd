// A program that calls cuBLAS, unmodified, under libgemmtune_cublas: doubles of NVIDIA's libraries, kernels of the CPU.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "formats/aiter/tuned_csv.h"
#include "support/subprocess.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Interposer : public ::testing::Test {
 protected:
  Interposer() {
    const auto device = open_device("cpu", {});
    EXPECT_TRUE(device.ok());
    std::vector<TunedEntry> rows;
    for (const bool bias : {false, true}) {
      Problem problem = tuned_;
      problem.bias = bias;
      rows.push_back(row_of(**device, problem));
    }
    Problem batched = default_problem(Operation::batched_bf16);
    batched.m = tuned_.m;
    batched.n = tuned_.n;
    batched.k = tuned_.k;
    batched.batch = 3;
    options_.environment = {
        {"LD_PRELOAD", INTERPOSER},
        {"LD_LIBRARY_PATH", DOUBLES},
        {"GEMMTUNE_CONFIG_DIR", folder_.file("config")},
        {"GEMMTUNE_CONFIG_A16W16",
         folder_.write("tuned.csv", write_tuned_csv(Operation::a16w16, rows, CsvSchema::aiter))},
        {"GEMMTUNE_CONFIG_BATCHED_BF16",
         folder_.write("batched.csv", write_tuned_csv(Operation::batched_bf16, {{row_of(**device, batched)}},
                                                      CsvSchema::aiter))},
        {"GEMMTUNE_CAPTURE", ""}};
    Problem untuned = tuned_;
    untuned.k = 48;
    fallback_ = (*device)->fallback(untuned).value();
    const auto library = (*device)->baseline(untuned);
    library_ = library.ok() ? *library : fallback_;
  }

  /// Of families that run here without a row.
  void set_errata(const std::string& condition, const std::set<std::string>& families) {
    options_.environment["GEMMTUNE_ERRATA"] = folder_.file("errata");
    for (const std::string& family : families)
      folder_.write("errata/" + family + ".json",
                    R"({"name": ")" + family + R"(", "family": ")" + family + R"(", "condition": ")" +
                        condition + R"(", "effect": "wrong", "what": "k", "found": "here", "repro": "-"})");
  }

  static TunedEntry row_of(const Device& device, const Problem& problem) {
    TunedEntry row;
    row.gfx = device.info().gfx;
    row.cu_num = device.info().cu_num;
    row.problem = problem;
    const auto kernel = device.fallback(problem);
    EXPECT_TRUE(kernel.ok()) << kernel.status().message();
    row.kernel_name = kernel->kernel_name();
    row.libtype = kernel->family;
    row.us = 10;
    return row;
  }

  test::SubprocessResult run(const std::vector<std::string>& calls, bool linked = false) const {
    std::vector<std::string> words{linked ? LINKED_PROGRAM : PROGRAM, linked ? "" : CALLS};
    words.insert(words.end(), calls.begin(), calls.end());
    auto result = test::run_program(words, options_);
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    return result;
  }
  void expect_passed(const std::string& call, const std::string& why) const {
    const auto result = run({call});
    EXPECT_EQ(result.out, call + " vendor\n") << result.err;
    EXPECT_THAT(result.err,
                HasSubstr("1 calls: 0 served by tuned rows, 0 replaced for an erratum, 1 passed through (1 " +
                          why + ")\n"));
  }

  test::TemporaryFolder folder_;
  Problem tuned_ = [] {
    Problem problem;
    problem.m = 4;
    problem.n = 32;
    problem.k = 64;
    return problem;
  }();
  Candidate fallback_;
  Candidate library_;  // the vendor's, if one takes the types
  test::SubprocessOptions options_;
};

TEST_F(Interposer, ServesTunedSizes) {
  const auto result =
      run({"lt:tuned", "lt:bias", "lt:wide-rows", "gemm:tuned", "gemm:wide-rows", "gemm:wide"});
  EXPECT_EQ(result.out,
            "lt:tuned right\nlt:bias right\nlt:wide-rows right\n"
            "gemm:tuned right\ngemm:wide-rows right\ngemm:wide right\n");
  EXPECT_THAT(result.err,
              HasSubstr("gemmtune: cublas: 6 calls: 6 served by tuned rows, 0 replaced for an erratum, 0 "
                        "passed through\n"));
}

/// The promise that a row's dependent launch needs: here a row that has no other kernel.
TEST_F(Interposer, ConstantWeightsAreTheUsersPromise) {
  TunedEntry row = row_of(**open_device("cpu", {}), tuned_);
  row.pdl_kernel_name = row.kernel_name;
  row.pdl_us = 9;
  row.kernel_name = "skinny_r1_x1";
  options_.environment["GEMMTUNE_CONFIG_A16W16"] =
      folder_.write("pdl.csv", write_tuned_csv(Operation::a16w16, {{row}}, CsvSchema::aiter));
  expect_passed("lt:tuned", "no tuned row");
  options_.environment["GEMMTUNE_CUBLAS_CONSTANT_WEIGHTS"] = "0";
  expect_passed("lt:tuned", "no tuned row");
  options_.environment["GEMMTUNE_CUBLAS_CONSTANT_WEIGHTS"] = "1";
  EXPECT_EQ(run({"lt:tuned", "gemm:tuned", "gemm:batch"}).out,
            "lt:tuned right\ngemm:tuned right\ngemm:batch right\n");
}

/// An ordinary row is no answer, whoever asked first.
TEST_F(Interposer, BatchInvarianceIsWhatRowsOfABitClassServe) {
  EXPECT_EQ(run({"lt:tuned", "lt:invariant", "lt:invariant-off"}).out,
            "lt:tuned right\nlt:invariant vendor\nlt:invariant-off right\n");
  TunedEntry row = row_of(**open_device("cpu", {}), tuned_);
  row.bits = "f32-0123456789ab";
  options_.environment["GEMMTUNE_CONFIG_A16W16"] =
      folder_.write("invariant.csv", write_tuned_csv(Operation::a16w16, {{row}}, CsvSchema::aiter));
  const auto result = run({"lt:invariant", "lt:tuned"});
  EXPECT_EQ(result.out, "lt:invariant right\nlt:tuned right\n") << result.err;
}

TEST_F(Interposer, FindsTheLibrariesBehindItToo) {
  const auto result = run({"lt:tuned", "gemm:tuned", "lt:untuned", "gemm:untuned"}, true);
  EXPECT_EQ(result.out, "lt:tuned right\ngemm:tuned right\nlt:untuned vendor\ngemm:untuned vendor\n");
}

/// Descriptors of 13.x are compared as bytes, of others read attribute by attribute.
TEST_F(Interposer, ReadsDescriptorsOfOtherVersions) {
  const std::vector<std::string> calls{"lt:tuned",   "lt:gelu",      "lt:bias",
                                       "lt:untuned", "lt:wide-rows", "lt:batch"};
  const auto known = run(calls);
  options_.environment["GEMMTUNE_TEST_CUBLASLT"] = "120901";
  const auto other = run(calls);
  EXPECT_EQ(known.out,
            "lt:tuned right\nlt:gelu vendor\nlt:bias right\nlt:untuned vendor\nlt:wide-rows right\nlt:batch "
            "right\n");
  EXPECT_EQ(other.out, known.out);
  EXPECT_EQ(other.err, known.err);
}

TEST_F(Interposer, ServesStridedBatches) {
  const auto result = run({"gemm:batch", "lt:batch", "gemm:batch-beside", "lt:batch-beside"});
  EXPECT_EQ(result.out, "gemm:batch right\nlt:batch right\ngemm:batch-beside right\nlt:batch-beside right\n")
      << result.err;
}

TEST_F(Interposer, PassesThroughWhatIsNotItsOwn) {
  for (const char* library : {"lt:", "gemm:"}) {
    const std::string prefix = library;
    expect_passed(prefix + "untuned", "no tuned row");
    expect_passed(prefix + "alpha", "alpha or beta");
    expect_passed(prefix + "beta", "alpha or beta");
    expect_passed(prefix + "tf32", "compute type");
    expect_passed(prefix + "device-scalars", "pointer mode");
    expect_passed(prefix + "int8", "types");
    expect_passed(prefix + "misaligned", "alignment");
    expect_passed(prefix + "wide-weight", "layout");
    expect_passed(prefix + "short-rows", "layout");
    expect_passed(prefix + "batch-nn", "batch");
  }
  expect_passed("gemm:pedantic", "compute type");
  expect_passed("lt:gelu", "epilogue");
  expect_passed("lt:bias-type", "epilogue");
  expect_passed("lt:order", "layout");
  expect_passed("lt:sm-count", "setting");
  expect_passed("lt:invariant", "setting");
  expect_passed("lt:scales", "scales");
}

/// Tuned files know row-major operands only.
TEST_F(Interposer, ReplacesInAllFourLayouts) {
  if (library_.family != "onednn")
    GTEST_SKIP() << "oneDNN has no bf16 below AVX-512: " << fallback_.family
                 << " alone takes all four layouts here";
  set_errata("m == 4", {fallback_.family, library_.family});
  const auto result =
      run({"lt:tuned", "lt:nn", "lt:nt", "lt:tt", "lt:bias", "gemm:tuned", "gemm:nn", "gemm:nt", "gemm:tt"});
  EXPECT_EQ(result.out,
            "lt:tuned right\nlt:nn right\nlt:nt right\nlt:tt right\nlt:bias right\n"
            "gemm:tuned right\ngemm:nn right\ngemm:nt right\ngemm:tt right\n");
  EXPECT_THAT(result.err,
              HasSubstr("9 calls: 0 served by tuned rows, 9 replaced for an erratum, 0 passed through\n"));
}

TEST_F(Interposer, ReplacesAChoiceThatHasAnErratum) {
  set_errata("k == 48", {fallback_.family});
  const auto result = run({"gemm:untuned", "lt:untuned", "lt:tuned", "lt:algorithm"});
  // The last one names an algorithm of its own, which the erratum is not about.
  EXPECT_EQ(result.out, "gemm:untuned right\nlt:untuned right\nlt:tuned right\nlt:algorithm vendor\n");
  EXPECT_THAT(result.err,
              HasSubstr("4 calls: 1 served by tuned rows, 2 replaced for an erratum, 1 passed through (1 no "
                        "tuned row)"));
}

TEST_F(Interposer, IsOffByOneVariable) {
  options_.environment["GEMMTUNE_CUBLAS"] = "0";
  const auto result = run({"lt:tuned", "gemm:tuned"});
  EXPECT_EQ(result.out, "lt:tuned vendor\ngemm:tuned vendor\n");
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(Interposer, SaysNothingOfAProgramThatDoesNotMultiply) {
  const auto result = test::run_program({"/bin/true"}, options_);
  EXPECT_EQ(result.exit_code, 0);
  EXPECT_THAT(result.err, IsEmpty());
}

TEST_F(Interposer, CaptureRecordsCallsThatArePassedThroughToo) {
  options_.environment["GEMMTUNE_CAPTURE"] = folder_.file("captured");
  run({"lt:tuned", "gemm:untuned", "gemm:untuned", "lt:alpha"});
  EXPECT_THAT(test::read_text(folder_.file("captured/bf16_untuned_gemm.csv")),
              AllOf(HasSubstr("\n4,32,64,"), HasSubstr("\n4,32,48,")));
}

TEST_F(Interposer, ThreadsGetTheSameAnswers) {
  const auto result = run({"threads:500", "lt:tuned", "gemm:untuned", "gemm:tuned", "lt:alpha"});
  EXPECT_EQ(result.out, "lt:tuned right\ngemm:untuned vendor\ngemm:tuned right\nlt:alpha vendor\n");
  EXPECT_THAT(result.err,
              HasSubstr("16004 calls: 8002 served by tuned rows, 0 replaced for an erratum, 8002 passed "
                        "through (4001 no tuned row, 4001 alpha or beta)"));
}

TEST_F(Interposer, AChildCountsItsOwnCalls) {
  const auto result = run({"lt:tuned", "fork", "lt:tuned", "gemm:untuned"});
  EXPECT_EQ(result.out,
            "lt:tuned right\nlt:tuned right\ngemm:untuned vendor\nlt:tuned right\ngemm:untuned vendor\n");
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("cublas: 2 calls: 1 served"), HasSubstr("cublas: 3 calls: 2 served")));
}

TEST_F(Interposer, DecidesNothingWhileTheStreamIsCaptured) {
  options_.environment["GEMMTUNE_TEST_CAPTURING"] = "1";
  const auto result = run({"driver", "lt:tuned", "gemm:tuned"});
  EXPECT_EQ(result.out, "lt:tuned vendor\ngemm:tuned vendor\n");
  EXPECT_THAT(result.err, HasSubstr("2 passed through (2 not planned before graph capture)"));
}

TEST_F(Interposer, WithoutADeviceOneLineAndTheLibrarysCalls) {
  auto result = run({"driver", "lt:tuned", "gemm:tuned"});
  EXPECT_EQ(result.out, "lt:tuned vendor\ngemm:tuned vendor\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("every call is the library's own: "), HasSubstr("(2 no device)")));
  options_.environment["GEMMTUNE_TEST_OTHER_CONTEXT"] = "1";
  result = run({"driver", "lt:tuned"});
  EXPECT_EQ(result.out, "lt:tuned vendor\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("not its device's primary one"), HasSubstr("(1 no device)")));
}

TEST_F(Interposer, WithoutLibgemmtuneOneLineAndTheLibrarysCalls) {
  const std::string alone = folder_.file("libgemmtune_cublas.so");
  fs::copy_file(INTERPOSER, alone);
  options_.environment["LD_PRELOAD"] = alone;
  const auto result = run({"lt:tuned", "gemm:tuned"});
  EXPECT_EQ(result.out, "lt:tuned vendor\ngemm:tuned vendor\n");
  EXPECT_THAT(result.err, AllOf(HasSubstr("libgemmtune.so"), HasSubstr("(2 no device)")));
}

}  // namespace
}  // namespace gemmtune
