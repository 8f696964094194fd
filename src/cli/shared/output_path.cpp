#include "cli/shared/output_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/all_formats.h"

namespace gemmtune::cli {
namespace {

/// What is put behind a file's name for others beside it: "out.csv.env.json.0a1b2c.tmp", "out.csv.journal-wal".
constexpr std::size_t longest_ending = 20;

/// Writes a block into a new file of the folder and takes it away again: a full disk, a limit on file sizes
/// and a read-only file system show now and not after an hour of tuning.
Status probe_folder(const std::string& folder) {
  std::string probe = folder + "/.gemmtune-probe-XXXXXX";
  const int descriptor = mkostemp(probe.data(), O_CLOEXEC);
  if (descriptor < 0) return Status::io("{}", std::strerror(errno));
  unlink(probe.c_str());  // now: a kill leaves nothing
  std::array<char, 4096> block{};
  const ssize_t written = ::write(descriptor, block.data(), block.size());
  const int error = written < 0 ? errno : ENOSPC;
  close(descriptor);
  if (written != static_cast<ssize_t>(block.size())) return Status::io("{}", std::strerror(error));
  return {};
}

/// One file under two names: by path, or by a hard link. Pipes and devices are nobody's.
bool is_same_file(const std::string& a, const std::string& b) {
  struct stat first {};
  struct stat second {};
  const bool has_first = stat(a.c_str(), &first) == 0;
  const bool has_second = stat(b.c_str(), &second) == 0;
  if (has_first != has_second) return false;
  if (has_first)
    return S_ISREG(first.st_mode) && first.st_dev == second.st_dev && first.st_ino == second.st_ino;
  return absolute_path(a) == absolute_path(b);
}

}  // namespace

std::string absolute_path(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::absolute(resolve_links(path), ignored).lexically_normal();
}

bool names_folder(const std::string& output) {
  std::error_code ignored;
  return output.ends_with('/') || std::filesystem::is_directory(output, ignored);
}

Status check_apart(const std::vector<NamedFile>& outputs, const std::vector<NamedFile>& others) {
  for (auto output = outputs.begin(); output != outputs.end(); ++output) {
    if (output->path.empty()) continue;
    std::vector<NamedFile> rest(output + 1, outputs.end());
    rest.insert(rest.end(), others.begin(), others.end());
    for (const NamedFile& other : rest) {
      if (other.path.empty() || !is_same_file(output->path, other.path)) continue;
      return Status::invalid("{} {}: is {} too; choose another file", output->name, output->path, other.name);
    }
  }
  return {};
}

Status check_replaces_no_tuned_file(const std::string& option, const std::string& path) {
  if (!std::filesystem::is_regular_file(resolve_links(path))) return {};
  GEMMTUNE_TRY(const auto content, read_file(path));
  const auto lines = std::count(content.begin(), content.end(), '\n');
  if (lines < 2 || !is_tuned_format(detect_format(path, content))) return {};
  return Status::invalid("{} {}: is a tuned file, whose rows would be lost; choose another file", option,
                         path);
}

Status check_replaces_only(const std::string& option, const std::string& path, std::string_view kind,
                           bool (*is_kind)(const std::string& path, const std::string& content)) {
  if (!std::filesystem::is_regular_file(resolve_links(path))) return {};
  GEMMTUNE_TRY(const auto content, read_file(path));
  if (trim(content).empty() || is_kind(path, content)) return {};
  return Status::invalid("{} {}: is there and is not {}; choose another file, or remove it", option, path,
                         kind);
}

Status check_no_side_file(const std::string& option, const std::string& path) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 7> endings{
      {{".journal", "the journal"},
       {".journal-wal", "a part of the journal"},
       {".journal-shm", "a part of the journal"},
       {".journal.runs", "the locks of the journal"},
       {".env.json", "the environments"},
       {".shard.json", "the shard"},
       {".lock", "the lock"}}};
  for (const auto& [ending, what] : endings) {
    if (!path.ends_with(ending) || path.size() == ending.size()) continue;
    const std::string table = path.substr(0, path.size() - ending.size());
    if (file_exists(path) || file_exists(table))
      return Status::invalid("{} {}: is the name of {} of {}; choose another file", option, path, what,
                             table);
  }
  return {};
}

Status check_writable(const std::string& option, const std::string& path) {
  GEMMTUNE_RETURN_IF_ERROR(check_no_side_file(option, path));
  return check_side_file_writable(option, path);
}

Status check_side_file_writable(const std::string& option, const std::string& path) {
  if (path == "-") {
    return Status::invalid(
        "{} -: standard output cannot be replaced as a file is; name a file (./- for one of this name)",
        option);
  }
  if (const Status status = check_links(path); !status.ok())
    return Status(status.code(), fmt::format("{} {}", option, status.message()));
  const std::string target = resolve_links(path);
  const std::size_t name_bytes = std::filesystem::path(target).filename().string().size();
  if (name_bytes + longest_ending > NAME_MAX) {
    return Status::invalid("{} {}: the name has {} bytes, expected at most {}", option, path, name_bytes,
                           NAME_MAX - longest_ending);
  }
  struct stat found {};
  const bool exists = stat(target.c_str(), &found) == 0;
  if (path.ends_with('/') || (exists && S_ISDIR(found.st_mode))) {
    return Status::invalid("{} {}: is a directory, expected a file", option, path);
  }
  if (exists && !S_ISREG(found.st_mode)) {
    return Status::invalid("{} {}: not a regular file", option, path);
  }
  if (exists && access(target.c_str(), W_OK) != 0) {
    return Status::io("{} {}: cannot be written: {}", option, path, std::strerror(errno));
  }
  std::string folder = std::filesystem::path(target).parent_path().string();
  if (folder.empty()) folder.push_back('.');
  if (stat(folder.c_str(), &found) != 0) {
    return Status::io("{} {}: the folder {}: {}", option, path, folder, std::strerror(errno));
  }
  if (const Status status = probe_folder(folder); !status.ok()) {
    return Status::io("{} {}: cannot be written: {}", option, path, status.message());
  }
  return {};
}

}  // namespace gemmtune::cli
