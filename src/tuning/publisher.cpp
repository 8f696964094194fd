#include "tuning/publisher.h"

#include "base/file.h"
#include "base/file_lock.h"

namespace gemmtune {

Status Publisher::check_writable() const {
  if (path_.empty()) return {};
  if (file_exists(path_)) {
    if (auto content = read_file(path_); !content.ok()) return content.status();
  }
  // publish() takes this lock too: where it cannot be had, nothing could be published.
  return FileLock::acquire(path_ + ".lock").status();
}

Status Publisher::add(TunedEntry entry) {
  if (path_.empty()) return {};
  waiting_.push_back(std::move(entry));
  if (last_ != Clock::time_point{} && Clock::now() - last_ < std::chrono::seconds(1)) return {};
  return flush();
}

Status Publisher::flush() {
  if (waiting_.empty()) return {};
  GEMMTUNE_RETURN_IF_ERROR(publish(path_, waiting_, options_));
  waiting_.clear();
  last_ = Clock::now();
  return {};
}

}  // namespace gemmtune
