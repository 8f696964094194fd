#include "cli/tables/shard_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "cli/shared/console.h"
#include "formats/aiter/environment_json.h"
#include "formats/json.h"
#include "tuned/key.h"

namespace gemmtune::cli {
namespace {

constexpr std::string_view missing = "missing";
constexpr std::string_view unfinished = "unfinished";
constexpr std::string_view no_row = "unanswered";
constexpr std::string_view devices = "devices";
constexpr std::string_view environments = "environments";
constexpr std::string_view other_options = "options";
constexpr std::array all_kinds{missing, unfinished, no_row, devices, environments, other_options};

constexpr std::size_t max_named = 5;

/// "a, b and 3 more".
std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), max_named); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() <= max_named ? text : fmt::format("{} and {} more", text, names.size() - max_named);
}

/// What each value of something is said by: "x (a.csv), y (b.csv, c.csv)".
using Sayings = std::map<std::string, std::vector<std::string>>;

std::string sayings_text(const Sayings& sayings) {
  return joined(sayings, "; ", [](const auto& saying) {
    return fmt::format("{} ({})", saying.first, some_of(saying.second));
  });
}

void say(Sayings& sayings, const std::string& value, const std::string& file) {
  std::vector<std::string>& files = sayings[value];
  if (files.empty() || files.back() != file) files.push_back(file);
}

/// The members in which two environments differ: "libraries: {…} and {…}".
std::string difference_of(const std::string& a, const std::string& b) {
  const Json first = parse_json(a);
  const Json second = parse_json(b);
  std::string text;
  if (!first.is_object() || !second.is_object()) return text;
  for (const auto& [name, value] : first.items()) {
    const auto other = second.find(name);
    if (name == "observations" || name == "confirmation") continue;
    if (other != second.end() && *other == value) continue;
    text += fmt::format("{}{}: {} and {}", text.empty() ? "" : "; ", name, json_line(value),
                        other == second.end() ? "nothing" : json_line(*other));
  }
  return text;
}

/// Between the first two environments of the files.
std::string environment_difference(const Sayings& sayings) {
  std::vector<std::string> objects;
  for (const auto& [hash, files] : sayings) {
    const auto known = read_environment_json(files.front());
    if (!known.ok()) return {};
    const auto found = known->objects.find(hash);
    if (found != known->objects.end()) objects.push_back(found->second);
  }
  if (objects.size() < 2) return {};
  const std::string text = difference_of(objects[0], objects[1]);
  return text.empty() ? text : "; they differ in " + text;
}

using KeyedShapes = std::unordered_map<Problem, std::size_t, SameKeyHash, SameKey>;
using Groups = std::unordered_map<GroupKey, std::size_t, GroupKeyHash>;

GroupKey group_only(const Problem& problem) { return {{}, 0, group_of(problem)}; }

/// Every M from `from` to `to` is in a row's range or has a row.
bool covers(std::vector<std::pair<std::int64_t, std::int64_t>> spans, std::int64_t from, std::int64_t to) {
  std::ranges::sort(spans);
  std::int64_t next = from;
  for (const auto& [first, last] : spans) {
    if (first <= next) next = std::max(next, last + 1);
  }
  return next > to;
}

}  // namespace

Result<std::set<std::string, std::less<>>> allowed_findings(const std::string& words) {
  std::set<std::string, std::less<>> allowed;
  if (words.empty()) return allowed;
  for (const std::string_view word : split(words, ',')) {
    if (std::find(all_kinds.begin(), all_kinds.end(), trim(word)) == all_kinds.end())
      return Status::invalid("--allow {}: '{}', expected words of {}", words, word,
                             fmt::join(all_kinds, ", "));
    allowed.emplace(trim(word));
  }
  return allowed;
}

Result<ShardSet> ShardSet::read(const std::vector<TunedFile>& files, std::size_t expected) {
  ShardSet set;
  for (const TunedFile& table : files) {
    auto file = read_shard_file(table.path);
    if (file.code() == StatusCode::not_found) {
      if (const auto named = shard_of_path(table.path))
        return Status::invalid(
            "{}: is named after shard {}, but there is no {}; expected the outputs of `tune --shard`",
            table.path, to_string(*named), shard_file_path(table.path));
      continue;
    }
    if (!file.ok()) return file.status();
    if (file->shard.count != expected)
      return Status::invalid("{}: is shard {}, expected one of {}", table.path, to_string(file->shard),
                             expected);
    set.shards_.push_back({&table, std::move(*file)});
  }
  if (set.shards_.empty())
    return Status::invalid("--expect-shards {}: none of the files is a shard's", expected);
  std::ranges::stable_sort(
      set.shards_, [](const Member& a, const Member& b) { return a.file.shard.index < b.file.shard.index; });
  const Member& first = set.shards_.front();
  for (std::size_t i = 1; i < set.shards_.size(); ++i) {
    const Member& before = set.shards_[i - 1];
    const Member& member = set.shards_[i];
    if (member.file.shard == before.file.shard)
      return Status::invalid("{} and {}: both are shard {}", before.table->path, member.table->path,
                             to_string(member.file.shard));
    if (member.file.list != first.file.list)
      return Status::invalid(
          "{} and {}: are shards of different lists of shapes ({} and {} shapes), or were dealt "
          "differently; tune all of them from one list",
          first.table->path, member.table->path, first.file.shapes_in_list, member.file.shapes_in_list);
  }
  set.check_members(expected);
  set.check_rows();
  return set;
}

