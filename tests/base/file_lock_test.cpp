#include "base/file_lock.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/log.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class FileLockTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = fs::temp_directory_path() / "gemmtune_lock_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { fs::remove_all(folder_); }
  std::string path(const std::string& name) const { return (folder_ / name).string(); }

  /// A child that holds the lock until it is killed.
  static pid_t holder_of(const std::string& path) {
    int ready[2];
    EXPECT_EQ(::pipe(ready), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto lock = FileLock::acquire(path);
      if (!lock.ok() || ::write(ready[1], "x", 1) != 1) ::_exit(1);
      for (;;) ::pause();
    }
    char byte = 0;
    EXPECT_EQ(::read(ready[0], &byte, 1), 1);
    ::close(ready[0]);
    ::close(ready[1]);
    return child;
  }
  static void end(pid_t child) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }

  fs::path folder_;
};

TEST_F(FileLockTest, ExcludesProcesses) {
  const std::string counter = path("counter");
  ASSERT_TRUE(write_file_atomically(counter, "0").ok());
  constexpr int processes = 4;
  constexpr int rounds = 20;
  for (int i = 0; i < processes; ++i) {
    if (::fork() == 0) {
      for (int round = 0; round < rounds; ++round) {
        const auto lock = FileLock::acquire(path("lock"));
        const auto value = std::stoi(*read_file(counter));
        if (!write_file_atomically(counter, std::to_string(value + 1)).ok()) ::_exit(1);
      }
      ::_exit(0);
    }
  }
  for (int i = 0; i < processes; ++i) {
    int result = 0;
    ASSERT_GT(::wait(&result), 0);
    EXPECT_EQ(result, 0);
  }
  EXPECT_EQ(*read_file(counter), std::to_string(processes * rounds));
}

