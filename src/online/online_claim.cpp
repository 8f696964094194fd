#include "online/online_claim.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

namespace gemmtune {
namespace {

/// Any byte can be locked, there or not. Two problems at one place only wait for each other.
off_t place_of(std::uint64_t problem_hash) { return static_cast<off_t>(problem_hash >> 2); }

}  // namespace

Result<std::optional<OnlineClaim>> OnlineClaim::take(const std::string& path, std::uint64_t problem_hash) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return Status::io("{}: cannot open: {}", path, std::strerror(errno));
  OnlineClaim claim(descriptor);
  struct flock range {};
  range.l_type = F_WRLCK;
  range.l_whence = SEEK_SET;
  range.l_start = place_of(problem_hash);
  range.l_len = 1;
  // Of the open file, not of the process: threads exclude each other too, and no other close gives it back.
  while (::fcntl(descriptor, F_OFD_SETLK, &range) != 0) {
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EACCES) return std::optional<OnlineClaim>();
    return Status::io("{}: cannot lock: {}", path, std::strerror(errno));
  }
  return std::optional<OnlineClaim>(std::move(claim));
}

OnlineClaim::OnlineClaim(OnlineClaim&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

OnlineClaim& OnlineClaim::operator=(OnlineClaim&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

OnlineClaim::~OnlineClaim() {
  if (descriptor_ < 0) return;
  // A child forked meanwhile has the same open file: closing ours alone would not give the claim back.
  struct flock range {};
  range.l_type = F_UNLCK;
  range.l_whence = SEEK_SET;
  (void)::fcntl(descriptor_, F_OFD_SETLK, &range);
  ::close(descriptor_);
}

}  // namespace gemmtune
