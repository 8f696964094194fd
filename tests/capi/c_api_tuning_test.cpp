// The C interface of tuning: structures by size, wrong requests, a whole run on the CPU.
#include <gemmtune/tuning.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/aiter/tuned_csv.h"
#include "support/gemm_results.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

class CApiTuning : public ::testing::Test {
 protected:
  CApiTuning() {
    std::string pattern = ::testing::TempDir() + "gemmtune_c_tuning_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    output_ = folder_ + "/tuned.csv";
    problem_.size = sizeof problem_;
    problem_.x_type = GEMMTUNE_BF16;
    problem_.m = 4;
    problem_.n = 64;
    problem_.k = 64;
    options_.size = sizeof options_;
    options_.problems = &problem_;
    options_.problem_count = 1;
    options_.output = output_.c_str();
    options_.backend = "cpu";
    summary_.size = sizeof summary_;
  }
  ~CApiTuning() override { std::filesystem::remove_all(folder_); }
  gemmtune_status run() { return gemmtune_tune(&options_, &summary_); }

  std::string folder_;
  std::string output_;
  gemmtune_problem problem_{};
  gemmtune_tuning_options options_{};
  gemmtune_tuning_summary summary_{};
};

TEST_F(CApiTuning, WrongRequestsAreAnsweredWithTheValueAtFault) {
  EXPECT_EQ(gemmtune_tune(nullptr, nullptr), GEMMTUNE_NULL_POINTER);
  options_.size = 4;
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("size is 4"));
  options_.size = sizeof options_;
  options_.problem_count = 0;
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  options_.problem_count = 1;
  problem_.x_type = std::bit_cast<gemmtune_type>(77);
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("problems[0]: x_type is 77"));
  problem_.x_type = GEMMTUNE_BF16;
  options_.libtypes = "tiled, asm";
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("'asm'"));
  options_.libtypes = nullptr;
  options_.search = "genetic";
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  options_.search = nullptr;
  options_.accuracy = "slow";
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("accuracy is slow, expected default or fast"));
  options_.accuracy = "fast";
  options_.objective = "cost";
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("objective is cost, expected time, energy or edp"));
  options_.objective = nullptr;
  options_.threads = -1;
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  options_.threads = 0;
  for (const char* threads : {"abc", "4294967297", "-1"}) {
    ::setenv("GEMMTUNE_NUM_THREADS", threads, 1);
    EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT) << threads;
    EXPECT_THAT(gemmtune_last_error(), HasSubstr(std::string("GEMMTUNE_NUM_THREADS ") + threads));
  }
  ::unsetenv("GEMMTUNE_NUM_THREADS");
  options_.backend = "abacus";
  EXPECT_NE(run(), GEMMTUNE_OK);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("abacus"));
  options_.backend = "cpu";
  options_.input = "/no/such/file.csv";
  EXPECT_NE(run(), GEMMTUNE_OK);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("/no/such/file.csv"));
}

TEST_F(CApiTuning, MeasuresInAWorkerWhereAProgramIsGiven) {
  options_.libtypes = "reference";
  options_.budget_seconds = 2;
  options_.threads = 1;
  options_.worker_program = "/no/such/gemmtune";
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.failed, 1);
  options_.worker_program = GEMMTUNE_PROGRAM;
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.tuned + summary_.kept_default, 1);
}

TEST_F(CApiTuning, TunesTheKernelsOfAnotherProgram) {
  options_.backend = "external";
  options_.device = "python3 " GEMMTUNE_SOURCE_DIR "/tests/support/evaluator.py";
  problem_.n = 24;
  problem_.k = 16;
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.tuned, 1);
  const auto tuned = read_tuned_csv(output_);
  ASSERT_TRUE(tuned.ok()) << tuned.message();
  EXPECT_EQ(tuned->entries.at(0).libtype, "python_gemm");
  options_.device = "false";
  EXPECT_EQ(run(), GEMMTUNE_IO_ERROR);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("evaluator 'false' ended"));
}

TEST_F(CApiTuning, ChoosesByJoulesWhereTheyAreCounted) {
  options_.backend = "external";
  options_.device = "python3 " GEMMTUNE_SOURCE_DIR "/tests/support/evaluator.py --hello energy=true";
  problem_.n = 24;
  problem_.k = 16;
  options_.objective = "energy";
  gemmtune_tuning_progress seen{};
  options_.context = &seen;
  options_.progress = [](const gemmtune_tuning_progress* progress, void* context) {
    *static_cast<gemmtune_tuning_progress*>(context) = *progress;
  };
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.tuned, 1);
  const auto tuned = read_tuned_csv(output_);
  ASSERT_TRUE(tuned.ok()) << tuned.message();
  EXPECT_EQ(tuned->entries.at(0).kernel_name, "python_gemm_r2_bm16_bn32_nw4_cm.cg");
  EXPECT_NEAR(seen.joules, 43.9e-6 * 100, 1e-4);
  EXPECT_NEAR(seen.default_joules, 47.2e-6 * 300, 1e-4);
  // Without a counter it is an error before anything is measured.
  options_.backend = "cpu";
  options_.device = nullptr;
  options_.objective = nullptr;
  options_.energy = 1;
  ::setenv("GEMMTUNE_POWERCAP_DIR", "/no/such/folder", 1);
  EXPECT_EQ(run(), GEMMTUNE_UNSUPPORTED);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("/no/such/folder"));
  ::unsetenv("GEMMTUNE_POWERCAP_DIR");
}

