// The parent's side of one worker process: starts, watches and ends it, and exchanges messages.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "base/child_process.h"
#include "base/status.h"
#include "evaluate/worker/message_channel.h"
#include "evaluate/worker/worker_protocol.h"

namespace gemmtune {

/// The program that becomes the worker: `gemmtune worker`.
struct WorkerLaunch {
  std::string program;  // a path; /proc/self/exe for the program that runs
  std::vector<std::string> arguments;
};

/// How a worker ended.
struct WorkerEnding : ProcessEnding {
  bool killed_by_us = false;
};

class WorkerProcess {
 public:
  /// An error where the program cannot be started. The worker dies with the thread that calls this, and finds
  /// its socket closed when this process ends.
  static Result<std::unique_ptr<WorkerProcess>> start(const WorkerLaunch& launch);
  /// Kills it where it still runs.
  ~WorkerProcess();
  WorkerProcess(const WorkerProcess&) = delete;
  WorkerProcess& operator=(const WorkerProcess&) = delete;

  pid_t pid() const { return process_.pid(); }
  Status send(std::string_view message) { return channel_.send(message); }

  enum class Event { message, nothing, ended };
  /// Waits at most so long. `ended` also where what came is no message.
  Event wait(double seconds, std::string& message);
  WorkerState state() const { return page_.read(); }
  /// Memory that is resident now; 0 where the process is gone.
  std::size_t resident_bytes() const;
  void kill() { process_.kill(); }
  /// Waits for the end (kills the worker if it does not end) and returns how it ended.
  WorkerEnding ending();

 private:
  WorkerProcess(pid_t pid, int socket, Descriptor outputs, WorkerPage page)
      : process_(pid), channel_(socket), outputs_(std::move(outputs)), page_(std::move(page)) {}
  void read_outputs();

  ChildProcess process_;
  MessageChannel channel_;
  Descriptor outputs_;  // the reading end of the worker's stdout and stderr
  WorkerPage page_;
  bool outputs_ended_ = false;
  LastWords last_words_;
};

}  // namespace gemmtune
