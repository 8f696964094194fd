#include "base/file_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstring>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "base/interrupt.h"
#include "base/log.h"
#include "base/text.h"

namespace gemmtune {
namespace {

constexpr std::string_view holder_mark = "locked by process ";
constexpr std::size_t max_holder_bytes = 512;
constexpr std::size_t max_command_bytes = 160;
constexpr auto poll_interval = std::chrono::milliseconds(100);  // of interrupted()
constexpr double seconds_after_interrupt = 2;

std::string host_name() {
  std::array<char, HOST_NAME_MAX + 1> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

std::string text_behind(int descriptor) {
  std::string text(max_holder_bytes, '\0');
  const ssize_t count = pread(descriptor, text.data(), text.size(), 0);
  text.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  return text;
}

/// Leaves alone what is not known to be a lock's text: the path may be a file of somebody else. What cannot be
/// written is missing in a message, no more.
void write_holder(int descriptor, std::int64_t owner) {
  struct stat information {};
  if (fstat(descriptor, &information) != 0 || information.st_nlink != 1) return;
  const std::string old = text_behind(descriptor);
  if (!old.empty() && !old.starts_with(holder_mark)) return;
  const std::string text =
      fmt::format("{}{} on {}\n", holder_mark, owner != 0 ? owner : getpid(), host_name());
  if (old == text) return;
  if (pwrite(descriptor, text.data(), text.size(), 0) == static_cast<ssize_t>(text.size())) {
    (void)!ftruncate(descriptor, static_cast<off_t>(text.size()));
  }
}

/// The words of a process of this machine, with blanks between; empty if there is no such process.
std::string command_of(std::string_view pid) {
  std::ifstream file(fmt::format("/proc/{}/cmdline", pid), std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  std::string words = content.str();
  for (char& letter : words)
    if (letter == '\0') letter = ' ';
  words.resize(std::min(words.find_last_not_of(' ') + 1, max_command_bytes));
  return words;
}

/// The words of the holder's line behind the mark, "4711 on node3"; empty if the file has none.
std::vector<std::string> holder_words(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  if (!line.starts_with(holder_mark) || line.size() > max_holder_bytes) return {};
  std::vector<std::string> words;
  for (const auto word : split(std::string_view(line).substr(holder_mark.size()), ' '))
    words.emplace_back(word);
  if (words.size() != 3 || !parse_integer(words[0])) return {};
  return words;
}

/// Read-only if the file is another user's, which is enough for flock().
Result<int> open_lock(const std::string& path) {
  constexpr int always = O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY;
  int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | always, 0666);
  if (descriptor < 0 && (errno == EACCES || errno == EROFS)) {
    descriptor = ::open(path.c_str(), O_RDONLY | always);
  }
  if (descriptor < 0 && errno == ELOOP) {
    return Status::io("{}: is a link, expected a lock file; remove it", path);
  }
  if (descriptor < 0) return Status::io("{}: cannot open the lock file: {}", path, std::strerror(errno));
  struct stat information {};
  if (::fstat(descriptor, &information) == 0 && S_ISREG(information.st_mode)) return descriptor;
  ::close(descriptor);
  return Status::io("{}: not a regular file, expected a lock file", path);
}

Status lock_failure(const std::string& path, int error) {
  const auto code = error == ENOMEM ? StatusCode::out_of_memory : StatusCode::io_error;
  return {code, fmt::format("{}: cannot lock: {}", path, std::strerror(error))};
}

/// Blocks, as the calling thread could not be ended: a second thread waits for the lock, the caller for both
/// the lock and interrupts. Trying again and again instead would disturb what the holder is timing.
class BlockingLock {
 public:
  /// Takes the descriptor, which is -1 from then on; an exception leaves it.
  explicit BlockingLock(int& descriptor) : state_(std::make_shared<State>()) {
    state_->descriptor = std::exchange(descriptor, -1);
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);  // signals are for the threads of the program
    try {
      thread_ = std::thread([state = state_] { wait_for_lock(*state); });
    } catch (const std::system_error&) {
      finish(*state_, EAGAIN);
    } catch (const std::bad_alloc&) {
      finish(*state_, ENOMEM);
    }
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }
  ~BlockingLock() {
    if (!joined_) abandon();
  }
  BlockingLock(const BlockingLock&) = delete;
  BlockingLock& operator=(const BlockingLock&) = delete;

  /// True once the lock is had or an error came.
  bool wait() {
    std::unique_lock guard(state_->mutex);
    return state_->changed.wait_for(guard, poll_interval, [&] { return state_->done; });
  }
  /// Requires wait(): the error, 0 for none; gives the descriptor back.
  int join(int& descriptor) {
    if (thread_.joinable()) thread_.join();
    joined_ = true;
    descriptor = state_->descriptor;
    return state_->error;
  }

 private:
  struct State {
    std::mutex mutex;
    std::condition_variable changed;
    int descriptor = -1;
    bool done = false;
    int error = 0;
    bool abandoned = false;
  };

  /// The thread stays behind until it has the lock, and gives it back.
  void abandon() {
    bool done = false;
    {
      const std::lock_guard guard(state_->mutex);
      state_->abandoned = true;
      done = state_->done;
    }
    if (done) release(state_->descriptor);
    if (thread_.joinable()) thread_.detach();
  }

  static void release(int descriptor) {
    ::flock(descriptor, LOCK_UN);
    ::close(descriptor);
  }
  static void finish(State& state, int error) {
    const std::lock_guard guard(state.mutex);
    state.done = true;
    state.error = error;
    if (state.abandoned) release(state.descriptor);
    state.changed.notify_one();
  }
  static void wait_for_lock(State& state) {
    int error = 0;
    do {
      error = ::flock(state.descriptor, LOCK_EX) == 0 ? 0 : errno;
    } while (error == EINTR);
    finish(state, error);
  }

  std::shared_ptr<State> state_;
  std::thread thread_;
  bool joined_ = false;
};

/// An interrupt and an exception leave -1 as descriptor.
Status wait_for(int& descriptor, const std::string& path) {
  const bool was_interrupted = interrupted();
  BlockingLock lock(descriptor);
  LockWaitLog wait_log(path);
  while (!lock.wait()) {
    wait_log.tick();
    if (!interrupted() || (was_interrupted && wait_log.seconds() < seconds_after_interrupt)) continue;
    return Status::unsupported("{}: interrupted while waiting for {}", path, describe_lock_holder(path));
  }
  const int error = lock.join(descriptor);
  return error == 0 ? Status() : lock_failure(path, error);
}

}  // namespace

std::optional<std::int64_t> lock_holder(const std::string& path) {
  const auto words = holder_words(path);
  if (words.empty() || words[2] != host_name()) return std::nullopt;
  return parse_integer(words[0]);
}

std::string describe_lock_holder(const std::string& path) {
  constexpr const char* unknown = "another process";
  const auto words = holder_words(path);
  if (words.empty()) return unknown;
  const std::string process = fmt::format("process {} on {}", words[0], words[2]);
  if (words[2] != host_name()) return process;
  const std::string command = command_of(words[0]);
  return command.empty() ? unknown : fmt::format("{} ({})", process, command);
}

void LockWaitLog::tick() {
  if (seconds() < next_) return;
  log(LogLevel::warning, "{}: waiting for {}, which has the lock", path_, describe_lock_holder(path_));
  next_ = next_ < 60 ? 60 : next_ + 600;
}

Result<std::optional<FileLock>> FileLock::try_acquire(const std::string& path, std::int64_t owner) {
  GEMMTUNE_TRY(const auto opened, open_lock(path));
  FileLock lock(opened);
  if (::flock(lock.descriptor_, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK || errno == EINTR) return std::optional<FileLock>();
    return lock_failure(path, errno);
  }
  write_holder(lock.descriptor_, owner);
  return std::optional(std::move(lock));
}

Result<FileLock> FileLock::acquire(const std::string& path, std::int64_t owner) {
  GEMMTUNE_TRY(auto free, try_acquire(path, owner));
  if (free) return std::move(*free);
  GEMMTUNE_TRY(const auto opened, open_lock(path));
  FileLock lock(opened);
  GEMMTUNE_RETURN_IF_ERROR(wait_for(lock.descriptor_, path));
  write_holder(lock.descriptor_, owner);
  return lock;
}

Status FileLock::check(const std::string& path) {
  GEMMTUNE_TRY(const auto opened, open_lock(path));
  ::close(opened);
  return {};
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  // Closing would not do where another thread has forked meanwhile: the child holds the same lock.
  ::flock(descriptor_, LOCK_UN);
  ::close(descriptor_);
}

}  // namespace gemmtune
