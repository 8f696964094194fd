#include "backends/cpu/machine/system_limits.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <set>
#include <string_view>

#include "base/file.h"
#include "base/text.h"

namespace gemmtune::cpu {
namespace {

std::string text_of(const std::string& path) {
  auto content = read_file(path);
  return content.ok() ? std::move(*content) : std::string();
}

std::optional<std::int64_t> number_in(const std::string& path) {
  const std::string text = text_of(path);
  return parse_integer(split(text, '\n').front());
}

/// The number after `key` in lines "key value" or "key: value kB"; nullopt where there is no such line.
std::optional<std::int64_t> number_after(const std::string& text, std::string_view key) {
  for (const std::string_view line : split(text, '\n')) {
    if (!line.starts_with(key)) continue;
    std::string_view rest = line.substr(key.size());
    if (rest.empty() || (rest[0] != ':' && rest[0] != ' ')) continue;
    rest = trim(rest.substr(1));
    return parse_integer(rest.substr(0, rest.find(' ')));
  }
  return std::nullopt;
}

/// One control group folder of this process and its version.
using VisitGroup = std::function<void(const std::string& folder, bool version2)>;

/// Calls visit for the process's group that has `controller` and for every group above it.
void for_each_group(const std::string& root, std::string_view controller, const VisitGroup& visit) {
  const std::string groups = text_of(root + "/proc/self/cgroup");
  for (const std::string_view line : split(groups, '\n')) {
    const auto fields = split(line, ':');
    if (fields.size() < 3) continue;
    const bool version2 = fields[0] == "0" && fields[1].empty();
    const auto controllers = split(fields[1], ',');
    if (!version2 && std::find(controllers.begin(), controllers.end(), controller) == controllers.end())
      continue;
    const std::string mount =
        root + "/sys/fs/cgroup" + (version2 ? std::string() : '/' + std::string(fields[1]));
    std::string path(fields[2]);
    while (path.size() > 1 && path[0] == '/') {
      visit(mount + path, version2);
      path.resize(path.rfind('/'));
    }
    visit(mount, version2);
  }
}

double quota_of(const std::string& folder, bool version2) {
  if (version2) {
    const std::string line = text_of(folder + "/cpu.max");
    const auto words = split(trim(line), ' ');
    if (words.size() != 2) return 0;
    const auto quota = parse_integer(words[0]);
    const auto period = parse_integer(words[1]);
    return quota && period && *period > 0 ? static_cast<double>(*quota) / static_cast<double>(*period) : 0;
  }
  const auto quota = number_in(folder + "/cpu.cfs_quota_us");
  const auto period = number_in(folder + "/cpu.cfs_period_us");
  return quota && period && *quota > 0 && *period > 0
             ? static_cast<double>(*quota) / static_cast<double>(*period)
             : 0;
}

std::optional<std::int64_t> memory_left(const std::string& folder, bool version2) {
  const auto limit = number_in(folder + (version2 ? "/memory.max" : "/memory.limit_in_bytes"));
  const auto used = number_in(folder + (version2 ? "/memory.current" : "/memory.usage_in_bytes"));
  if (!limit || !used) return std::nullopt;
  const auto cached =
      number_after(text_of(folder + "/memory.stat"), version2 ? "inactive_file" : "total_inactive_file");
  return std::max<std::int64_t>(*limit - *used + cached.value_or(0), 0);
}

/// "32768K" → bytes.
std::size_t size_in(const std::string& path) {
  const std::string content = text_of(path);
  std::string_view text = trim(content);
  std::int64_t unit = 1;
  if (text.ends_with('K')) unit = 1024;
  if (text.ends_with('M')) unit = 1024 * 1024;
  if (unit > 1) text.remove_suffix(1);
  return static_cast<std::size_t>(std::max<std::int64_t>(parse_integer(text).value_or(0), 0) * unit);
}

}  // namespace

double cpu_quota(const std::string& root) {
  double tightest = 0;
  for_each_group(root, "cpu", [&](const std::string& folder, bool version2) {
    const double quota = quota_of(folder, version2);
    if (quota > 0 && (tightest == 0 || quota < tightest)) tightest = quota;
  });
  return tightest;
}

std::size_t free_memory_bytes(const std::string& root) {
  const auto available = number_after(text_of(root + "/proc/meminfo"), "MemAvailable");
  std::int64_t left = available ? *available * 1024 : std::numeric_limits<std::int64_t>::max();
  for_each_group(root, "memory", [&](const std::string& folder, bool version2) {
    left = std::min(left, memory_left(folder, version2).value_or(left));
  });
  const std::string limits = text_of(root + "/proc/self/limits");
  const std::string status = text_of(root + "/proc/self/status");
  const auto within = [&](std::string_view limit, std::string_view used) {
    const auto most = number_after(limits, limit);
    const auto now = number_after(status, used);
    if (most && now) left = std::clamp<std::int64_t>(*most - *now * 1024, 0, left);
  };
  within("Max address space", "VmSize");
  within("Max data size", "VmData");
  return static_cast<std::size_t>(left);
}

std::string cpu_model_name(const std::string& root) {
  const std::string information = text_of(root + "/proc/cpuinfo");
  for (const std::string_view line : split(information, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string_view::npos || trim(line.substr(0, colon)) != "model name") continue;
    const auto name = trim(line.substr(colon + 1));
    if (!name.empty()) return std::string(name);
  }
  return "unknown CPU";
}

ReportedCaches reported_caches(const CoreList& cores, const std::string& root) {
  ReportedCaches caches;
  std::set<std::string> instances;
  for (const int core : cores) {
    const std::string folder = root + "/sys/devices/system/cpu/cpu" + std::to_string(core) + "/cache/index";
    std::int64_t highest = 0;
    std::string last_folder;
    for (int index = 0; index < 8; ++index) {
      const std::string cache = folder + std::to_string(index);
      const auto level = number_in(cache + "/level");
      if (!level) break;
      if (*level == 2) caches.level2_bytes = size_in(cache + "/size");
      if (*level > highest) {
        highest = *level;
        last_folder = cache;
      }
    }
    if (last_folder.empty()) continue;
    caches.last_bytes = std::max(caches.last_bytes, size_in(last_folder + "/size"));
    instances.insert(text_of(last_folder + "/shared_cpu_list"));
  }
  caches.last_instances = std::max(1, static_cast<int>(instances.size()));
  return caches;
}

}  // namespace gemmtune::cpu
