#include "base/log.h"

#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <new>
#include <string>

#include "base/text.h"

namespace gemmtune {
namespace {

struct Log {
  std::mutex mutex;  // not held while a sink runs, which may wait for a lock of its host (Python's)
  std::condition_variable left;
  LogSink sink = nullptr;
  void* context = nullptr;
  int inside = 0;  // calls of sinks that have not returned
  pid_t process = ::getpid();
};

/// Never destroyed: lines are written while the process ends. Needs no memory: some are about the want of it.
Log& the_log() {
  alignas(Log) static std::array<std::byte, sizeof(Log)> place;
  static auto* const log = new (place.data()) Log;
  return *log;
}

std::atomic<bool> has_sink{false};
std::atomic<LogLevel> default_level{LogLevel::warning};
thread_local int inside_here = 0;  // those of this thread: a sink may log

/// After fork() the calls of the parent's other threads never return.
void forget_parents_calls(Log& log) {
  if (log.process == ::getpid()) return;
  log.process = ::getpid();
  log.inside = inside_here;
}

class SinkCall {
 public:
  SinkCall() {
    Log& log = the_log();
    const std::lock_guard lock(log.mutex);
    forget_parents_calls(log);
    sink_ = log.sink;
    context_ = log.context;
    ++log.inside;
    ++inside_here;
  }
  ~SinkCall() {
    Log& log = the_log();
    {
      const std::lock_guard lock(log.mutex);
      forget_parents_calls(log);
      --log.inside;
      --inside_here;
    }
    log.left.notify_all();
  }
  SinkCall(const SinkCall&) = delete;
  SinkCall& operator=(const SinkCall&) = delete;

  LogSink sink() const { return sink_; }
  void* context() const { return context_; }

 private:
  LogSink sink_;
  void* context_;
};

/// One write, so that lines of several processes do not mix.
void write_to_stderr(LogLevel level, std::string_view line) {
  static constexpr std::array<std::string_view, 4> words{"debug: ", "", "warning: ", "error: "};
  const std::string text =
      fmt::format("gemmtune: {}{}\n", words[static_cast<std::size_t>(level)], printable_word(line));
  for (std::string_view rest = text; !rest.empty();) {
    const ssize_t count = ::write(STDERR_FILENO, rest.data(), rest.size());
    if (count < 0 && errno != EINTR) return;
    if (count > 0) rest.remove_prefix(static_cast<std::size_t>(count));
  }
}

}  // namespace

void set_log_sink(LogSink sink, void* context) {
  Log& log = the_log();
  std::unique_lock lock(log.mutex);
  forget_parents_calls(log);
  log.sink = sink;
  log.context = context;
  has_sink.store(sink != nullptr, std::memory_order_release);
  log.left.wait(lock, [&] { return log.inside == inside_here; });
}

void end_log_sink() {
  Log& log = the_log();
  const std::lock_guard lock(log.mutex);
  log.sink = nullptr;
  has_sink.store(false, std::memory_order_release);
}

void let_default_sink_inform() { default_level.store(LogLevel::info, std::memory_order_relaxed); }

bool log_enabled(LogLevel level) {
  return has_sink.load(std::memory_order_acquire) || level >= default_level.load(std::memory_order_relaxed);
}

void log_line(LogLevel level, std::string_view line, bool heard) {
  if (!log_enabled(level)) return;
  const SinkCall call;
  if (call.sink() != nullptr) {
    call.sink()(level, line, call.context());
  } else if (!heard) {
    write_to_stderr(level, line);
  }
}

}  // namespace gemmtune
