#include "support/subprocess.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>

namespace gemmtune::test {
namespace {

/// In the child: redirects, limits, replaces the process. Answers only by _exit.
[[noreturn]] void become(const std::vector<std::string>& words, const SubprocessOptions& options,
                         const std::string& folder) {
  // Tests that a shell runs in the background have Ctrl-C ignored, which a program would inherit.
  std::signal(SIGINT, SIG_DFL);
  for (const auto& [name, value] : options.environment) setenv(name.c_str(), value.c_str(), 1);
  const int in = open((folder + "/in").c_str(), O_RDONLY);
  const int out = open((folder + "/out").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  const int err = open((folder + "/err").c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (in < 0 || out < 0 || err < 0 || dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) _exit(125);
  if (!options.working_folder.empty() && chdir(options.working_folder.c_str()) != 0) _exit(125);
  if (options.max_file_bytes) {
    const rlimit limit{*options.max_file_bytes, *options.max_file_bytes};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  std::vector<char*> arguments;
  for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  execv(arguments[0], arguments.data());
  _exit(126);
}

}  // namespace

std::string read_text(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Subprocess::Subprocess(const std::vector<std::string>& words, const SubprocessOptions& options) {
  folder_.write("in", options.input);
  process_ = fork();
  if (process_ == 0) become(words, options, folder_.path());
  if (process_ < 0) ended_ = true;
}

Subprocess::~Subprocess() {
  if (ended_) return;
  kill(process_, SIGKILL);
  waitpid(process_, &status_, 0);
}

bool Subprocess::running() {
  if (!ended_ && waitpid(process_, &status_, WNOHANG) == process_) ended_ = true;
  return !ended_;
}

void Subprocess::send(int signal) const {
  if (!ended_) kill(process_, signal);
}

bool Subprocess::wait_until(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(5);
  while (std::chrono::steady_clock::now() < end) {
    const bool ran = running();
    if (holds()) return true;
    if (!ran) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

bool Subprocess::wait_until_said(const std::string& text) {
  return wait_until([&] { return read_text(folder_.file("err")).find(text) != std::string::npos; });
}

SubprocessResult Subprocess::wait() {
  if (!ended_) waitpid(process_, &status_, 0);
  ended_ = true;
  SubprocessResult result;
  if (WIFEXITED(status_)) result.exit_code = WEXITSTATUS(status_);
  if (WIFSIGNALED(status_)) result.signal = WTERMSIG(status_);
  result.out = read_text(folder_.file("out"));
  result.err = read_text(folder_.file("err"));
  return result;
}

SubprocessResult run_program(const std::vector<std::string>& words, const SubprocessOptions& options) {
  return Subprocess(words, options).wait();
}

}  // namespace gemmtune::test
