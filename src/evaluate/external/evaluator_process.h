// The process of an external evaluator: a command that answers requests on its standard input with replies on its
// standard output, one JSON object a line each (docs/evaluators.md).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "base/child_process.h"
#include "base/status.h"
#include "formats/json_fwd.h"

namespace gemmtune {

/// Memory that both processes map: the evaluator finds it as descriptor 3.
class SharedMemory {
 public:
  static Result<SharedMemory> make();
  SharedMemory(SharedMemory&& other) noexcept;
  SharedMemory& operator=(SharedMemory&&) = delete;
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  ~SharedMemory();

  const Descriptor& descriptor() const { return descriptor_; }
  /// Null where the machine has no memory for it. Earlier pointers are then no good any more.
  std::byte* at_least(std::size_t bytes);

 private:
  explicit SharedMemory(Descriptor descriptor) : descriptor_(std::move(descriptor)) {}

  Descriptor descriptor_;
  std::byte* begin_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Several threads may ask at once; they wait for each other.
class EvaluatorProcess {
 public:
  /// `command`: words as a shell reads them, with quotes and variables, without operators and substitutions. An error
  /// if it cannot be started. The evaluator dies with the thread that calls this.
  static Result<std::unique_ptr<EvaluatorProcess>> start(const std::string& command);
  /// Ends its input; kills it and its children if it is still there after two seconds.
  ~EvaluatorProcess();
  EvaluatorProcess(const EvaluatorProcess&) = delete;
  EvaluatorProcess& operator=(const EvaluatorProcess&) = delete;

  /// Sends the request (an object with "do") and waits for its reply. A reply with "error" is a status: `unsupported`
  /// where its "kind" is "refused", `out_of_memory` where it is that, else `internal`. No reply within `seconds`, an
  /// end of the process and anything that is no reply are a fault: this and every later request fails with it.
  Result<Json> ask(Json request, double seconds = std::numeric_limits<double>::infinity());
  /// ok until the first fault.
  Status fault() const;

  /// For requests that move bytes; of one thread at a time.
  SharedMemory& memory() { return memory_; }

 private:
  EvaluatorProcess(std::string command, SharedMemory memory, pid_t pid, Descriptor channel, Descriptor errors)
      : command_(std::move(command)),
        memory_(std::move(memory)),
        process_(pid, true),
        channel_(std::move(channel)),
        errors_(std::move(errors)) {}
  Result<std::string> exchange(const std::string& line, double seconds);
  /// A whole line of what was read, taken from it; false where there is none.
  bool take_line(std::string& line);
  Status ended();

  std::string command_;
  SharedMemory memory_;
  ChildProcess process_;
  Descriptor channel_;  // its standard input and output
  Descriptor errors_;   // its standard error
  std::string read_;    // of its output, not yet taken
  LastWords last_errors_;
  std::size_t requests_ = 0;
  Status fault_;
  mutable std::mutex mutex_;
};

}  // namespace gemmtune
