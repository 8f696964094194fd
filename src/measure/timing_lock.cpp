#include "measure/timing_lock.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/file_lock.h"
#include "base/log.h"

namespace gemmtune {
namespace {

Status check_private_folder(const std::string& folder) {
  mkdir(folder.c_str(), S_IRWXU);
  struct stat status {};
  if (lstat(folder.c_str(), &status) != 0) return Status::io("{}: {}", folder, std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) return Status::io("{}: is no folder", folder);
  if (status.st_uid != geteuid()) return Status::io("{}: belongs to another user", folder);
  if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return Status::io("{}: other users may write there", folder);
  return {};
}

}  // namespace

std::string online_lock_path(const std::string& runtime_folder) {
  if (runtime_folder.empty() || !check_private_folder(runtime_folder).ok()) return {};
  return runtime_folder + "/online.lock";
}

std::string timing_lock_path(const std::string& runtime_folder, const DeviceInfo& device) {
  const std::string path =
      runtime_folder + (device.bus_id.empty() ? "/timing.lock" : "/timing-" + device.bus_id + ".lock");
  Status status = check_private_folder(runtime_folder);
  if (status.ok()) status = FileLock::check(path);
  if (status.ok()) return path;
  log(LogLevel::warning,
      "no timing lock, so that other gemmtune processes may run while this one times kernels: {}",
      status.message());
  return {};
}

}  // namespace gemmtune
