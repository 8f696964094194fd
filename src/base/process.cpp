#include "base/process.h"

#include <fmt/format.h>
#include <unistd.h>

#include "base/file.h"
#include "base/text.h"

namespace gemmtune {
namespace {

// By read_file(): a stream keeps std::bad_alloc to itself, and an identity by half is that of no process.
std::string boot_id() {
  const auto text = read_file("/proc/sys/kernel/random/boot_id");
  return text.ok() ? std::string(trim(*text)) : std::string();
}

/// Field 22 of /proc/<pid>/stat, in clock ticks since boot; empty where there is no such process (a zombie
/// counts as none). The second field, a name in parentheses, may hold blanks.
std::string start_time(const std::string& pid) {
  const auto text = read_file("/proc/" + pid + "/stat");
  const std::size_t name_ends = text.ok() ? text->rfind(')') : std::string::npos;
  if (name_ends == std::string::npos) return {};
  const auto fields = split(trim(std::string_view(*text).substr(name_ends + 1)), ' ');  // from the third on
  constexpr std::size_t start = 22 - 3;
  if (fields.size() <= start || fields[0] == "Z" || fields[0] == "X") return {};
  return std::string(fields[start]);
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