TEST_F(FileLockTest, ExcludesThreads) {
  // Read and written in two steps, which only the lock keeps together; atomic, as the thread sanitizer does not know flock.
  std::atomic<int> counter{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int round = 0; round < 50; ++round) {
        const auto lock = FileLock::acquire(path("lock"));
        ASSERT_TRUE(lock.ok()) << lock.message();
        const int before = counter;
        counter = before + 1;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(counter, 200);
}

TEST_F(FileLockTest, AChildForkedMeanwhileDoesNotKeepIt) {
  pid_t child = 0;
  {
    const auto lock = FileLock::acquire(path("lock"));
    ASSERT_TRUE(lock.ok()) << lock.message();
    child = ::fork();
    if (child == 0) {
      ::pause();
      ::_exit(0);
    }
  }
  const int descriptor = ::open(path("lock").c_str(), O_RDWR);
  EXPECT_EQ(::flock(descriptor, LOCK_EX | LOCK_NB), 0);
  ::close(descriptor);
  end(child);
}

TEST_F(FileLockTest, ALongWaitNamesTheHolder) {
  struct Said {
    std::string text;
    std::atomic<bool> is_there{false};
  } said;
  set_log_sink(
      [](LogLevel, std::string_view line, void* context) {
        auto* kept = static_cast<Said*>(context);
        kept->text += line;
        kept->is_there = true;
      },
      &said);
  const pid_t child = holder_of(path("lock"));
  std::thread ends_it([&] {
    for (int i = 0; i < 6000 && !said.is_there; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    end(child);
  });
  const auto lock = FileLock::acquire(path("lock"));
  ends_it.join();
  set_log_sink(nullptr, nullptr);
  ASSERT_TRUE(lock.ok()) << lock.message();
  EXPECT_THAT(said.text, StartsWith(path("lock") + ": waiting for process " + std::to_string(child)));
  EXPECT_THAT(said.text, HasSubstr("("));  // its command
}

TEST_F(FileLockTest, TheHolderMayBeNamedAsAnotherProcess) {
  auto lock = FileLock::try_acquire(path("lock"), ::getppid());
  ASSERT_TRUE(lock.ok() && *lock);
  EXPECT_EQ(lock_holder(path("lock")), ::getppid());
  EXPECT_THAT(describe_lock_holder(path("lock")),
              StartsWith("process " + std::to_string(::getppid()) + " on "));
  const auto second = FileLock::try_acquire(path("lock"));
  ASSERT_TRUE(second.ok()) << second.message();
  EXPECT_FALSE(*second) << "it does not wait";
  EXPECT_EQ(lock_holder(path("lock")), ::getppid()) << "who did not get it is not named";
  lock->reset();
  EXPECT_TRUE(*FileLock::try_acquire(path("lock")));
  EXPECT_EQ(lock_holder(path("lock")), ::getpid());
  EXPECT_FALSE(lock_holder(path("missing")));
}

TEST_F(FileLockTest, AShortWaitIsNotWorthALine) {
  std::string said;
  set_log_sink(
      [](LogLevel, std::string_view line, void* context) { *static_cast<std::string*>(context) += line; },
      &said);
  const pid_t child = holder_of(path("lock"));
  std::thread ends_it([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    end(child);
  });
  const double begin = steady_seconds();
  EXPECT_TRUE(FileLock::acquire(path("lock")).ok());
  const double waited = steady_seconds() - begin;
  ends_it.join();
  set_log_sink(nullptr, nullptr);
  if (waited < 0.9) {  // else a busy machine made it long
    EXPECT_EQ(said, "");
  }
}

/// In a child, because the flag of interrupts stays set.
TEST_F(FileLockTest, AnInterruptEndsTheWaitAndTheLockStaysItsHolders) {
  const pid_t holder = holder_of(path("lock"));
  const pid_t waiter = ::fork();
  if (waiter == 0) {
    watch_for_interrupts();
    std::thread signals([] {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      ::kill(::getpid(), SIGINT);
    });
    const auto lock = FileLock::acquire(path("lock"));
    signals.join();
    const bool right = lock.code() == StatusCode::unsupported &&
                       lock.message().find("interrupted while waiting for process") != std::string::npos;
    // Afterwards a free lock is had as ever, and one that is not free is waited for a moment.
    const bool free = FileLock::acquire(path("free")).ok();
    const double begin = steady_seconds();
    const bool again = FileLock::acquire(path("lock")).ok();
    const double waited = steady_seconds() - begin;
    ::_exit(right && free && !again && waited > 1 && waited < 200 ? 7 : 0);
  }
  int result = 0;
  ASSERT_EQ(::waitpid(waiter, &result, 0), waiter);
  ASSERT_TRUE(WIFEXITED(result));
  EXPECT_EQ(WEXITSTATUS(result), 7);
  const int descriptor = ::open(path("lock").c_str(), O_RDWR);
  EXPECT_NE(::flock(descriptor, LOCK_EX | LOCK_NB), 0);
  end(holder);
  EXPECT_EQ(::flock(descriptor, LOCK_EX | LOCK_NB), 0);
  ::close(descriptor);
}

TEST_F(FileLockTest, LinksAndPipesAreNoLocks) {
  ASSERT_TRUE(write_file_atomically(path("victim"), "important").ok());
  fs::create_symlink("victim", folder_ / "link");
  const auto link = FileLock::acquire(path("link"));
  EXPECT_EQ(link.code(), StatusCode::io_error);
  EXPECT_THAT(link.message(), HasSubstr("is a link"));
  fs::create_symlink("nothing", folder_ / "dangling");
  EXPECT_FALSE(FileLock::acquire(path("dangling")).ok());
  EXPECT_FALSE(fs::exists(path("nothing")));
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(FileLock::acquire(path("pipe")).ok());
  EXPECT_FALSE(FileLock::acquire(folder_.string()).ok());
  EXPECT_EQ(*read_file(path("victim")), "important");
}

TEST_F(FileLockTest, WritesIntoNobodysFile) {
  ASSERT_TRUE(write_file_atomically(path("notes.lock"), "my notes\n").ok());
  EXPECT_TRUE(FileLock::acquire(path("notes.lock")).ok());
  EXPECT_EQ(*read_file(path("notes.lock")), "my notes\n");
  ASSERT_TRUE(write_file_atomically(path("empty"), "").ok());
  fs::create_hard_link(path("empty"), path("second"));
  EXPECT_TRUE(FileLock::acquire(path("second")).ok());
  EXPECT_EQ(*read_file(path("empty")), "");
  EXPECT_TRUE(FileLock::acquire(path("own")).ok());
  EXPECT_THAT(*read_file(path("own")), StartsWith("locked by process " + std::to_string(::getpid())));
}

TEST_F(FileLockTest, ATryDoesNotWait) {
  {
    const auto first = FileLock::try_acquire(path("a.lock"));
    ASSERT_TRUE(first.ok()) << first.message();
    ASSERT_TRUE(first->has_value());
    const auto second = FileLock::try_acquire(path("a.lock"));
    ASSERT_TRUE(second.ok()) << second.message();
    EXPECT_FALSE(second->has_value());
  }
  EXPECT_TRUE(FileLock::try_acquire(path("a.lock"))->has_value());
  EXPECT_EQ(FileLock::try_acquire(path("no/a.lock")).code(), StatusCode::io_error);
}

}  // namespace
}  // namespace gemmtune
