#include "evaluate/worker/worker_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <utility>

namespace gemmtune {
namespace {

constexpr double seconds_to_end = 2;

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
Result<pid_t> spawn(const WorkerLaunch& launch, const Descriptor& socket, const Descriptor& outputs,
                    int page) {
  const Descriptor high_socket = lifted_copy(socket.get());
  const Descriptor high_outputs = lifted_copy(outputs.get());
  const Descriptor high_page = lifted_copy(page);
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

}  // namespace

Result<std::unique_ptr<WorkerProcess>> WorkerProcess::start(const WorkerLaunch& launch) {
  GEMMTUNE_TRY(auto socket, make_socket());
  GEMMTUNE_TRY(auto outputs, make_pipe());
  GEMMTUNE_TRY(auto page, WorkerPage::make());
  GEMMTUNE_TRY(const auto pid, spawn(launch, socket.theirs, outputs.theirs, page.descriptor()));
  return std::unique_ptr<WorkerProcess>(
      new WorkerProcess(pid, socket.ours.take(), std::move(outputs.ours), std::move(page)));
}

WorkerProcess::~WorkerProcess() { process_.wait(0); }

WorkerProcess::Event WorkerProcess::wait(double seconds, std::string& message) {
  std::array<pollfd, 2> waiting{
      {{channel_.descriptor(), POLLIN, 0}, {outputs_ended_ ? -1 : outputs_.get(), POLLIN, 0}}};
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
  const std::string path = fmt::format("/proc/{}/statm", pid());
  std::FILE* file = std::fopen(path.c_str(), "re");
  if (file == nullptr) return 0;
  std::size_t pages = 0;
  if (std::fscanf(file, "%*s %zu", &pages) != 1) pages = 0;
  std::fclose(file);
  return pages * static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
}

WorkerEnding WorkerProcess::ending() {
  const int status = process_.wait(seconds_to_end);
  read_outputs();
  return {process_ending(status, last_words_), process_.was_killed()};
}

void WorkerProcess::read_outputs() {
  if (!last_words_.read_from(outputs_.get())) outputs_ended_ = true;
}

}  // namespace gemmtune
