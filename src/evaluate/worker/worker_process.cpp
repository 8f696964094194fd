#include "evaluate/worker/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <string_view>
#include <thread>
#include <utility>

namespace gemmtune {
namespace {

constexpr std::size_t max_last_words = 2000;
constexpr int above_ours = 16;  // descriptors are moved here before they take their fixed places
constexpr double seconds_to_end = 2;

/// A descriptor that is closed unless it was taken.
class Descriptor {
 public:
  explicit Descriptor(int value = -1) : value_(value) {}
  ~Descriptor() {
    if (value_ >= 0) close(value_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return value_; }
  int take() { return std::exchange(value_, -1); }
  void reset(int value) {
    if (value_ >= 0) close(value_);
    value_ = value;
  }

 private:
  int value_;
};

struct Ends {
  Descriptor ours;
  Descriptor theirs;
};

Status make_socket(Ends& ends) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
    return Status::io("no socket for a worker: {}", std::strerror(errno));
  ends.ours.reset(pair[0]);
  ends.theirs.reset(pair[1]);
  return {};
}

Status make_pipe(Ends& ends) {
  int pair[2];
  if (pipe2(pair, O_CLOEXEC) != 0) return Status::io("no pipe for a worker: {}", std::strerror(errno));
  ends.ours.reset(pair[0]);
  ends.theirs.reset(pair[1]);
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  return {};
}

/// posix_spawn's lists; the first error of all calls is kept.
class Spawn {
 public:
  Spawn() {
    note(posix_spawn_file_actions_init(&actions_));
    note(posix_spawnattr_init(&attributes_));
  }
  ~Spawn() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  Spawn(const Spawn&) = delete;
  Spawn& operator=(const Spawn&) = delete;

  void open_null(int target) {
    note(posix_spawn_file_actions_addopen(&actions_, target, "/dev/null", O_RDONLY, 0));
  }
  void copy(int source, int target) { note(posix_spawn_file_actions_adddup2(&actions_, source, target)); }
  void close_from(int first) { note(posix_spawn_file_actions_addclosefrom_np(&actions_, first)); }
  void block(std::initializer_list<int> signals) {
    sigset_t mask;
    sigemptyset(&mask);
    for (const int signal : signals) sigaddset(&mask, signal);
    note(posix_spawnattr_setsigmask(&attributes_, &mask));
    note(posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK));
  }
  /// 0, or what went wrong, an errno.
  int run(pid_t& pid, char* const* words) {
    if (error_ == 0) note(posix_spawn(&pid, words[0], &actions_, &attributes_, words, environ));
    return error_;
  }

 private:
  void note(int error) {
    if (error_ == 0) error_ = error;
  }

