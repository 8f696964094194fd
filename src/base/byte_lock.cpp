#include "base/byte_lock.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/descriptor.h"

namespace gemmtune {
namespace {

struct flock byte_range(short type, std::uint64_t place) {
  struct flock range {};
  range.l_type = type;
  range.l_whence = SEEK_SET;
  range.l_start = static_cast<off_t>(place);
  range.l_len = 1;
  return range;
}

}  // namespace

Result<std::optional<ByteLock>> ByteLock::take(const std::string& path, std::uint64_t place) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0644);
  if (descriptor < 0) return Status::io("{}: cannot open: {}", path, std::strerror(errno));
  ByteLock lock(descriptor, place);
  struct flock range = byte_range(F_WRLCK, place);
  // Of the open file, not of the process: threads exclude each other too, and no other close gives it back.
  while (::fcntl(descriptor, F_OFD_SETLK, &range) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return std::optional<ByteLock>();
    return Status::io("{}: cannot lock: {}", path, std::strerror(errno));
  }
  return std::optional<ByteLock>(std::move(lock));
}

bool ByteLock::is_held(const std::string& path, std::uint64_t place) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct flock range = byte_range(F_WRLCK, place);
  return file.ok() && ::fcntl(file.get(), F_OFD_GETLK, &range) == 0 && range.l_type != F_UNLCK;
}

ByteLock::ByteLock(ByteLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)), place_(other.place_) {}

ByteLock& ByteLock::operator=(ByteLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(place_, other.place_);
  return *this;
}

ByteLock::~ByteLock() {
  if (descriptor_ < 0) return;
  // A child forked meanwhile has the same open file: closing ours alone would not give the lock back.
  struct flock range = byte_range(F_UNLCK, place_);
  (void)::fcntl(descriptor_, F_OFD_SETLK, &range);
  ::close(descriptor_);
}

}  // namespace gemmtune
