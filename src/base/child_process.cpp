#include "base/child_process.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <thread>

#include "base/text.h"

namespace gemmtune {
namespace {

constexpr std::size_t max_last_words = 2000;
constexpr int above_ours = 16;

std::string signal_name(int signal) {
  const char* abbreviation = sigabbrev_np(signal);
  const char* description = sigdescr_np(signal);
  return fmt::format(
      "{} ({})",
      abbreviation == nullptr ? fmt::format("signal {}", signal) : fmt::format("SIG{}", abbreviation),
      description == nullptr ? "unknown" : description);
}

}  // namespace

Result<ChannelEnds> make_socket() {
  std::array<int, 2> pair{};
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair.data()) != 0)
    return Status::io("no socket for a child process: {}", std::strerror(errno));
  return ChannelEnds{Descriptor(pair[0]), Descriptor(pair[1])};
}

Result<ChannelEnds> make_pipe() {
  std::array<int, 2> pair{};
  if (pipe2(pair.data(), O_CLOEXEC) != 0)
    return Status::io("no pipe for a child process: {}", std::strerror(errno));
  fcntl(pair[0], F_SETFL, O_NONBLOCK);
  return ChannelEnds{Descriptor(pair[0]), Descriptor(pair[1])};
}

bool receive_some(int socket, std::string& text) {
  std::array<char, 1 << 16> chunk;
  for (;;) {
    const ssize_t got = recv(socket, chunk.data(), chunk.size(), MSG_DONTWAIT);
    if (got > 0) {
      text.append(chunk.data(), static_cast<std::size_t>(got));
    } else if (got == 0) {
      return false;
    } else if (errno != EINTR) {
      return errno == EAGAIN || errno == EWOULDBLOCK;
    }
  }
}

std::string find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  const std::string folders = path == nullptr ? "/usr/local/bin:/usr/bin:/bin" : path;
  for (const std::string_view folder : split(folders, ':')) {
    if (!folder.starts_with('/')) continue;
    std::string program = fmt::format("{}/{}", folder, name);
    std::error_code error;
    if (std::filesystem::is_regular_file(program, error) && access(program.c_str(), X_OK) == 0)
      return program;
  }
  return {};
}

namespace {

/// Of a child of vfork(): does not return, and changes nothing of this process but `error`.
[[noreturn]] void become(char* const* words, std::span<const int> descriptors, std::size_t address_space,
                         volatile int& error) {
  const rlimit limit{address_space, address_space};
  // A terminal's Ctrl-C is for the parent to decide on.
  bool ready = prctl(PR_SET_PDEATHSIG, SIGKILL) == 0 && setpgid(0, 0) == 0 &&
               (address_space == 0 || setrlimit(RLIMIT_AS, &limit) == 0);
  for (std::size_t index = 0; ready && index < descriptors.size(); ++index)
    ready = dup2(descriptors[index], static_cast<int>(index)) >= 0;
  if (ready) {
    close_range(static_cast<unsigned>(descriptors.size()), ~0U, 0);
    execvp(words[0], words);
  }
  error = errno;
  _exit(127);
}

}  // namespace

// vfork(): fork() calls what libraries registered, of which OpenBLAS may wait for ever; posix_spawn() cannot ask for a signal at
// the parent's death.
pid_t start_program(char* const* words, std::span<const int> descriptors, std::size_t address_space) {
  volatile int error = 0;
  const pid_t pid = vfork();  // NOLINT(clang-analyzer-security.insecureAPI.vfork)
  if (pid == 0) become(words, descriptors, address_space, error);
  if (pid > 0 && error != 0) {
    waitpid(pid, nullptr, 0);
    errno = error;
    return -1;
  }
  return pid;
}

Descriptor lifted_copy(int descriptor) { return Descriptor(fcntl(descriptor, F_DUPFD_CLOEXEC, above_ours)); }

bool LastWords::read_from(int descriptor) {
  std::array<char, 4096> chunk;
  ssize_t got = read(descriptor, chunk.data(), chunk.size());
  for (; got > 0; got = read(descriptor, chunk.data(), chunk.size())) {
    words_.append(chunk.data(), static_cast<std::size_t>(got));
    if (words_.size() > max_last_words) words_.erase(0, words_.size() - max_last_words);
  }
  return got != 0;
}

std::string LastWords::text() const {
  const std::size_t blank = words_.find_last_not_of(" \t\r\n");
  return words_.substr(0, blank == std::string::npos ? 0 : blank + 1);
}

ProcessEnding process_ending(int wait_status, const LastWords& words) {
  ProcessEnding ending;
  if (WIFSIGNALED(wait_status)) ending.signal = WTERMSIG(wait_status);
  if (WIFEXITED(wait_status)) ending.exit_code = WEXITSTATUS(wait_status);
  ending.last_words = words.text();
  return ending;
}

std::string ending_text(const ProcessEnding& ending) {
  std::string text = ending.signal != 0
                         ? signal_name(ending.signal)
                         : fmt::format("the process ended itself with exit code {}", ending.exit_code);
  if (!ending.last_words.empty()) text += "; its last words: " + ending.last_words;
  return text;
}

bool ChildProcess::has_ended() { return reap(WNOHANG); }

void ChildProcess::kill() {
  if (has_ended()) return;
  killed_ = ::kill(leads_group_ ? -pid_ : pid_, SIGKILL) == 0;
}

int ChildProcess::wait(double seconds) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + std::chrono::duration<double>(seconds);
  while (!has_ended() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  kill();
  reap(0);
  return status_.value_or(0);
}

bool ChildProcess::reap(int options) {
  if (status_) return true;
  siginfo_t end{};
  int result = -1;
  do {
    result = waitid(P_PID, static_cast<id_t>(pid_), &end, WEXITED | WNOWAIT | options);
  } while (result < 0 && errno == EINTR);
  if (result == 0 && end.si_pid == 0) return false;
  // Before it is reaped: until then no other group gets its number.
  if (leads_group_) ::kill(-pid_, SIGKILL);
  int status = 0;
  if (waitpid(pid_, &status, 0) == pid_) status_ = status;
  return true;
}

}  // namespace gemmtune
