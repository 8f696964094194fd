// The hook for problems that no row answers, and the context's log, as a program in C uses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "capi/c_support.h"
#include "support/dispatch_tables.h"

namespace gemmtune {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;

struct Handler {
  gemmtune_context* context = nullptr;
  std::vector<std::string> problems;
  std::string file;
  std::string fallback;
  int released = 0;

  static std::int32_t missed(void* self, const gemmtune_miss* miss) {
    auto* const handler = static_cast<Handler*>(self);
    EXPECT_EQ(miss->size, sizeof(gemmtune_miss));
    handler->problems.emplace_back(miss->problem);
    handler->file = miss->file;
    handler->fallback = miss->fallback;
    EXPECT_THAT(miss->proven_families, HasSubstr(std::string(miss->fallback).substr(0, 3)));
    EXPECT_STRNE(miss->tuned_files, "");
    EXPECT_EQ(gemmtune_context_reload_online(handler->context), GEMMTUNE_OK) << gemmtune_last_error();
    return 1;
  }
  static void release(void* self) { ++static_cast<Handler*>(self)->released; }
};

class CMiss : public ::testing::Test {
 protected:
  CMiss() {
    gemmtune_context_options options{};
    options.size = sizeof options;
    options.config_folder = folder_.path().c_str();
    options.backend = "cpu";
    options.threads = 1;
    options.log = [](void* lines, int, const char* line) {
      static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
    };
    options.log_context = &lines_;
    EXPECT_EQ(gemmtune_context_create(&options, &context_), GEMMTUNE_OK) << gemmtune_last_error();
    handler_.context = context_;
    given_.size = sizeof given_;
    given_.missed = &Handler::missed;
    given_.release = &Handler::release;
    given_.handler_context = &handler_;
  }
  ~CMiss() override { gemmtune_context_destroy(context_); }
  void plan(std::int64_t m) {
    gemmtune_problem asked{};
    asked.size = sizeof asked;
    asked.x_type = GEMMTUNE_F32;
    asked.m = m;
    asked.n = asked.k = 16;
    gemmtune_plan* made = nullptr;
    EXPECT_EQ(gemmtune_plan_create(context_, &asked, &made), GEMMTUNE_OK) << gemmtune_last_error();
    gemmtune_plan_release(made);
  }

  test::TemporaryFolder folder_;
  std::vector<std::string> lines_;
  gemmtune_context* context_ = nullptr;
  Handler handler_;
  gemmtune_miss_handler given_{};
};

TEST_F(CMiss, AHandlerIsCalledOncePerProblemAndReleasedOnce) {
  ASSERT_EQ(gemmtune_context_set_miss_handler(context_, &given_), GEMMTUNE_OK) << gemmtune_last_error();
  plan(3);
  plan(3);
  plan(4);
  ASSERT_EQ(handler_.problems.size(), 2U);
  EXPECT_THAT(handler_.problems[0], HasSubstr("a16w16 m=3 n=16 k=16 x=f32"));
  EXPECT_THAT(handler_.problems[1], HasSubstr("m=4"));
  EXPECT_EQ(handler_.file, folder_.file("online_tuning.csv"));
  EXPECT_NE(handler_.fallback, "");
  EXPECT_EQ(handler_.released, 0);
  ASSERT_EQ(gemmtune_context_set_miss_handler(context_, nullptr), GEMMTUNE_OK);
  EXPECT_EQ(handler_.released, 1);
  plan(5);
  EXPECT_EQ(handler_.problems.size(), 2U);
}

TEST_F(CMiss, TheContextsEndReleasesTheHandler) {
  const std::string file = folder_.file("mine.csv");
  given_.file = file.c_str();
  ASSERT_EQ(gemmtune_context_set_miss_handler(context_, &given_), GEMMTUNE_OK);
  plan(3);
  EXPECT_EQ(handler_.file, file);
  gemmtune_context_destroy(context_);
  context_ = nullptr;
  EXPECT_EQ(handler_.released, 1);
}

TEST_F(CMiss, LinesReachTheContextsLog) {
  EXPECT_EQ(gemmtune_context_log(context_, 1, "a line of the engine"), GEMMTUNE_OK);
  EXPECT_THAT(lines_, Contains("a line of the engine"));
  EXPECT_EQ(gemmtune_context_log(context_, 4, "x"), GEMMTUNE_INVALID_ARGUMENT);
  EXPECT_THAT(gemmtune_last_error(), HasSubstr("level is 4, expected 0 to 3"));
  EXPECT_EQ(gemmtune_context_log(context_, -1, "x"), GEMMTUNE_INVALID_ARGUMENT);
}

TEST(CVersion, IsThreeNumbers) {
  EXPECT_THAT(gemmtune_version(), ::testing::MatchesRegex("[0-9]+[.][0-9]+[.][0-9]+"));
}

}  // namespace
}  // namespace gemmtune
