#include "base/file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/folder.h"
#include "base/temporary_file.h"

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

/// A link of another user in a folder that others may write. Only root can make one.
class ForeignLinks : public FileTest {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "only root gives a link to another user";
    FileTest::SetUp();
    fs::create_directory(folder_ / "shared");
    ASSERT_EQ(::chmod(path("shared").c_str(), 01777), 0);
    fs::create_directory(folder_ / "own");
    ASSERT_TRUE(write_file_atomically(path("own/file"), "mine").ok());
  }
  void link(const std::string& name, const std::string& target, uid_t owner) const {
    fs::create_symlink(target, folder_ / name);
    ASSERT_EQ(::lchown(path(name).c_str(), owner, owner), 0);
  }
  static constexpr uid_t other = 65534;
};

TEST_F(ForeignLinks, AreNotFollowedByWhatIsWritten) {
  link("shared/out", path("own/file"), other);
  link("shared/folder", path("own"), other);
  for (const char* name : {"shared/out", "shared/folder/file", "own/../shared/out"}) {
    const Status refused = write_file_atomically(path(name), "theirs");
    EXPECT_EQ(refused.code(), StatusCode::invalid_argument) << name;
    EXPECT_NE(refused.message().find("is a link of user 65534 in a folder that others may write"),
              std::string::npos);
  }
  EXPECT_EQ(*read_file(path("own/file")), "mine");
}

TEST_F(ForeignLinks, OfThisUserOfTheFoldersOwnerAndInAFolderOfOneUserAreFollowed) {
  link("shared/own", path("own/file"), 0);
  link("own/others", path("own/file"), other);  // nobody else could have put it there
  ASSERT_EQ(::chown(path("shared").c_str(), other, other), 0);
  link("shared/owners", path("own/file"), other);
  for (const char* name : {"shared/own", "own/others", "shared/owners"})
    EXPECT_TRUE(write_file_atomically(path(name), name).ok()) << name;
  EXPECT_EQ(*read_file(path("own/file")), "shared/owners");
}

TEST_F(FileTest, WhatKilledProcessesLeftIsRemovedAndWhatOthersWriteStays) {
  const std::string dead = path("a.csv.0a1b2c.tmp");
  for (const std::string& left :
       {dead, path("b.csv.0a1b2c.tmp"), path("a.csv.notes1.tmp"), path("a.csv.tmp")})
    std::ofstream(left) << "half";
  auto living = TemporaryFile::beside(path("a.csv"));
  ASSERT_TRUE(living.ok());
  EXPECT_FALSE(fs::exists(dead));
  ASSERT_TRUE(write_file_atomically(path("a.csv"), "whole").ok());
  EXPECT_TRUE(fs::exists(living->path())) << "its process lives";
  EXPECT_TRUE(fs::exists(path("b.csv.0a1b2c.tmp"))) << "another output's";
  EXPECT_TRUE(fs::exists(path("a.csv.notes1.tmp")) && fs::exists(path("a.csv.tmp"))) << "of other names";
  EXPECT_EQ(remove_leftovers(folder_.string()), 1);
  EXPECT_FALSE(fs::exists(path("b.csv.0a1b2c.tmp")));
  EXPECT_TRUE(fs::exists(living->path()));
}

