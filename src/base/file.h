// Files: whole reads with a limit, atomic writes.
#pragma once

#include <cstddef>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/status.h"

namespace gemmtune {

inline constexpr std::size_t max_file_bytes = std::size_t{1} << 30;

/// The whole file. Errors name the path and the operating system's reason; a folder, a device and a file
/// above `limit` bytes are refused. "-" reads standard input.
Result<std::string> read_file(const std::string& path, std::size_t limit = max_file_bytes);

/// The whole of a file that nobody named, found in a folder: links, pipes and devices are refused without waiting.
Result<std::string> read_regular_file(const std::string& path, std::size_t limit = max_file_bytes);

/// Writes `content` to a temporary file beside `path` (links resolved, as check_links() allows), syncs it, renames it over
/// `path` and syncs the folder. An existing file keeps its mode, and its owner where that is permitted; a new one has
/// 0666 less the umask. On any error, std::bad_alloc included, `path` is as it was and no temporary stays; only a
/// folder that cannot be synced is an error behind the rename.
Status write_file_atomically(const std::string& path, std::string_view content);

/// Adds `text` to the end of the file `path` (links resolved), which has `size` bytes, or is made if that is 0, without
/// syncing it; many times as fast. False, and nothing done, if the file has another size or the system might write a part of the text only:
/// it crosses a page.
Result<bool> append_within_page(const std::string& path, std::size_t size, std::string_view text);

/// A file to which lines are added; each is in the operating system's hands when write() returns.
class LineFile {
 public:
  /// Made where it is missing.
  static Result<LineFile> open(const std::string& path);
  Status write(const std::string& line);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  LineFile(std::string path, std::FILE* file) : path_(std::move(path)), file_(file) {}

  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
};

/// "folder/name"; the name alone where the folder is empty or the name begins at the root. In place of
/// std::filesystem::path's operator/, which frees memory twice where there is no more (libstdc++ 12).
std::string join_path(const std::string& folder, std::string_view name);
/// All before the last '/'; "/" of a file in the root, empty where there is none.
std::string parent_folder(const std::string& path);

/// Creates the folder and its parents where missing, with `mode` less the umask.
Status make_folders(const std::string& path, unsigned mode = 0777);

bool file_exists(const std::string& path);
/// `path` with links resolved as far as it exists; a link to a file that is not there is that file's path.
std::string resolve_links(const std::string& path);
/// "path bytes time of change": another file, or another version of it, has another one.
std::string file_identity(const std::string& path);
/// Of a path that will be written: an error for a link that another user may have put there, in a folder that others may
/// write. Links of this user, of root and of the folder's owner are followed.
Status check_links(const std::string& path);

}  // namespace gemmtune
