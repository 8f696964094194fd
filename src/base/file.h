// Files: whole reads with a limit, atomic writes, advisory locks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gemmtune {

inline constexpr std::size_t max_file_bytes = std::size_t{1} << 30;

/// The whole file. Errors name the path and the operating system's reason; a folder, a device and a file
/// above `limit` bytes are refused. "-" reads standard input.
Result<std::string> read_file(const std::string& path, std::size_t limit = max_file_bytes);

/// Writes `content` to a temporary file beside `path` (links resolved), syncs it, keeps the mode of an
/// existing file, renames it over `path` and syncs the folder. On any error `path` is as it was and no
/// temporary stays.
Status write_file_atomically(const std::string& path, std::string_view content);

/// Creates the folder and its parents where missing.
Status make_folders(const std::string& path);

bool file_exists(const std::string& path);
/// `path` with links resolved as far as it exists.
std::string resolve_links(const std::string& path);

/// An exclusive flock on `path` (made where missing), released by the destructor. Blocks until it is had.
class FileLock {
 public:
  static Result<FileLock> acquire(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&& other) noexcept;
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int descriptor) : descriptor_(descriptor) {}
  int descriptor_ = -1;
};

}  // namespace gemmtune
