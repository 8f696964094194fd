// What is the same for every process that this one starts: channels, the end of its output, how it ended.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "base/descriptor.h"
#include "base/status.h"

namespace gemmtune {

/// One end for this process, one for the child; both are closed on exec.
struct ChannelEnds {
  Descriptor ours;
  Descriptor theirs;
};
Result<ChannelEnds> make_socket();
/// Written by the child; our end does not wait.
Result<ChannelEnds> make_pipe();

/// Appends what a socket has, without waiting; false once the other side is closed.
bool receive_some(int socket, std::string& text);

/// A copy above the numbers that a child's descriptors get, so that none overwrites what another one is made of;
/// closed on exec. -1, and errno, where there is none.
Descriptor lifted_copy(int descriptor);

/// The program of this name in the first folder of PATH that has one; folders without a slash in front, which depend on where
/// this process stands, do not count. Empty where there is none.
std::string find_program(const std::string& name);

/// Starts a program without a shell: `words` (a null pointer ends them) are its arguments, the first is looked for on PATH where it
/// has no slash; descriptors[i] becomes its descriptor i, of which none may be below their count (lifted_copy()); all others are
/// closed. It leads a group of processes and dies with the thread that calls this. `address_space`: bytes; 0: as this process
/// may. The child's id; negative, and errno, where it does not start.
pid_t start_program(char* const* words, std::span<const int> descriptors, std::size_t address_space = 0);

/// The end of what a process wrote.
class LastWords {
 public:
  /// Reads what is there; `descriptor` is one that does not wait. False once the other side is closed.
  bool read_from(int descriptor);
  /// Without blanks at the end.
  std::string text() const;

 private:
  std::string words_;
};

struct ProcessEnding {
  int signal = 0;          // that ended it; 0: it ended itself
  int exit_code = 0;       // where it ended itself
  std::string last_words;  // the end of what it wrote to its outputs
};

ProcessEnding process_ending(int wait_status, const LastWords& words);
/// "SIGSEGV (Segmentation fault); its last words: …" or "the process ended itself with exit code 3".
std::string ending_text(const ProcessEnding& ending);

/// A process that this one has started, until it is reaped.
class ChildProcess {
 public:
  /// `leads_group`: it leads a group of processes, which is killed when it has ended.
  explicit ChildProcess(pid_t pid, bool leads_group = false) : pid_(pid), leads_group_(leads_group) {}

  pid_t pid() const { return pid_; }
  bool has_ended();
  /// SIGKILL, where it has not ended.
  void kill();
  /// kill() came before its end.
  bool was_killed() const { return killed_; }
  /// Its wait status, once it has ended; kills it if that takes longer than `seconds`.
  int wait(double seconds);

 private:
  bool reap(int options);

  pid_t pid_;
  bool leads_group_;
  bool killed_ = false;
  std::optional<int> status_;
};

}  // namespace gemmtune
