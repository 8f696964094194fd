// CaptureRecorder: which problems a context was asked for and how often, in memory and, every second, in the
// untuned files of a folder.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
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

/// All members are safe from any thread. A thread of its own writes what is new: every second, or as rarely
/// as keeps it below a tenth of its time where the files are large or slow.
///
/// After fork() the child's copy is inert: it has no such thread, and what it holds is the parent's to write.
/// It records nothing, writes nothing and may be destroyed; the child opens a context of its own.
class CaptureRecorder {
 public:
  /// More problems than this are not recorded (said once): shapes without end would fill memory and files.
  static constexpr std::size_t max_problems = 65536;
  using Say = std::function<void(LogLevel, std::string_view)>;

  /// Files: untuned_file_name() of each operation in `folder`, which is made when there is something to
  /// write. `say` may be called from any thread until the destructor has ended.
  CaptureRecorder(std::string folder, Say say);
  /// stop().
  ~CaptureRecorder();
  CaptureRecorder(const CaptureRecorder&) = delete;
  CaptureRecorder& operator=(const CaptureRecorder&) = delete;

  /// Where calls of a problem are counted; lives as long as the recorder. Problems that share a row of tuned
  /// files share it. nullptr: the problem is not recorded (M = 0, too many).
  CallCounts* counts_of(const Problem& problem);
  /// Writes what is new, and waits for other processes that write. What could not be written stays and is
  /// tried again; the first error is returned.
  Status flush();
  /// flush(), and no thread afterwards. Calls go on being counted; flush() still writes them.
  void stop();

 private:
  struct Entry {
    Problem problem;
    CallCounts counts;
    MatchCounts written{};  // guarded by flushing_
  };
  struct Unwritten {
    std::vector<CapturedProblem> seen;
    std::vector<Entry*> entries;
  };
  struct Writer;

  bool forked() const;
  /// flush() where nobody hears of an error or an exception.
  void flush_without_caller() noexcept;
  void run_writer();
  std::vector<Unwritten> collect();  // one an operation
  Status write(Operation operation, const Unwritten& unwritten);
  /// `line`, once for each `about`.
  void say_once(LogLevel level, const std::string& about, const std::string& line);

  const std::string folder_;
  const Say say_;
  const pid_t process_;
  std::mutex entries_mutex_;   // of the next three; never held while files are written
  std::deque<Entry> entries_;  // addresses stay
  std::unordered_map<PlanKey, Entry*, PlanKeyHash> index_;
  bool full_ = false;
  std::mutex flushing_;  // one flush at a time
  std::set<std::string> said_;
  std::unique_ptr<Writer> writer_;
};

}  // namespace gemmtune
