// Processes as /proc shows them.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

namespace gemmtune::test {

/// The fields of /proc/<pid>/stat from the third on ("S", parent …); empty where there is no such process.
inline std::string stat_of(pid_t process) {
  std::ifstream file("/proc/" + std::to_string(process) + "/stat");
  std::string text;
  std::getline(file, text);
  const std::size_t name_ends = text.rfind(')');
  return name_ends == std::string::npos || name_ends + 2 > text.size() ? std::string()
                                                                       : text.substr(name_ends + 2);
}

/// It does not run: it was reaped, or waits for that.
inline bool has_ended(pid_t process) {
  const std::string stat = stat_of(process);
  return stat.empty() || stat[0] == 'Z' || stat[0] == 'X';
}

/// Those whose parent is `parent`, ended ones that nobody waited for included.
inline std::vector<pid_t> children_of(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    int parent_of_it = 0;
    const pid_t process = std::stoi(name);
    if (std::sscanf(stat_of(process).c_str(), "%*c %d", &parent_of_it) == 1 && parent_of_it == parent)
      children.push_back(process);
  }
  return children;
}

/// Those that /proc lists, ones that are about to end included.
inline std::size_t threads_of_this_process() {
  const std::filesystem::directory_iterator all("/proc/self/task");
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

}  // namespace gemmtune::test