TEST_F(CApiTuning, TunesAShapeOnTheCpuAndSkipsItAfterwards) {
  std::vector<std::string> kernels;
  options_.libtypes = "reference";
  options_.budget_seconds = 2;
  options_.threads = 1;
  options_.context = &kernels;
  options_.progress = [](const gemmtune_tuning_progress* progress, void* context) {
    EXPECT_EQ(progress->size, sizeof(gemmtune_tuning_progress));
    EXPECT_EQ(progress->count, 1U);
    static_cast<std::vector<std::string>*>(context)->push_back(progress->kernel_name);
  };
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.tuned + summary_.kept_default, 1);
  EXPECT_GE(summary_.candidates, 1);
  const auto file = read_tuned_csv(output_);
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(file->entries.size(), 1U);
  EXPECT_THAT(kernels, ::testing::ElementsAre(file->entries[0].kernel_name));
  ASSERT_EQ(run(), GEMMTUNE_OK);
  EXPECT_EQ(summary_.skipped_done, 1);
  EXPECT_EQ(summary_.tuned, 0);
}

TEST_F(CApiTuning, AYamlGetsTuneGemmsResults) {
  output_ = folder_ + "/results.yaml";
  options_.output = output_.c_str();
  options_.libtypes = "tiled,skinny";
  options_.budget_seconds = 1;
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.tuned + summary_.kept_default, 1);
  const auto file = read_gemm_results(output_);
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(file->results.size(), 1U);
  EXPECT_EQ(file->results[0].m, 4);
  EXPECT_NE(file->results[0].find("kernelName"), nullptr);
  EXPECT_EQ(file->results[0].find("dtype_a")->text, "bf16");
  EXPECT_FALSE(std::filesystem::exists(output_ + ".env.json"));
  problem_.x_type = GEMMTUNE_I8;
  problem_.operation = GEMMTUNE_A8W8;
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.unsupported + summary_.failed, 1) << "no GEMM of tune_gemm's";
  EXPECT_EQ(read_gemm_results(output_)->results.size(), 1U);
}

TEST_F(CApiTuning, AnOutputIsAFile) {
  for (const char* output : {static_cast<const char*>(nullptr), "", "-"}) {
    options_.output = output;
    EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
    EXPECT_THAT(gemmtune_last_error(), ::testing::HasSubstr("expected the path of a tuned file"));
  }
  EXPECT_FALSE(std::filesystem::exists("-"));
}

TEST_F(CApiTuning, ProblemsThatDoNotBelongTogetherAreNamed) {
  gemmtune_problem both[] = {problem_, problem_};
  options_.problems = both;
  options_.problem_count = 2;
  both[1].operation = GEMMTUNE_A8W8;
  both[1].x_type = GEMMTUNE_I8;
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(),
              HasSubstr("problems[1]: operation is a8w8, expected that of problems[0]"));
  both[1] = problem_;
  both[1].size -= 8;
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("problems[1]: size is"));
  both[1] = problem_;
  both[1].weight_layout = GEMMTUNE_LAYOUT_AITER16X16;
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(),
              HasSubstr("problems[1]: weight_layout is aiter16x16, expected plain or any"));
  both[0].size = 8;
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("gemmtune_problem: size is 8"));
}

TEST_F(CApiTuning, TunesAnotherOperation) {
  problem_.operation = GEMMTUNE_A8W8;
  problem_.x_type = GEMMTUNE_I8;
  options_.libtypes = "reference";
  options_.budget_seconds = 2;
  options_.threads = 1;
  const std::int64_t calls = 5;
  options_.calls = &calls;
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.tuned + summary_.kept_default, 1);
  const auto file = read_tuned_csv(output_, {.operation = OperationForm(Operation::a8w8)});
  ASSERT_TRUE(file.ok()) << file.message();
  EXPECT_EQ(file->entries.size(), 1U);
}

TEST_F(CApiTuning, AProblemThatCannotBeTunedIsCounted) {
  options_.threads = 1;
  problem_.m = 0;  // unsupported: nothing is measured
  ASSERT_EQ(run(), GEMMTUNE_OK) << gemmtune_last_error();
  EXPECT_EQ(summary_.unsupported, 1);
  ASSERT_EQ(gemmtune_tune(&options_, nullptr), GEMMTUNE_OK);
}

TEST_F(CApiTuning, ASummaryWithoutItsSizeIsRefusedBeforeAnythingIsTuned) {
  summary_.size = offsetof(gemmtune_tuning_summary, failed);
  summary_.failed = 77;
  EXPECT_EQ(run(), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("gemmtune_tuning_summary: size is"));
  EXPECT_EQ(summary_.failed, 77);
  EXPECT_FALSE(std::filesystem::exists(output_));
}

}  // namespace
}  // namespace gemmtune
