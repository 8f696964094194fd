// The C interface of tuning: structures by size, wrong requests, a whole run on the CPU.
#include <gemmtune/tuning.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "formats/aiter/tuned_csv.h"

namespace gemmtune {
namespace {

using ::testing::HasSubstr;

class CApiTuning : public ::testing::Test {
 protected:
  CApiTuning() {
    std::string pattern = ::testing::TempDir() + "gemmtune_c_tuning_XXXXXX";
    folder_ = mkdtemp(pattern.data());
    output_ = folder_ + "/tuned.csv";
    shape_.size = sizeof shape_;
    shape_.m = 4;
    shape_.n = 64;
    shape_.k = 64;
    options_.size = sizeof options_;
    options_.shapes = &shape_;
    options_.shape_count = 1;
    options_.output = output_.c_str();
    options_.backend = "cpu";
    summary_.size = sizeof summary_;
  }
  ~CApiTuning() override { std::filesystem::remove_all(folder_); }
  int run() { return gemmtune_tune(&options_, &summary_); }

  std::string folder_;
  std::string output_;
  gemmtune_tuning_shape shape_{};
  gemmtune_tuning_options options_{};
  gemmtune_tuning_summary summary_{};
};

TEST_F(CApiTuning, WrongRequestsAreAnsweredWithTheValueAtFault) {
  EXPECT_EQ(gemmtune_tune(nullptr, nullptr), GEMMTUNE_TUNING_INVALID_ARGUMENT);
  options_.size = 4;
  EXPECT_EQ(run(), GEMMTUNE_TUNING_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_tuning_last_error(), HasSubstr("size is 4"));
  options_.size = sizeof options_;
  options_.shape_count = 0;
  EXPECT_EQ(run(), GEMMTUNE_TUNING_INVALID_ARGUMENT);
  options_.shape_count = 1;
  shape_.x_type = "int7";
  EXPECT_EQ(run(), GEMMTUNE_TUNING_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_tuning_last_error(), HasSubstr("shapes[0]"));
  EXPECT_THAT(gemmtune_tuning_last_error(), HasSubstr("int7"));
  shape_.x_type = nullptr;
  options_.libtypes = "tiled, asm";
  EXPECT_EQ(run(), GEMMTUNE_TUNING_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_tuning_last_error(), HasSubstr("'asm'"));
  options_.libtypes = nullptr;
  options_.search = "genetic";
  EXPECT_EQ(run(), GEMMTUNE_TUNING_INVALID_ARGUMENT);
  options_.search = nullptr;
  options_.threads = -1;
  EXPECT_EQ(run(), GEMMTUNE_TUNING_INVALID_ARGUMENT);
  options_.threads = 0;
  for (const char* threads : {"abc", "4294967297", "-1"}) {
    ::setenv("GEMMTUNE_NUM_THREADS", threads, 1);
    EXPECT_EQ(run(), GEMMTUNE_TUNING_INVALID_ARGUMENT) << threads;
    EXPECT_THAT(gemmtune_tuning_last_error(), HasSubstr(std::string("GEMMTUNE_NUM_THREADS ") + threads));
  }
  ::unsetenv("GEMMTUNE_NUM_THREADS");
  options_.backend = "abacus";
  EXPECT_NE(run(), GEMMTUNE_TUNING_OK);
  EXPECT_THAT(gemmtune_tuning_last_error(), HasSubstr("abacus"));
  options_.backend = "cpu";
  options_.input = "/no/such/file.csv";
  EXPECT_NE(run(), GEMMTUNE_TUNING_OK);
  EXPECT_THAT(gemmtune_tuning_last_error(), HasSubstr("/no/such/file.csv"));
}

TEST_F(CApiTuning, MeasuresInAWorkerWhereAProgramIsGiven) {
  options_.libtypes = "reference";
  options_.budget_seconds = 2;
  options_.threads = 1;
  options_.worker_program = "/no/such/gemmtune";
  ASSERT_EQ(run(), GEMMTUNE_TUNING_OK) << gemmtune_tuning_last_error();
  EXPECT_EQ(summary_.failed, 1);
  options_.worker_program = GEMMTUNE_PROGRAM;
  ASSERT_EQ(run(), GEMMTUNE_TUNING_OK) << gemmtune_tuning_last_error();
  EXPECT_EQ(summary_.tuned + summary_.kept_default, 1);
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
  ASSERT_EQ(run(), GEMMTUNE_TUNING_OK) << gemmtune_tuning_last_error();
  EXPECT_EQ(summary_.tuned + summary_.kept_default, 1);
  EXPECT_GE(summary_.candidates, 1);
  const auto file = read_tuned_csv(output_);
  ASSERT_TRUE(file.ok()) << file.message();
  ASSERT_EQ(file->entries.size(), 1U);
  EXPECT_THAT(kernels, ::testing::ElementsAre(file->entries[0].kernel_name));
  ASSERT_EQ(run(), GEMMTUNE_TUNING_OK);
  EXPECT_EQ(summary_.skipped_done, 1);
  EXPECT_EQ(summary_.tuned, 0);
}

TEST_F(CApiTuning, AnOlderCallersSummaryIsNotOverrun) {
  options_.threads = 1;
  shape_.m = 0;  // unsupported: nothing is measured
  summary_.size = offsetof(gemmtune_tuning_summary, failed);
  summary_.failed = 77;
  ASSERT_EQ(run(), GEMMTUNE_TUNING_OK) << gemmtune_tuning_last_error();
  EXPECT_EQ(summary_.unsupported, 1);
  EXPECT_EQ(summary_.failed, 77);
}

}  // namespace
}  // namespace gemmtune
