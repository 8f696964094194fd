#include "base/file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <utility>

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

/// Closes on destruction; owns nothing when negative.
class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }
  bool ok() const { return number_ >= 0; }

 private:
  int number_;
};

std::string why() { return std::strerror(errno); }

std::string folder_of(const std::string& path) {
  const auto parent = fs::path(path).parent_path().string();
  return parent.empty() ? "." : parent;
}

Result<std::string> read_descriptor(int descriptor, const std::string& path, std::size_t limit) {
  std::string content;
  struct stat information {};
  if (::fstat(descriptor, &information) == 0 && S_ISREG(information.st_mode)) {
    const auto size = static_cast<std::size_t>(information.st_size);
    if (size > limit) {
      return Status::invalid("{}: {} bytes, expected at most {}", path, size, limit);
    }
    content.reserve(size + 1);
  }
  std::string block(std::size_t{1} << 16, '\0');
  for (;;) {
    const ssize_t count = ::read(descriptor, block.data(), block.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::io("{}: cannot read: {}", path, why());
    if (count == 0) return content;
    content.append(block.data(), static_cast<std::size_t>(count));
    if (content.size() > limit) return Status::invalid("{}: more than {} bytes", path, limit);
  }
}

Status write_all(int descriptor, const std::string& path, std::string_view content) {
  while (!content.empty()) {
    const ssize_t count = ::write(descriptor, content.data(), content.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return Status::io("{}: cannot write: {}", path, why());
    content.remove_prefix(static_cast<std::size_t>(count));
  }
  if (::fsync(descriptor) != 0) return Status::io("{}: cannot sync: {}", path, why());
  return {};
}

Status sync_folder(const std::string& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.ok()) return Status::io("{}: cannot open the folder: {}", folder, why());
  // Some file systems cannot sync folders; the rename is done all the same.
  if (::fsync(descriptor.number()) != 0 && errno != EINVAL && errno != EROFS) {
    return Status::io("{}: cannot sync the folder: {}", folder, why());
  }
  return {};
}

}  // namespace

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  if (path == "-") return read_descriptor(STDIN_FILENO, "standard input", limit);
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!descriptor.ok()) {
    const auto code = errno == ENOENT ? StatusCode::not_found : StatusCode::io_error;
    return Status(code, fmt::format("{}: cannot open: {}", path, why()));
  }
  struct stat information {};
  if (::fstat(descriptor.number(), &information) != 0) return Status::io("{}: {}", path, why());
  if (S_ISDIR(information.st_mode)) return Status::invalid("{}: is a folder, expected a file", path);
  if (S_ISBLK(information.st_mode)) return Status::invalid("{}: is a block device, expected a file", path);
  return read_descriptor(descriptor.number(), path, limit);
}

Status write_file_atomically(const std::string& path, std::string_view content) {
  const std::string target = resolve_links(path);
  struct stat existing {};
  const bool exists = ::stat(target.c_str(), &existing) == 0;
  if (exists && S_ISDIR(existing.st_mode)) return Status::invalid("{}: is a folder, expected a file", path);
  if (exists && !S_ISREG(existing.st_mode)) return Status::invalid("{}: is not a regular file", path);
  const mode_t mode = exists ? existing.st_mode & 07777 : 0644;

  std::string temporary = target + ".XXXXXX.tmp";
  const Descriptor descriptor(::mkostemps(temporary.data(), 4, O_CLOEXEC));
  if (!descriptor.ok()) {
    return Status::io("{}: cannot create a file in {}: {}", path, folder_of(target), why());
  }
  Status status = write_all(descriptor.number(), path, content);
  if (status.ok() && ::fchmod(descriptor.number(), mode) != 0) {
    status = Status::io("{}: cannot set the mode: {}", path, why());
  }
  if (status.ok() && ::rename(temporary.c_str(), target.c_str()) != 0) {
    status = Status::io("{}: cannot replace the file: {}", path, why());
  }
  if (!status.ok()) {
    ::unlink(temporary.c_str());
    return status;
  }
  return sync_folder(folder_of(target));
}

Status make_folders(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  if (error) return Status::io("{}: cannot create the folder: {}", path, error.message());
  return {};
}

bool file_exists(const std::string& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::string resolve_links(const std::string& path) {
  std::error_code error;
  const auto resolved = fs::weakly_canonical(path, error);
  return error ? path : resolved.string();
}

Result<FileLock> FileLock::acquire(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  if (descriptor < 0) return Status::io("{}: cannot open the lock file: {}", path, why());
  while (::flock(descriptor, LOCK_EX) != 0) {
    if (errno == EINTR) continue;
    const std::string reason = why();
    ::close(descriptor);
    return Status::io("{}: cannot lock: {}", path, reason);
  }
  return FileLock(descriptor);
}

FileLock::FileLock(FileLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}

FileLock& FileLock::operator=(FileLock&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  return *this;
}

FileLock::~FileLock() {
  if (descriptor_ < 0) return;
  // Closing would not do where another thread has forked meanwhile: the child holds the same lock.
  ::flock(descriptor_, LOCK_UN);
  ::close(descriptor_);
}

}  // namespace gemmtune
