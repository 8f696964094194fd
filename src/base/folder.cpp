#include "base/folder.h"

#include <dirent.h>

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
  std::sort(paths.begin(), paths.end());
  return paths;
}

}  // namespace gemmtune
