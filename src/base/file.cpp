#include "base/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <vector>

#include <climits>

#include "base/descriptor.h"
#include "base/temporary_file.h"
#include "base/text.h"

namespace gemmtune {
namespace {

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

Result<std::string> read_regular_file(const std::string& path, std::size_t limit) {
  // O_NONBLOCK: opening a pipe does not wait for a writer.
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!descriptor.ok()) return Status::io("{}: cannot open: {}", path, why());
  struct stat information {};
  if (::fstat(descriptor.get(), &information) != 0) return Status::io("{}: {}", path, why());
  if (!S_ISREG(information.st_mode)) return Status::invalid("{}: is not a regular file", path);
  return read_descriptor(descriptor.get(), path, limit);
}

Status write_file_atomically(const std::string& path, std::string_view content) {
  GEMMTUNE_RETURN_IF_ERROR(check_links(path));
  const std::string target = resolve_links(path);
  struct stat existing {};
  const bool exists = ::stat(target.c_str(), &existing) == 0;
  if (exists && S_ISDIR(existing.st_mode)) return Status::invalid("{}: is a folder, expected a file", path);
  if (exists && !S_ISREG(existing.st_mode)) return Status::invalid("{}: is not a regular file", path);
  if (!exists && is_link(target)) {
    return Status::invalid("{}: is a link that leads to no place for a file", path);
  }

  auto temporary = TemporaryFile::beside(target);
  if (!temporary.ok()) return Status::io("{}: {}", path, temporary.message());
  GEMMTUNE_RETURN_IF_ERROR(write_all(temporary->descriptor(), path, content));
  if (exists) GEMMTUNE_RETURN_IF_ERROR(take_over(temporary->descriptor(), path, existing));
  const std::string folder =
      folder_of(target);  // nothing is allocated behind the replacement: it is no failure then
  if (!temporary->replace(target)) return Status::io("{}: cannot replace the file: {}", path, why());
  return sync_folder(folder);
}

Result<bool> append_within_page(const std::string& path, std::size_t size, std::string_view text) {
  constexpr std::size_t page = 4096;
  if (size % page + text.size() > page) return false;
  const int made = size == 0 ? O_CREAT : 0;
  const Descriptor descriptor(
      ::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC | O_NONBLOCK | made, 0666));
  if (!descriptor.ok()) return Status::io("{}: cannot open: {}", path, why());
  struct stat information {};
  if (::fstat(descriptor.get(), &information) != 0) return Status::io("{}: {}", path, why());
  if (!S_ISREG(information.st_mode) || static_cast<std::size_t>(information.st_size) != size) return false;
  ssize_t count = -1;
  do {
    count = ::write(descriptor.get(), text.data(), text.size());
  } while (count < 0 && errno == EINTR);
  if (count == static_cast<ssize_t>(text.size())) return true;
  const std::string reason = count < 0 ? why() : "no space left";
  if (count > 0) (void)!::ftruncate(descriptor.get(), information.st_size);
  return Status::io("{}: cannot write: {}", path, reason);
}

Result<LineFile> LineFile::open(const std::string& path) {
  std::FILE* const file = std::fopen(path.c_str(), "ae");
  if (file == nullptr) return Status::io("{}: {}", path, std::strerror(errno));
  return LineFile(path, file);
}

Status LineFile::write(const std::string& line) {
  const std::string text = line + "\n";
  const bool written =
      std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() && std::fflush(file_.get()) == 0;
  return written ? Status() : Status::io("{}: {}", path_, std::strerror(errno));
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

Status make_folders(const std::string& path, unsigned mode) {
  for (std::size_t end = 0; end < path.size();) {
    end = std::min(path.find('/', end + 1), path.size());
    const std::string folder = path.substr(0, end);
    struct stat information {};
    if (::mkdir(folder.c_str(), mode) == 0 ||
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

std::string file_identity(const std::string& path) {
  struct stat information {};
  if (::stat(path.c_str(), &information) != 0) return path;
  return fmt::format("{} {} {}.{:09}", path, information.st_size, information.st_mtim.tv_sec,
                     information.st_mtim.tv_nsec);
}

Status check_links(const std::string& path) {
  constexpr int max_links = 40;
  std::string done = path.starts_with('/') ? "/" : "";
  std::vector<std::string> rest;  // the next name last
  const auto add = [&rest](std::string_view names) {
    const auto parts = split(names, '/');
    for (auto part = parts.rbegin(); part != parts.rend(); ++part)
      if (!part->empty() && *part != ".") rest.emplace_back(*part);
  };
  add(path);
  for (int links = 0; !rest.empty() && links < max_links;) {
    const std::string at = join_path(done, rest.back());
    rest.pop_back();
    struct stat link {};
    if (::lstat(at.c_str(), &link) != 0) return {};  // nothing is there, or whoever opens it says why not
    if (!S_ISLNK(link.st_mode)) {
      done = at;
      continue;
    }
    struct stat folder {};
    const std::string place = done.empty() ? "." : done;
    const bool is_shared = ::stat(place.c_str(), &folder) == 0 && (folder.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    const uid_t owner = link.st_uid;
    if (is_shared && owner != ::geteuid() && owner != 0 && owner != folder.st_uid) {
      return Status::invalid(
          "{}: {} is a link of user {} in a folder that others may write; write to another place", path, at,
          owner);
    }
    std::array<char, PATH_MAX> target{};
    const ssize_t length = ::readlink(at.c_str(), target.data(), target.size());
    if (length <= 0) return {};
    if (target[0] == '/') done = "/";
    add({target.data(), static_cast<std::size_t>(length)});
    ++links;
  }
  return {};
}

}  // namespace gemmtune