TEST_F(FileTest, AKilledWriterLeavesNothingToTheNext) {
  const pid_t child = ::fork();
  if (child == 0) {
    const auto half = TemporaryFile::beside(path("a.csv"));
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(entries(), 1U) << "the kill left it";
  ASSERT_TRUE(write_file_atomically(path("a.csv"), "whole").ok());
  EXPECT_EQ(entries(), 1U);
  EXPECT_EQ(*read_file(path("a.csv")), "whole");
}

TEST_F(FileTest, OfAFolderAPipeIsNoFileAndIsNotWaitedFor) {
  ASSERT_EQ(::mkfifo(path("pipe.json").c_str(), 0600), 0);
  ASSERT_TRUE(write_file_atomically(path("a.json"), "{}").ok());
  fs::create_symlink("a.json", folder_ / "link.json");
  fs::create_directory(folder_ / "folder.json");
  EXPECT_EQ(files_in(folder_.string()), (std::vector{path("a.json"), path("link.json")}));
  EXPECT_EQ(read_regular_file(path("pipe.json")).code(), StatusCode::invalid_argument);
  EXPECT_FALSE(read_regular_file(path("link.json")).ok());
  EXPECT_EQ(*read_regular_file(path("a.json")), "{}");
}

TEST_F(FileTest, FoldersThatOthersMayWriteAreKnown) {
  EXPECT_EQ(why_others_may_write(folder_.string()), "");
  EXPECT_EQ(why_others_may_write(path("absent")), "");
  ASSERT_EQ(::chmod(folder_.c_str(), 0775), 0);
  EXPECT_EQ(why_others_may_write(folder_.string()), "its mode is 0775");
  ASSERT_EQ(::chmod(folder_.c_str(), 0755), 0);
  EXPECT_EQ(why_others_may_write(folder_.string()), "");
  if (::geteuid() != 0) return;
  ASSERT_EQ(::chown(folder_.c_str(), 65534, 65534), 0);
  EXPECT_EQ(why_others_may_write(folder_.string()), "its owner is user 65534");
}

TEST_F(FileTest, AnotherFileHasAnotherIdentity) {
  ASSERT_TRUE(write_file_atomically(path("a"), "one").ok());
  const std::string first = file_identity(path("a"));
  EXPECT_EQ(file_identity(path("a")), first);
  ASSERT_TRUE(write_file_atomically(path("a"), "three").ok());
  EXPECT_NE(file_identity(path("a")), first);
  EXPECT_EQ(file_identity(path("absent")), path("absent"));
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

TEST_F(FileTest, AppendsWithinAPageOnly) {
  ASSERT_TRUE(write_file_atomically(path("a"), "one\n").ok());
  auto appended = append_within_page(path("a"), 4, "two\n");
  ASSERT_TRUE(appended.ok()) << appended.message();
  EXPECT_TRUE(*appended);
  EXPECT_EQ(*read_file(path("a")), "one\ntwo\n");
  // Another size than was read, and text that would cross a page.
  EXPECT_FALSE(*append_within_page(path("a"), 4, "three\n"));
  EXPECT_FALSE(*append_within_page(path("a"), 8, std::string(4089, 'x')));
  EXPECT_EQ(*read_file(path("a")), "one\ntwo\n");
  EXPECT_TRUE(*append_within_page(path("a"), 8, std::string(4088, 'x')));
  EXPECT_EQ(read_file(path("a"))->size(), 4096U);
  EXPECT_EQ(append_within_page(path("none"), 4, "x").code(), StatusCode::io_error);
  EXPECT_TRUE(*append_within_page(path("new"), 0, "x")) << "an empty file and none are one";
  EXPECT_EQ(*read_file(path("new")), "x");
}

TEST_F(FileTest, LinesAreAddedAndOutAtOnce) {
  for (const char* line : {"one", "two"}) {
    auto file = LineFile::open(path("lines"));
    ASSERT_TRUE(file.ok()) << file.message();
    ASSERT_TRUE(file->write(line).ok());
    EXPECT_TRUE(read_file(path("lines"))->ends_with(std::string(line) + "\n"));
  }
  EXPECT_EQ(*read_file(path("lines")), "one\ntwo\n");
  EXPECT_EQ(LineFile::open(path("none/lines")).code(), StatusCode::io_error);
  auto full = LineFile::open("/dev/full");
  ASSERT_TRUE(full.ok()) << full.message();
  EXPECT_THAT(full->write("one").message(), ::testing::HasSubstr("/dev/full: No space left"));
}

}  // namespace
}  // namespace gemmtune
