// Publishing while the operating system refuses, processes die, and others write too.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <thread>

#include "formats/aiter/environment_json.h"
#include "formats/aiter/tuned_csv.h"
#include "scratch_folder.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

TunedEntry row(std::int64_t m, double us) {
  TunedEntry entry;
  entry.gfx = "x86-avx512";
  entry.cu_num = 2;
  entry.problem.m = m;
  entry.problem.n = 2048;
  entry.problem.k = 1024;
  entry.kernel_name = "tiled_r1_mr8";
  entry.us = us;
  entry.env = "abc12345";
  return entry;
}

/// Runs `body` in a child process; its exit status, or -1 where a signal ended it.
int in_child(const std::function<int()>& body) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(body());
  int status = 0;
  if (child < 0 || ::waitpid(child, &status, 0) != child) return -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

class PublishFailure : public ScratchTest {
 protected:
  std::string file() const { return path("tuned.csv"); }
  /// A table of some 60 KiB.
  void make_large() const {
    std::vector<TunedEntry> entries;
    for (int m = 1; m <= 500; ++m) entries.push_back(row(m, 5));
    ASSERT_TRUE(publish(file(), entries, {}).ok());
  }
};

TEST_F(PublishFailure, AFullDiskLeavesTheFileAsItWas) {
  make_large();
  const std::string before = content("tuned.csv");
  const std::size_t files_before = files();
  const int code = in_child([&] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{16384, 16384};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const Status status = publish(file(), {row(1000, 5)}, {});
    const bool told = status.code() == StatusCode::io_error &&
                      status.message().find("tuned.csv") != std::string::npos &&
                      status.message().find("File too large") != std::string::npos;
    return told ? 0 : 3;
  });
  EXPECT_EQ(code, 0);
  EXPECT_EQ(content("tuned.csv"), before);
  EXPECT_EQ(files(), files_before) << "a temporary file was left";
}

TEST_F(PublishFailure, ATinyFileSystemLeavesTheFileAsItWas) {
  const std::string small = path("small");
  fs::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=64k") != 0) {
    GTEST_SKIP() << "mounting a tmpfs is not permitted here";
  }
  const std::string target = small + "/tuned.csv";
  EXPECT_TRUE(publish(target, {row(1, 5)}, {}).ok());
  const std::string before = *read_file(target);
  std::vector<TunedEntry> many;
  for (int m = 2; m <= 1500; ++m) many.push_back(row(m, 5));
  const Status status = publish(target, many, {});
  EXPECT_EQ(status.code(), StatusCode::io_error);
  EXPECT_THAT(status.message(), HasSubstr("No space left"));
  EXPECT_EQ(*read_file(target), before);
  EXPECT_TRUE(publish(target, {row(2, 5)}, {}).ok());
  ::umount(small.c_str());
}

TEST_F(PublishFailure, AReadOnlyFolderIsNamed) {
  ASSERT_TRUE(publish(file(), {row(1, 5)}, {}).ok());
  const std::string before = content("tuned.csv");
  fs::permissions(folder_, fs::perms::owner_read | fs::perms::owner_exec | fs::perms::others_read |
                               fs::perms::others_exec);
  const int code = in_child([&] {
    // Root may write anywhere: become nobody.
    if (::geteuid() == 0 && ::setuid(65534) != 0) return 2;
    const Status status = publish(file(), {row(2, 5)}, {});
    const bool told = status.code() == StatusCode::io_error &&
                      status.message().find("tuned.csv") != std::string::npos &&
                      status.message().find("Permission denied") != std::string::npos;
    return told ? 0 : 3;
  });
  fs::permissions(folder_, fs::perms::owner_all);
  EXPECT_EQ(code, 0);
  EXPECT_EQ(content("tuned.csv"), before);
}

TEST_F(PublishFailure, AFolderAndAMissingFolderAreNamed) {
  fs::create_directory(path("out.csv"));
  const Status folder = publish(path("out.csv"), {row(1, 5)}, {});
  EXPECT_EQ(folder.code(), StatusCode::invalid_argument);
  EXPECT_THAT(folder.message(), HasSubstr("out.csv: is a folder"));
  EXPECT_FALSE(fs::exists(path("out.csv.lock")));
  const Status missing = publish(path("no/such/tuned.csv"), {row(1, 5)}, {});
  EXPECT_EQ(missing.code(), StatusCode::io_error);
  EXPECT_THAT(missing.message(), HasSubstr("No such file"));
}

TEST_F(PublishFailure, KillsLeaveAReadableFile) {
  make_large();
  for (int kill = 0; kill < 10; ++kill) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      PublishOptions options;
      options.environment_json = R"({"device": "one"})";
      for (int round = 0;; ++round) {
        if (!publish(file(), {row(1000 + round, 5), row(1 + round % 500, 1 + round)}, options).ok())
          ::_exit(1);
      }
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5 + 7 * kill));
    ASSERT_EQ(::kill(child, SIGKILL), 0);
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the child had stopped by itself";
    const auto read = read_tuned_csv(file(), {.strict = true});
    ASSERT_TRUE(read.ok()) << read.message();
    EXPECT_GE(read->entries.size(), 500U);
    EXPECT_TRUE(read_environment_json(file()).ok());
  }
  EXPECT_TRUE(publish(file(), {row(9999, 5)}, {}).ok()) << "the dead processes' lock is gone";
}

TEST_F(PublishFailure, FourProcessesLoseNoRow) {
  constexpr int processes = 4;
  constexpr int rows_each = 50;
  std::vector<pid_t> children;
  for (int process = 0; process < processes; ++process) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      PublishOptions options;
      for (int index = 0; index < rows_each; ++index) {
        TunedEntry entry = row(1 + index, 5);
        entry.cu_num = 1 + process;
        entry.env = "env" + std::to_string(process);
        options.environment_json = "{\"process\": " + std::to_string(process) + "}";
        if (!publish(file(), {entry}, options).ok()) ::_exit(1);
      }
      ::_exit(0);
    }
    children.push_back(child);
  }
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  }
  const auto read = read_tuned_csv(file(), {.strict = true});
  ASSERT_TRUE(read.ok()) << read.message();
  std::set<std::pair<int, std::int64_t>> seen;
  for (const TunedEntry& entry : read->entries) seen.emplace(entry.cu_num, entry.problem.m);
  EXPECT_EQ(read->entries.size(), static_cast<std::size_t>(processes * rows_each));
  EXPECT_EQ(seen.size(), static_cast<std::size_t>(processes * rows_each));
  EXPECT_EQ(read_environment_json(file())->objects.size(), static_cast<std::size_t>(processes));
}

}  // namespace
}  // namespace gemmtune