  posix_spawn_file_actions_t actions_;
  posix_spawnattr_t attributes_;
  int error_ = 0;
};

/// The program as a process with `socket`, `outputs` and `page` in their places and no other descriptor. Not by
/// fork(): that calls what libraries have registered (pthread_atfork), and OpenBLAS waits there for ever for
/// threads that it could not start for lack of memory. The worker unblocks the signals once it ignores them.
Result<pid_t> spawn(const WorkerLaunch& launch, int socket, int outputs, int page) {
  // Above the places, so that no copy overwrites what another one is made of.
  const Descriptor high_socket(fcntl(socket, F_DUPFD_CLOEXEC, above_ours));
  const Descriptor high_outputs(fcntl(outputs, F_DUPFD_CLOEXEC, above_ours));
  const Descriptor high_page(fcntl(page, F_DUPFD_CLOEXEC, above_ours));
  if (high_socket.get() < 0 || high_outputs.get() < 0 || high_page.get() < 0) {
    return Status::io("{}: no worker could be started: {}", launch.program, std::strerror(errno));
  }
  Spawn spawn;
  spawn.open_null(STDIN_FILENO);
  spawn.copy(high_outputs.get(), STDOUT_FILENO);
  spawn.copy(high_outputs.get(), STDERR_FILENO);
  spawn.copy(high_socket.get(), worker_socket);
  spawn.copy(high_page.get(), worker_page);
  spawn.close_from(worker_page + 1);
  spawn.block({SIGINT, SIGTERM});
  std::vector<char*> words{const_cast<char*>(launch.program.c_str())};
  for (const std::string& argument : launch.arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  pid_t pid = 0;
  const int error = spawn.run(pid, words.data());
  if (error == 0) return pid;
  return Status::io("{}: no worker could be started: {}", launch.program, std::strerror(error));
}

std::string signal_name(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  const char* description = sigdescr_np(signal);
  return fmt::format(
      "{} ({})",
      abbreviation == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", abbreviation),
      description == nullptr ? "unknown" : description);
}

}  // namespace

std::string ending_text(const WorkerEnding& ending) {
  std::string text = ending.signal != 0
                         ? signal_name(ending.signal)
                         : fmt::format("the process ended itself with exit code {}", ending.exit_code);
  if (!ending.last_words.empty()) text += "; its last words: " + ending.last_words;
  return text;
}

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const WorkerLaunch& launch) {
  Ends socket;
  Ends outputs;
  GEMMTUNE_RETURN_IF_ERROR(make_socket(socket));
  GEMMTUNE_RETURN_IF_ERROR(make_pipe(outputs));
  auto page = WorkerPage::make();
  if (!page.ok()) return page.status();
  const auto pid = spawn(launch, socket.theirs.get(), outputs.theirs.get(), page->descriptor());
  if (!pid.ok()) return pid.status();
  return std::unique_ptr<WorkerProcess>(
      new WorkerProcess(*pid, socket.ours.take(), outputs.ours.take(), std::move(page).value()));
}

WorkerProcess::~WorkerProcess() {
  kill();
  reap(true);
  close(outputs_);
}

WorkerProcess::Event WorkerProcess::wait(double seconds, std::string& message) {
  std::array<pollfd, 2> waiting{
      {{channel_.descriptor(), POLLIN, 0}, {outputs_ended_ ? -1 : outputs_, POLLIN, 0}}};
  poll(waiting.data(), waiting.size(), static_cast<int>(seconds * 1e3));
  read_outputs();
  const bool connected = channel_.read_some();
  auto next = channel_.next();
  if (!next.ok()) return Event::ended;
  if (next->has_value()) {
    message = std::move(**next);
    return Event::message;
  }
  return connected ? Event::nothing : Event::ended;
}

std::size_t WorkerProcess::resident_bytes() const {
  const std::string path = fmt::format("/proc/{}/statm", pid_);
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return 0;
  std::size_t pages = 0;
  if (std::fscanf(file, "%*s %zu", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

void WorkerProcess::kill() {
  if (reap(false)) return;
  killed_ = ::kill(pid_, SIGKILL) == 0;
}

WorkerEnding WorkerProcess::ending() {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds_to_end);
  while (!reap(false) && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  kill();
  reap(true);
  read_outputs();
  WorkerEnding ending;
  const int status = status_.value_or(0);
  if (WIFSIGNALED(status)) ending.signal = WTERMSIG(status);
  if (WIFEXITED(status)) ending.exit_code = WEXITSTATUS(status);
  ending.killed_by_us = killed_;
  const std::size_t blank = last_words_.find_last_not_of(" \t\r\n");
  ending.last_words = last_words_.substr(0, blank == std::string::npos ? 0 : blank + 1);
  return ending;
}

void WorkerProcess::read_outputs() {
  std::array<char, 4096> piece;
  ssize_t got = read(outputs_, piece.data(), piece.size());
  for (; got > 0; got = read(outputs_, piece.data(), piece.size())) {
    last_words_.append(piece.data(), static_cast<std::size_t>(got));
    if (last_words_.size() > max_last_words) last_words_.erase(0, last_words_.size() - max_last_words);
  }
  if (got == 0) outputs_ended_ = true;
}

bool WorkerProcess::reap(bool wait) {
  if (status_) return true;
  int status = 0;
  pid_t ended = -1;
  do {
    ended = waitpid(pid_, &status, wait ? 0 : WNOHANG);
  } while (ended < 0 && errno == EINTR);
  if (ended == pid_) status_ = status;
  return ended != 0;
}

}  // namespace gemmtune
