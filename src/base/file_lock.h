// Exclusive locks between processes: a file that is locked while something is done that one may do at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/clock.h"
#include "base/status.h"

namespace gemmtune {

/// An flock on a file, released by the destructor. The file holds who locked it last, and stays.
class FileLock {
 public:
  /// Makes the file if it is missing, and waits until the lock is free: a wait of more than a second is logged
  /// (LockWaitLog). A link and anything but a regular file are refused, so that nobody can make this process
  /// write elsewhere. interrupted() ends a wait with `unsupported`; a wait that begins after the interrupt
  /// lasts two seconds at most, which is enough to publish what was decided.
  /// The file names `owner` as its holder; 0: this process.
  static Result<FileLock> acquire(const std::string& path, std::int64_t owner = 0);
  /// Without waiting; empty if another one has the lock.
  static Result<std::optional<FileLock>> try_acquire(const std::string& path, std::int64_t owner = 0);
  /// acquire() would not fail, however long it had to wait.
  static Status check(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

/// The process of this machine that a lock's file names; empty if it names none.
std::optional<std::int64_t> lock_holder(const std::string& path);
/// "process 4711 on node3 (gemmtune tune -o a.csv)", as far as it is known.
std::string describe_lock_holder(const std::string& path);

/// Says in the log for whom a lock is waited for: after a second, after a minute, then every ten minutes.
class LockWaitLog {
 public:
  explicit LockWaitLog(std::string path) : path_(std::move(path)) {}
  /// To be called now and then while the wait lasts.
  void tick();
  double seconds() const { return steady_seconds() - begin_; }

 private:
  std::string path_;
  double begin_ = steady_seconds();
  double next_ = 1;
};

}  // namespace gemmtune
