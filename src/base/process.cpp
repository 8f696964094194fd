#include "base/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

#include "base/text.h"

namespace gemmtune {
namespace {

std::string boot_id() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string id;
  file >> id;
  return id;
}

/// Field 22 of /proc/<pid>/stat, in clock ticks since boot; empty where there is no such process (a zombie
/// counts as none). The second field, a name in parentheses, may hold blanks.
std::string start_time(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  const std::size_t name_ends = line.rfind(')');
  if (name_ends == std::string::npos) return {};
  std::istringstream fields(line.substr(name_ends + 1));
  std::string field;
  for (int number = 3; number <= 22 && fields >> field; ++number) {
    if (number == 3 && (field == "Z" || field == "X")) return {};
  }
  return field;
}

std::string identity_of(const std::string& pid) {
  return fmt::format("{} {} {}", boot_id(), pid, start_time(pid));
}

}  // namespace

std::string process_identity() { return identity_of(std::to_string(getpid())); }

bool process_runs(const std::string& identity) {
  const auto words = split(identity, ' ');
  if (words.size() != 3 || !parse_integer(words[1]) || words[2].empty()) return false;
  return identity_of(std::string(words[1])) == identity;
}

}  // namespace gemmtune
