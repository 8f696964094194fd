// Compiling ahead of the use: while one kernel is measured, the next ones are compiled on other cores.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "backends/gpu/jit/compiler.h"

namespace gemmtune::gpu {

/// A source under the key of the kernel cache.
struct KeyedSource {
  std::string key;
  Source source;
};

/// Each source is compiled at most once at a time, on a thread of the queue or on that of the first who needs
/// it. Threads start with the first order and yield to all others. Safe from any thread.
class CompileQueue {
 public:
  /// `compile` is called from several threads at once and must not throw. `threads` ≥ 1: how many are ahead.
  CompileQueue(std::function<Result<Binary>(const Source&)> compile, std::size_t threads);
  /// Waits for what is being compiled; what has not begun is given up.
  ~CompileQueue();
  CompileQueue(const CompileQueue&) = delete;
  CompileQueue& operator=(const CompileQueue&) = delete;

  /// These will be needed, in this order. Replaces what an earlier order asked for and has not begun, and
  /// drops what it made that nobody took. Returns at once.
  void order(std::vector<KeyedSource> sources);

  /// What was compiled ahead, or fails as it did; what is being compiled is waited for, what has not begun is
  /// compiled on this thread. A result is handed out once.
  Result<Binary> take(const KeyedSource& wanted);

 private:
  enum class State { waiting, running, done };
  struct Entry {
    State state = State::waiting;
    Source source;
    Result<Binary> result = Status::internal("not compiled yet");
  };

  void work();
  /// Compiles an entry that is `running`, without the lock. The entry stays where it is meanwhile.
  void compile(Entry& entry, std::unique_lock<std::mutex>& lock);

  std::function<Result<Binary>(const Source&)> compile_;
  std::size_t max_threads_;
  std::mutex lock_;
  std::condition_variable changed_;
  std::map<std::string, Entry> entries_;  // by key
  std::deque<std::string> order_;         // keys that wait, and some that do no more
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace gemmtune::gpu
