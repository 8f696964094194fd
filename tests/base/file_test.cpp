#include "base/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "gemmtune_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  std::size_t entries() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }
  fs::path folder_;
};

TEST_F(FileTest, WritesReadsAndKeepsTheMode) {
  ASSERT_TRUE(write_file_atomically(path("a"), "one").ok());
  ::chmod(path("a").c_str(), 0600);
  ASSERT_TRUE(write_file_atomically(path("a"), "two").ok());
  EXPECT_EQ(*read_file(path("a")), "two");
  struct stat information {};
  ASSERT_EQ(::stat(path("a").c_str(), &information), 0);
  EXPECT_EQ(information.st_mode & 07777, 0600U);
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, FollowsLinks) {
  ASSERT_TRUE(write_file_atomically(path("real"), "one").ok());
  fs::create_symlink("real", folder_ / "link");
  ASSERT_TRUE(write_file_atomically(path("link"), "two").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(*read_file(path("real")), "two");
}

TEST_F(FileTest, RefusesFoldersAndNamesMissingFiles) {
  EXPECT_EQ(read_file(folder_.string()).code(), StatusCode::invalid_argument);
  EXPECT_EQ(write_file_atomically(folder_.string(), "x").code(), StatusCode::invalid_argument);
  const auto missing = read_file(path("missing"));
  EXPECT_EQ(missing.code(), StatusCode::not_found);
  EXPECT_NE(missing.message().find(path("missing")), std::string::npos);
  EXPECT_EQ(write_file_atomically(path("no/such/folder"), "x").code(), StatusCode::io_error);
}

TEST_F(FileTest, LimitsTheSize) {
  ASSERT_TRUE(write_file_atomically(path("a"), "0123456789").ok());
  EXPECT_EQ(read_file(path("a"), 9).code(), StatusCode::invalid_argument);
  EXPECT_TRUE(read_file(path("a"), 10).ok());
}

TEST_F(FileTest, AFullDiskLeavesTheOldFileAndNoRest) {
  ASSERT_TRUE(write_file_atomically(path("a"), "old").ok());
  const pid_t child = ::fork();
  if (child == 0) {
    ::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{1000, 1000};
    ::setrlimit(RLIMIT_FSIZE, &limit);
    const Status status = write_file_atomically(path("a"), std::string(5000, 'x'));
    ::_exit(status.code() == StatusCode::io_error ? 7 : 0);
  }
  int result = 0;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  ASSERT_TRUE(WIFEXITED(result));
  EXPECT_EQ(WEXITSTATUS(result), 7);
  EXPECT_EQ(*read_file(path("a")), "old");
  EXPECT_EQ(entries(), 1U);
}

TEST_F(FileTest, ANewFileFollowsTheUmask) {
  const auto mode_of = [&](const std::string& name) {
    struct stat information {};
    EXPECT_EQ(::stat(path(name).c_str(), &information), 0);
    return information.st_mode & 07777;
  };
  const mode_t before = ::umask(0027);
  ASSERT_TRUE(write_file_atomically(path("private"), "one").ok());
  ::umask(0002);
  ASSERT_TRUE(write_file_atomically(path("shared"), "one").ok());
  ASSERT_TRUE(write_file_atomically(path("private"), "two").ok());
  ::umask(before);
  EXPECT_EQ(mode_of("private"), 0640U);  // as it was, whatever the umask is now
  EXPECT_EQ(mode_of("shared"), 0664U);
}

TEST_F(FileTest, ALinkToNothingIsFollowed) {
  fs::create_directory(folder_ / "data");
  fs::create_symlink("data/real", folder_ / "link");
  fs::create_symlink("link", folder_ / "second");
  EXPECT_EQ(resolve_links(path("second")), fs::canonical(folder_).string() + "/data/real");
  ASSERT_TRUE(write_file_atomically(path("second"), "one").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "link"));
  EXPECT_EQ(*read_file(path("data/real")), "one");
  fs::create_symlink("gone/real", folder_ / "nowhere");
  EXPECT_EQ(write_file_atomically(path("nowhere"), "x").code(), StatusCode::io_error);
  EXPECT_TRUE(fs::is_symlink(folder_ / "nowhere"));
  fs::create_symlink("circle", folder_ / "circle");
  EXPECT_FALSE(write_file_atomically(path("circle"), "x").ok());
  EXPECT_TRUE(fs::is_symlink(folder_ / "circle"));
}

}  // namespace
}  // namespace gemmtune
