// Runs a program as a user would: arguments and environment in, exit code and both outputs out.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "support/temporary_folder.h"

namespace gemmtune::test {

struct SubprocessOptions {
  std::map<std::string, std::string> environment;  // added to this process's
  std::string input;                               // standard input
  std::string working_folder;
  std::optional<std::size_t> max_file_bytes;  // RLIMIT_FSIZE: a full disk
};

struct SubprocessResult {
  int exit_code = -1;
  int signal = 0;  // that ended it; 0: none
  std::string out;
  std::string err;
};

std::string read_text(const std::string& path);

/// A started program. wait() answers what became of it; the destructor kills it where nobody waited.
class Subprocess {
 public:
  Subprocess(const std::vector<std::string>& words, const SubprocessOptions& options);
  ~Subprocess();
  Subprocess(const Subprocess&) = delete;
  Subprocess& operator=(const Subprocess&) = delete;

  bool running();
  void send(int signal) const;
  /// Waits until a condition holds; false if the program has ended before, or after five minutes.
  bool wait_until(const std::function<bool()>& holds);
  /// Waits until its standard error has a text.
  bool wait_until_said(const std::string& text);
  SubprocessResult wait();

 private:
  TemporaryFolder folder_;
  pid_t process_ = -1;
  int status_ = 0;
  bool ended_ = false;
};

SubprocessResult run_program(const std::vector<std::string>& words, const SubprocessOptions& options = {});

}  // namespace gemmtune::test
