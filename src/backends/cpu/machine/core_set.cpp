#include "backends/cpu/machine/core_set.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "base/text.h"

namespace gemmtune::cpu {
namespace {

constexpr int max_core = (1 << 14) - 1;

std::optional<int> parse_core(std::string_view text) {
  if (text.empty() || text[0] < '0' || text[0] > '9') return std::nullopt;
  const auto value = parse_integer(text);
  if (!value || *value > max_core) return std::nullopt;
  return static_cast<int>(*value);
}

/// "3" or "0-3" → first and last.
std::optional<std::pair<int, int>> parse_range(std::string_view text) {
  const auto dash = text.find('-');
  const auto first = parse_core(text.substr(0, dash));
  if (!first) return std::nullopt;
  if (dash == std::string_view::npos) return std::pair{*first, *first};
  const auto last = parse_core(text.substr(dash + 1));
  if (!last || *last < *first) return std::nullopt;
  return std::pair{*first, *last};
}

Status check_allowed(std::string_view text, const CoreList& cores, const CoreList& allowed) {
  for (const int core : cores) {
    if (std::find(allowed.begin(), allowed.end(), core) == allowed.end()) {
      return Status::invalid("device {}: there is no core {} here; this process may use cores {}", text, core,
                             print_core_list(allowed));
    }
  }
  return {};
}

}  // namespace

Result<CoreList> parse_core_list(std::string_view text) {
  CoreList cores;
  for (const std::string_view word : split(text, ',')) {
    const auto range = parse_range(trim(word));
    if (!range) {
      return Status::invalid("'{}' is no core or rising range of cores from 0 to {}, as in 0-15 or 0,2", word,
                             max_core);
    }
    for (int core = range->first; core <= range->second; ++core) {
      if (std::find(cores.begin(), cores.end(), core) != cores.end()) {
        return Status::invalid("core {} is named twice in '{}'", core, text);
      }
      cores.push_back(core);
    }
  }
  return cores;
}

std::string print_core_list(const CoreList& cores) {
  std::string text;
  for (std::size_t i = 0; i < cores.size();) {
    std::size_t end = i;
    while (end + 1 < cores.size() && cores[end + 1] == cores[end] + 1) ++end;
    if (!text.empty()) text += ',';
    text += std::to_string(cores[i]);
    if (end > i) text += '-' + std::to_string(cores[end]);
    i = end + 1;
  }
  return text;
}

Result<CoreSet> choose_cores(std::string_view text, int threads, const CoreList& allowed, double quota) {
  CoreSet set;
  set.cores = allowed;
  if (!text.empty() && text != "cpu") {
    if (!text.starts_with("cpu:")) {
      return Status::invalid("device '{}', expected cpu or cpu:CORES, as in cpu:0-15 or cpu:0,2", text);
    }
    auto named = parse_core_list(text.substr(4));
    if (!named.ok()) return Status::invalid("device '{}': {}", text, named.message());
    GEMMTUNE_RETURN_IF_ERROR(check_allowed(text, *named, allowed));
    set = {std::move(*named), true};
  }
  if (threads < 0) return Status::invalid("threads = {}, expected 1 or more (0: all cores)", threads);
  auto wanted = static_cast<std::size_t>(threads);
  if (wanted > set.cores.size()) {
    return Status::invalid("threads = {}, but device {} has {} core(s): {}", threads,
                           text.empty() ? std::string_view("cpu") : text, set.cores.size(),
                           print_core_list(set.cores));
  }
  if (wanted == 0) wanted = set.cores.size();
  if (threads == 0 && !set.named && quota > 0) {
    // A thread more than the quota pays for would have all of them stopped for part of each period.
    wanted = std::min(wanted, static_cast<std::size_t>(std::max(1.0, std::floor(quota + 0.01))));
  }
  set.cores.resize(wanted);
  return set;
}

}  // namespace gemmtune::cpu
