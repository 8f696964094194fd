#include "tuning/publisher.h"

#include <algorithm>

#include "base/file.h"
#include "base/file_lock.h"

namespace gemmtune {
namespace {

/// A long file takes seconds to replace: at most a twentieth of the time. What waits is in the journal.
constexpr int max_pause_per_second = 20;

}  // namespace

Status Publisher::check_writable() const {
  if (path_.empty()) return {};
  if (file_exists(path_)) {
    if (auto content = read_file(path_); !content.ok()) return content.status();
  }
  // publish() takes this lock too: where it cannot be had, nothing could be published.
  return FileLock::acquire(path_ + ".lock").status();
}

Status Publisher::check_expressible(const Problem& problem) const {
  if (path_.empty() || path_.ends_with(".yaml") || path_.ends_with(".yml")) return {};
  return gemmtune::check_expressible(problem);
}

Status Publisher::add(TunedEntry entry) {
  if (path_.empty()) return {};
  waiting_.push_back(std::move(entry));
  const auto pause =
      std::max<Clock::duration>(std::chrono::seconds(1), max_pause_per_second * last_duration_);
  if (last_ != Clock::time_point{} && Clock::now() - last_ < pause) return {};
  return flush();
}

Status Publisher::flush() {
  if (waiting_.empty()) return {};
  const auto begin = Clock::now();
  GEMMTUNE_RETURN_IF_ERROR(publish(path_, waiting_, options_));
  waiting_.clear();
  last_ = Clock::now();
  last_duration_ = last_ - begin;
  return {};
}

}  // namespace gemmtune
