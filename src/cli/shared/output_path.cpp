#include "cli/shared/output_path.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>

#include "base/file.h"
#include "base/text.h"

namespace gemmtune::cli {
namespace {

/// Writes a block into a new file of the folder and takes it away again: a full disk, a limit on file sizes
/// and a read-only file system show now and not after an hour of tuning.
Status probe_folder(const std::string& folder) {
  const std::string probe = fmt::format("{}/.gemmtune-probe-{}.tmp", folder, getpid());
  const int descriptor = open(probe.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600);
  if (descriptor < 0) return Status::io("{}", std::strerror(errno));
  std::array<char, 4096> block{};
  const ssize_t written = write(descriptor, block.data(), block.size());
  const int error = written < 0 ? errno : ENOSPC;
  close(descriptor);
  unlink(probe.c_str());
  if (written != static_cast<ssize_t>(block.size())) return Status::io("{}", std::strerror(error));
  return {};
}

}  // namespace

Status check_writable(const std::string& option, const std::string& path) {
  const std::string target = resolve_links(path);
  struct stat found {};
  const bool exists = stat(target.c_str(), &found) == 0;
  if (exists && S_ISDIR(found.st_mode)) {
    return Status::invalid("{} {}: is a directory, expected a file", option, path);
  }
  if (exists && !S_ISREG(found.st_mode)) {
    return Status::invalid("{} {}: is no regular file", option, path);
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
