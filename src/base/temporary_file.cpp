#include "base/temporary_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>

#include "base/clock.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/hash.h"

namespace gemmtune {
namespace {

constexpr std::string_view temporary_ending = ".tmp";
constexpr std::size_t temporary_digits = 6;

/// True if `name` is that of a temporary file of the output (of any, where that is empty).
bool is_temporary_of(std::string_view name, std::string_view output) {
  constexpr std::size_t added = 1 + temporary_digits + temporary_ending.size();
  if (!name.ends_with(temporary_ending) || name.size() <= added) return false;
  const std::string_view begin = name.substr(0, name.size() - added);
  const std::string_view digits = name.substr(begin.size() + 1, temporary_digits);
  return name[begin.size()] == '.' &&
         digits.find_first_not_of("0123456789abcdef") == std::string_view::npos &&
         (output.empty() || begin == output);
}

/// The path is still that of the open file.
bool has_path(int descriptor, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(descriptor, &open) == 0 && ::lstat(path.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

bool remove_if_dead(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat information {};
  if (!file.ok() || ::fstat(file.get(), &information) != 0) return false;
  if (!S_ISREG(information.st_mode) || information.st_uid != ::geteuid()) return false;
  // Where files cannot be locked nothing says that a process is dead.
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) return false;
  return has_path(file.get(), path) && ::unlink(path.c_str()) == 0;
}

}  // namespace

Result<TemporaryFile> TemporaryFile::beside(const std::string& output) {
  constexpr int tries = 100;
  static std::atomic<std::uint64_t> made{0};
  const std::string folder = parent_folder(output);
  const std::size_t slash = output.rfind('/');
  const std::string place = folder.empty() ? "." : folder;
  remove_leftovers(place, std::string_view(output).substr(slash == std::string::npos ? 0 : slash + 1));
  for (int i = 0; i < tries; ++i) {
    const std::string word = fmt::format("{} {} {}", ::getpid(), steady_seconds(), made++);
    std::string path = fmt::format("{}.{}{}", output, short_hash(word, temporary_digits), temporary_ending);
    Descriptor file(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!file.ok() && errno == EEXIST) continue;
    if (!file.ok()) break;
    // Before the lock another process may have taken it for a leftover.
    if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) continue;
    if (has_path(file.get(), path)) return TemporaryFile(std::move(path), std::move(file));
  }
  return Status::io("cannot create a file in {}: {}", place, std::strerror(errno));
}

TemporaryFile::~TemporaryFile() {
  if (!path_.empty()) ::unlink(path_.c_str());
}

bool TemporaryFile::replace(const std::string& output) {
  if (std::rename(path_.c_str(), output.c_str()) != 0) return false;
  path_.clear();
  return true;
}

int remove_leftovers(const std::string& folder, std::string_view output_name) {
  int removed = 0;
  for (const std::string& path : paths_in(folder)) {
    const std::string_view name = std::string_view(path).substr(path.rfind('/') + 1);
    if (is_temporary_of(name, output_name) && remove_if_dead(path)) ++removed;
  }
  return removed;
}

}  // namespace gemmtune
