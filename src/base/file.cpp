#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <climits>

#include "base/clock.h"
#include "base/descriptor.h"
#include "base/hash.h"
#include "base/text.h"

namespace gemmtune {
namespace {

/// A file that is removed on destruction.
struct Temporary {
  Temporary() = default;
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  ~Temporary() {
    if (exists) ::unlink(path.c_str());
  }
  std::string path;
  bool exists = false;
};

std::string why() { return std::strerror(errno); }

std::string folder_of(const std::string& path) {
  const std::string parent = parent_folder(path);
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

/// A new file `target`.<word>.tmp, whose mode follows the umask (that of mkstemp does not). Negative: errno says
/// why.
int make_file_beside(const std::string& target, std::string& path) {
  constexpr int tries = 100;
  static std::atomic<std::uint64_t> made{0};
  int descriptor = -1;
  for (int i = 0; i < tries; ++i) {
    const std::string word = fmt::format("{} {} {}", ::getpid(), steady_seconds(), made++);
    path = fmt::format("{}.{}.tmp", target, short_hash(word, 6));
    descriptor = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor >= 0 || errno != EEXIST) break;
  }
  return descriptor;
}

/// Gives a file the mode of the one that it will replace, and its owner where that is permitted.
Status take_over(int descriptor, const std::string& path, const struct stat& replaced) {
  (void)!::fchown(descriptor, replaced.st_uid, replaced.st_gid);
  if (::fchmod(descriptor, replaced.st_mode & 07777) == 0) return {};
  return Status::io("{}: cannot set the mode: {}", path, why());
}

/// Allocates nothing unless it fails: what was renamed is done.
Status sync_folder(const std::string& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!descriptor.ok() && errno == EACCES) return {};  // a folder that may be written, but not read
  if (!descriptor.ok()) return Status::io("{}: cannot open the folder: {}", folder, why());
  // Some file systems cannot sync folders; the rename is done all the same.
  if (::fsync(descriptor.get()) != 0 && errno != EINVAL && errno != EROFS) {
    return Status::io("{}: cannot sync the folder: {}", folder, why());
  }
  return {};
}

bool is_link(const std::string& path) {
  struct stat information {};
  return ::lstat(path.c_str(), &information) == 0 && S_ISLNK(information.st_mode);
}

/// `folder` with the names of `rest` behind it, of which "." and ".." are carried out.
std::string append_names(std::string folder, const std::string& rest) {
  for (const std::string_view name : split(rest, '/')) {
    if (name.empty() || name == ".") continue;
    const std::size_t last = folder.rfind('/') + 1;  // 0 where there is none
    if (name != ".." || folder.empty() || folder.substr(last) == "..") {
      folder = join_path(folder, name);
    } else {
      folder = parent_folder(folder);
    }
  }
  return folder;
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
  if (::fstat(descriptor.get(), &information) != 0) return Status::io("{}: {}", path, why());
  if (S_ISDIR(information.st_mode)) return Status::invalid("{}: is a folder, expected a file", path);
  if (S_ISBLK(information.st_mode)) return Status::invalid("{}: is a block device, expected a file", path);
  return read_descriptor(descriptor.get(), path, limit);
}

Status write_file_atomically(const std::string& path, std::string_view content) {
  const std::string target = resolve_links(path);
  struct stat existing {};
  const bool exists = ::stat(target.c_str(), &existing) == 0;
  if (exists && S_ISDIR(existing.st_mode)) return Status::invalid("{}: is a folder, expected a file", path);
  if (exists && !S_ISREG(existing.st_mode)) return Status::invalid("{}: is not a regular file", path);
  if (!exists && is_link(target)) {
    return Status::invalid("{}: is a link that leads to no place for a file", path);
  }

  const std::string folder = folder_of(target);
  Temporary temporary;
  const Descriptor descriptor(make_file_beside(target, temporary.path));
  if (!descriptor.ok()) return Status::io("{}: cannot create a file in {}: {}", path, folder, why());
  temporary.exists = true;
  GEMMTUNE_RETURN_IF_ERROR(write_all(descriptor.get(), path, content));
  if (exists) GEMMTUNE_RETURN_IF_ERROR(take_over(descriptor.get(), path, existing));
  if (::rename(temporary.path.c_str(), target.c_str()) != 0) {
    return Status::io("{}: cannot replace the file: {}", path, why());
  }
  temporary.exists = false;
  return sync_folder(folder);
}

std::string join_path(const std::string& folder, std::string_view name) {
  if (folder.empty() || name.starts_with('/')) return std::string(name);
  std::string path = folder;
  if (!path.ends_with('/')) path += '/';
  return path += name;
}

std::string parent_folder(const std::string& path) {
  const std::size_t slash = path.rfind('/');
  if (slash == std::string::npos) return {};
  const std::size_t end = path.find_last_not_of('/', slash);
  return end == std::string::npos ? "/" : path.substr(0, end + 1);
}

Status make_folders(const std::string& path) {
  for (std::size_t end = 0; end < path.size();) {
    end = std::min(path.find('/', end + 1), path.size());
    const std::string folder = path.substr(0, end);
    struct stat information {};
    if (::mkdir(folder.c_str(), 0777) == 0 ||
        (::stat(folder.c_str(), &information) == 0 && S_ISDIR(information.st_mode)))
      continue;
    if (::stat(folder.c_str(), &information) == 0) errno = ENOTDIR;
    return Status::io("{}: cannot create the folder: {}", path, why());
  }
  return {};
}

bool file_exists(const std::string& path) {
  struct stat information {};
  return ::stat(path.c_str(), &information) == 0;
}

std::string resolve_links(const std::string& path) {
  constexpr int max_links = 40;  // as many as the kernel follows
  std::string at = path;
  for (int links = 0; links < max_links && is_link(at) && !file_exists(at); ++links) {
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlink(at.c_str(), target.data(), target.size());
    if (length < 0) return path;
    at = join_path(parent_folder(at), {target.data(), static_cast<std::size_t>(length)});
  }
  // What exists of it, links resolved; then the rest, of which nothing is there.
  std::string rest;
  for (std::string exists = at; !exists.empty(); exists = parent_folder(exists)) {
    std::array<char, PATH_MAX> real{};
    if (::realpath(exists.c_str(), real.data()) != nullptr) return append_names(real.data(), rest);
    if (errno != ENOENT && errno != ENOTDIR) return path;
    std::string names = exists.substr(std::min(exists.rfind('/') + 1, exists.size()));
    if (!rest.empty()) names.append("/").append(rest);
    rest = std::move(names);
  }
  return append_names({}, rest);
}

}  // namespace gemmtune
