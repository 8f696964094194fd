// The log: the host's sink, else stderr.
#include "base/log.h"

#include <gtest/gtest.h>

#include <string>

namespace gemmtune {
namespace {

class Log : public ::testing::Test {
 protected:
  ~Log() override { set_log_sink(nullptr, nullptr); }
  static void keep(LogLevel, std::string_view line, void* lines) {
    *static_cast<std::string*>(lines) += std::string(line) + ";";
  }
  template <typename Body>
  static std::string on_stderr(Body&& body) {
    ::testing::internal::CaptureStderr();
    body();
    return ::testing::internal::GetCapturedStderr();
  }

  std::string lines_;
};

TEST_F(Log, WithoutASinkWarningsGoToStderr) {
  EXPECT_EQ(on_stderr([] {
              log(LogLevel::info, "no {}", 1);
              log(LogLevel::warning, "rows {}", 2);
              log_line(LogLevel::error, "a\x1b[2J");
            }),
            "gemmtune: warning: rows 2\ngemmtune: error: a\\x1b[2J\n");
  EXPECT_FALSE(log_enabled(LogLevel::info));
  EXPECT_TRUE(log_enabled(LogLevel::warning));
}

TEST_F(Log, ASinkTakesEverythingUntilItIsTakenAway) {
  set_log_sink(keep, &lines_);
  EXPECT_EQ(on_stderr([] {
              log_line(LogLevel::debug, "a");
              log_line(LogLevel::error, "b", true);
            }),
            "");
  EXPECT_EQ(lines_, "a;b;");
  set_log_sink(nullptr, nullptr);
  EXPECT_EQ(on_stderr([] { log_line(LogLevel::error, "c"); }), "gemmtune: error: c\n");
  EXPECT_EQ(lines_, "a;b;");
}

TEST_F(Log, StderrLeavesOutWhatSomebodyElseHasHeard) {
  EXPECT_EQ(on_stderr([] { log_line(LogLevel::error, "c", true); }), "");
}

TEST_F(Log, ASinkMayLogAndTakeItselfAway) {
  static std::string seen;
  seen.clear();
  set_log_sink(
      [](LogLevel level, std::string_view line, void*) {
        seen += std::string(line) + ";";
        if (line != "first") return;
        log_line(level, "second");
        set_log_sink(nullptr, nullptr);
      },
      nullptr);
  log_line(LogLevel::error, "first");
  EXPECT_EQ(seen, "first;second;");
  EXPECT_EQ(on_stderr([] { log_line(LogLevel::error, "third"); }), "gemmtune: error: third\n");
}

}  // namespace
}  // namespace gemmtune
