#include "base/folder.h"

#include <dirent.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string_view>

namespace gemmtune {

std::vector<std::string> paths_in(const std::string& folder) {
  std::vector<std::string> paths;
  const std::unique_ptr<DIR, int (*)(DIR*)> open(::opendir(folder.c_str()), ::closedir);
  if (!open) return paths;
  while (const dirent* entry = ::readdir(open.get())) {
    const std::string_view name = entry->d_name;
    if (name != "." && name != "..") paths.push_back(folder + "/" + std::string(name));
  }
  std::ranges::sort(paths);
  return paths;
}

std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> paths = paths_in(folder);
  // A link to nothing stays: opening it is an error that names it.
  std::erase_if(paths, [](const std::string& path) {
    struct stat information {};
    return ::stat(path.c_str(), &information) == 0 && !S_ISREG(information.st_mode);
  });
  return paths;
}

std::string why_others_may_write(const std::string& folder) {
  struct stat information {};
  if (::stat(folder.c_str(), &information) != 0) return {};
  if (information.st_uid != ::geteuid() && information.st_uid != 0)
    return fmt::format("its owner is user {}", information.st_uid);
  if ((information.st_mode & (S_IWGRP | S_IWOTH)) == 0) return {};
  return fmt::format("its mode is {:04o}", information.st_mode & 07777);
}

}  // namespace gemmtune