void ShardSet::check_members(std::size_t expected) {
  std::vector<std::string> absent;
  std::vector<std::string> open;
  auto member = shards_.begin();
  for (std::size_t index = 1; index <= expected; ++index) {
    if (member == shards_.end() || member->file.shard.index != index) {
      absent.push_back(to_string(Shard{index, expected}));
      continue;
    }
    if (member->file.state != shard_finished)
      open.push_back(fmt::format("{} ({})", to_string(member->file.shard), member->file.state));
    ++member;
  }
  if (!absent.empty())
    findings_.push_back(
        {missing, fmt::format("{} missing: {}", counted(absent.size(), "shard"), some_of(absent))});
  if (!open.empty())
    findings_.push_back({unfinished, fmt::format("{} not finished: {}; start them again, they go on",
                                                 counted(open.size(), "shard"), some_of(open))});
}

void ShardSet::check_rows() {
  Sayings by_device;
  Sayings by_environment;
  Sayings by_options;
  for (const Member& member : shards_) {
    const std::string& path = member.table->path;
    say(by_options, member.file.options, path);
    for (const TunedEntry& row : member.table->entries) {
      say(by_device, fmt::format("{} cu_num {}", row.gfx, row.cu_num), path);
      say(by_environment, row.env, path);
    }
  }
  if (by_device.size() > 1)
    findings_.push_back({devices, "rows of several devices: " + sayings_text(by_device)});
  if (by_environment.size() > 1)
    findings_.push_back(
        {environments, fmt::format("rows of several environments: {}{}", sayings_text(by_environment),
                                   environment_difference(by_environment))});
  if (by_options.size() > 1)
    findings_.push_back({other_options, "shards of runs with other options: " + sayings_text(by_options)});
}

std::vector<ShardFinding> ShardSet::unanswered(const TunedFile& table) const {
  KeyedShapes rows;
  std::unordered_map<GroupKey, std::vector<std::pair<std::int64_t, std::int64_t>>, GroupKeyHash> spans;
  for (const TunedEntry& row : table.entries) {
    rows.try_emplace(row.problem, row.line);
    spans[group_only(row.problem)].emplace_back(row.m_from.value_or(row.problem.m), row.problem.m);
  }
  std::vector<std::string> shapes;
  for (const Member& member : shards_) {
    for (const ShardShape& shape : member.file.shapes) {
      const bool is_range = member.file.m_to > 0;
      const bool found = is_range
                             ? covers(spans[group_only(shape.problem)], member.file.m_from, member.file.m_to)
                             : rows.contains(shape.problem);
      if (found) continue;
      const std::string why = shape.state.empty()    ? std::string("was not reached")
                              : shape.reason.empty() ? shape.state
                                                     : fmt::format("{}: {}", shape.state, shape.reason);
      shapes.push_back(
          fmt::format("{} ({}, {})", short_name(shape.problem), to_string(member.file.shard), why));
    }
  }
  if (shapes.empty()) return {};
  return {{no_row, fmt::format("{} without a row: {}", counted(shapes.size(), "shape"), some_of(shapes))}};
}

std::string ShardSet::in_list_order(const TunedFile& table) const {
  constexpr std::size_t behind = std::numeric_limits<std::size_t>::max();
  KeyedShapes positions;
  Groups weights;
  for (const Member& member : shards_) {
    for (const ShardShape& shape : member.file.shapes) {
      positions.try_emplace(shape.problem, shape.position);
      if (member.file.m_to == 0) continue;
      const auto [known, is_new] = weights.try_emplace(group_only(shape.problem), shape.position);
      if (!is_new) known->second = std::min(known->second, shape.position);
    }
  }
  std::vector<std::pair<std::size_t, std::size_t>> order;  // position, line
  std::vector<bool> is_row(table.document.lines.size());
  for (const TunedEntry& row : table.entries) {
    const auto exact = positions.find(row.problem);
    const auto weight = weights.find(group_only(row.problem));
    const std::size_t position = weight != weights.end()    ? weight->second
                                 : exact != positions.end() ? exact->second
                                                            : behind;
    order.emplace_back(position, row.line - 1);
    is_row[row.line - 1] = true;
  }
  std::ranges::sort(order);
  std::string text;
  const auto add = [&](std::size_t line) {
    text += table.document.lines[line].text;
    text += table.document.lines[line].end;
  };
  for (std::size_t line = 0; line < is_row.size(); ++line) {
    if (!is_row[line]) add(line);
  }
  for (const auto& [position, line] : order) add(line);
  return text;
}

}  // namespace gemmtune::cli
