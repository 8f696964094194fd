// CaptureRecorder: which problems a context was asked for and how often, in memory and in the untuned files of a
// folder: a line at the first call, counts every second.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/status.h"
#include "dispatch/plan_cache.h"
#include "formats/capture/capture_file.h"

namespace gemmtune {

/// How often one problem was asked for. Counting is one relaxed add.
class CallCounts {
 public:
  void count(Match match) {
    by_match_[static_cast<std::size_t>(match)].fetch_add(1, std::memory_order_relaxed);
  }
  MatchCounts read() const;

 private:
  std::array<std::atomic<std::uint64_t>, std::tuple_size_v<MatchCounts>> by_match_{};
};

/// All members are safe from any thread. Files are written
///  - by the thread that asks for a new problem: its line, at once (write_new_lines()), unless another process writes,
///    or such threads have spent more than a tenth of the time (and 200 ms) on it;
///  - by a thread of the recorder: lines that had to wait, after 20 ms; counts every second, or as rarely as keeps it
///    below a tenth of its time where the files are large or slow;
///  - when a thread that asked for problems ends, under the same limit;
///  - at the end of the process, for every recorder that lives.
///
/// In a child of fork() the recorder goes on with nothing counted: what the parent holds is the parent's to write.
class CaptureRecorder : public std::enable_shared_from_this<CaptureRecorder> {
 public:
  /// More problems than this are not recorded (said once): shapes without end would fill memory and files.
  static constexpr std::size_t max_problems = 65536;
  using Say = std::function<void(LogLevel, std::string_view)>;

  /// Files: untuned_file_name() of each operation in `folder`, which is made when there is something to
  /// write. `say` may be called from any thread until close() or the end of the process has begun.
  static std::shared_ptr<CaptureRecorder> make(std::string folder, Say say);
  /// Requires close(), or the end of the process.
  ~CaptureRecorder();
  CaptureRecorder(const CaptureRecorder&) = delete;
  CaptureRecorder& operator=(const CaptureRecorder&) = delete;

  /// Where calls of a problem are counted; lives as long as the recorder. Problems that share a row of tuned
  /// files share it. nullptr: the problem is not recorded (M = 0, too many).
  CallCounts* counts_of(const Problem& problem);
  /// After counts_of(): the lines of new problems, by this thread or soon.
  void write_new_lines() noexcept;
  /// After each call that is counted: when this thread ends, its counts are written.
  void note_thread();
  /// Writes what is new, and waits for other processes that write. What could not be written stays and is
  /// tried again; the first error is returned.
  Status flush();
  /// flush(), and nothing afterwards: no thread, no file, no line.
  void close();

 private:
  friend class CaptureProcess;
  friend class CapturingThread;

  struct Entry {
    Problem problem;
    CallCounts counts;
    MatchCounts written{};      // guarded by files_
    bool line_pending = false;  // guarded by entries_mutex_
  };
  struct Unwritten {
    std::vector<CapturedProblem> seen;
    std::vector<Entry*> entries;
  };
  using UnwrittenByOperation = std::map<OperationForm, Unwritten>;
  struct Writer;
  struct Files;

  CaptureRecorder(std::string folder, Say say);

  std::string path_of(OperationForm operation) const;
  void say(LogLevel level, std::string_view line) const;
  /// `line`, once for each `about`. With files_.
  void say_once(LogLevel level, const std::string& about, const std::string& line);
  void say_merged(const std::string& path, const CaptureMerge& merged);

  void start_writer();
  void stop_writer();
  void run_writer(Writer& writer);
  /// The writer comes to lines that are pending, and to counts if `counts`, soon.
  void wake_writer(bool counts);

  UnwrittenByOperation collect_lines();  // one an operation; nothing is pending afterwards
  UnwrittenByOperation collect();        // one an operation
  void pend_again(const Unwritten& unwritten);
  void add_lines();  // with files_
  Status write(OperationForm operation, const Unwritten& unwritten);
  /// flush() where nobody hears of an error or an exception.
  void flush_without_caller() noexcept;

  void thread_ended() noexcept;
  void process_ends() noexcept;
  void begin_in_child();

  const std::string folder_;
  const Say say_;
  std::atomic<std::uint64_t> id_;   // of all recorders of this process and its parents
  std::atomic<bool> speaks_{true};  // through say_; false at the end of the process
  std::mutex entries_mutex_;        // of the next four; never held while files are written
  std::deque<Entry> entries_;       // addresses stay
  std::unordered_map<PlanKey, Entry*, PlanKeyHash> index_;
  std::vector<Entry*> new_;  // their lines are pending
  bool full_ = false;
  std::atomic<bool> has_new_{false};
  std::unique_ptr<Files> files_;  // one thread writes at a time
  std::unique_ptr<Writer> writer_;
};

}  // namespace gemmtune
