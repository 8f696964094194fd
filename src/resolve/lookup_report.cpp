#include "resolve/lookup_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "tuned/checks.h"
#include "tuned/choice.h"
#include "tuned/groups.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

/// The levels with the M each looks for, no row yet. Those that the operation's look-up does not have look
/// for its own M and never find one.
std::vector<LookupLevel> levels_of(const TableSet& tables, const Problem& problem) {
  const Padding padding = traits(problem.operation).padding;
  std::vector<LookupLevel> levels;
  for (const Match match : matches_in_order) {
    if (is_miss(match)) continue;
    LookupLevel& level = levels.emplace_back();
    level.tables = &tables;
    level.level = match;
    level.tried_m = problem.m;
    if (padding == Padding::two_levels && match == Match::fine)
      level.tried_m = padded_m(problem.m, problem.n, 0);
    if (padding == Padding::two_levels && match == Match::coarse)
      level.tried_m = padded_m(problem.m, problem.n, 1);
    if (padding == Padding::token_tiers && match == Match::coarse) level.tried_m = token_tier(problem.m);
  }
  return levels;
}

/// In the order in which dispatch tries them: a bucket of a file for all sizes is the last.
void order_levels(std::vector<LookupLevel>& levels) {
  std::stable_partition(levels.begin(), levels.end(), [](const LookupLevel& level) {
    return level.row == nullptr || level.row->bucket.empty() || level.row->problem.n != 0;
  });
}

void bind_level(LookupLevel& level, const Device* device, const LookupRequest& request) {
  if (device == nullptr) {
    level.why = "no device of this backend is open here";
    return;
  }
  const std::string other = level.tables->other_environment(*level.row, device->info());
  const bool fewer_threads = level.level == Match::fewer_threads;
  const Binding binding =
      bind_row(*device, *level.row, other, request.problem,
               {.strict_environment = request.strict_environment, .fewer_threads = fewer_threads});
  level.answers = binding.bound.has_value();
  level.refusal = binding.refusal;
  level.why = level.answers ? other : binding.status.message();
  level.runnable = level.answers;
  if (!level.answers && binding.refusal == Refusal::other_environment) {
    level.runnable = bind_row(*device, *level.row, other, request.problem, {.fewer_threads = fewer_threads})
                         .bound.has_value();
  }
  level.other_environment = !other.empty() && level.refusal != Refusal::other_device;
}

/// True if the row is of the key that is looked up, its M left out.
bool is_asked_for(const TunedEntry& row, const GroupKey& asked) {
  if (row.problem.n != asked.group.n || row.problem.k != asked.group.k || !row.other_key.empty())
    return false;
  GroupKey key = group_key_of(row);
  if (key.gfx.empty() && amd_architecture(asked.gfx)) key.gfx = asked.gfx;
  return key == asked || (is_mixture(row.problem) && of_any_activation(key) == of_any_activation(asked));
}

/// True if the row, might it be chosen, would be the level's.
bool is_of_level(const TunedEntry& row, const LookupLevel& level) {
  if (level.level == Match::bucket) return false;
  // Above the last tier but one a mixture's look-up goes down to that one.
  const bool lower_tier = level.level == Match::coarse && is_mixture(row.problem) &&
                          level.tried_m == upper_token_tier && row.problem.m == lower_token_tier;
  if (level.level != Match::range) return row.problem.m == level.tried_m || lower_tier;
  return row.m_from && *row.m_from <= level.tried_m && level.tried_m <= row.problem.m;
}

/// Why the row of a key that is asked for is not chosen; empty: it may be.
std::string why_not_chosen(const TunedEntry& row) {
  return is_of_look_up(row) ? std::string(why_never_chosen(row)) : why_unreachable(row);
}

/// Levels without a row get one that exists, but is never chosen; each row is named once.
void name_never_chosen(std::vector<LookupLevel>& levels, const TableSet& tables, const GroupKey& asked) {
  const auto has_row_of = [&](std::int64_t m) {
    return std::ranges::any_of(
        levels, [&](const LookupLevel& level) { return level.row != nullptr && level.hit_m == m; });
  };
  for (const TunedEntry& row : tables.table.entries()) {
    if (!is_asked_for(row, asked) || has_row_of(row.problem.m)) continue;
    const std::string why = why_not_chosen(row);
    if (why.empty()) continue;
    for (LookupLevel& level : levels) {
      if (level.row != nullptr || !is_of_level(row, level)) continue;
      if (level.never_chosen == nullptr) {
        level.never_chosen = &row;
        level.hit_m = row.problem.m;
        level.why = fmt::format("never chosen: {}", why);
      }
      break;
    }
  }
}

/// "; never chosen t.csv:2, M = 3, kernel 'x': no valid time" of each such row.
std::string never_chosen_rows(const LookupReport& report) {
  std::string text;
  for (const LookupLevel& level : report.levels) {
    if (level.never_chosen == nullptr) continue;
    const TunedEntry& row = *level.never_chosen;
    text += fmt::format("; never chosen {}:{}, M = {}, kernel '{}': {}", level.tables->path_of(row), row.line,
                        row.problem.m, row.kernel_name, why_not_chosen(row));
  }
  return text;
}

/// Appends the levels of one table set, each with its row.
void add_levels(LookupReport& report, const TableSet& tables, const Device* device,
                const LookupRequest& request) {
  const LookupKey key{report.gfx, report.cu_num, request.problem, request.unknown_types};
  std::vector<LookupLevel> levels = levels_of(tables, request.problem);
  for (const LookupHit& hit : tables.lookup(key)) {
    LookupLevel& level =
        *std::ranges::find_if(levels, [&](const LookupLevel& one) { return one.level == hit.match; });
    if (level.row != nullptr && (level.answers || device == nullptr))
      continue;  // a nearer row of a bit class
    level.row = hit.entry;
    level.hit_m = hit.hit_m;
    bind_level(level, device, request);
  }
  order_levels(levels);
  name_never_chosen(levels, tables,
                    {report.gfx, report.cu_num, group_of(request.problem), false, report.unknown_types});
  report.levels.insert(report.levels.end(), levels.begin(), levels.end());
}

/// Of a CPU, after all rows of its own.
void add_fewer_threads(LookupReport& report, const TableSet& tables, const Device* device,
                       const LookupRequest& request) {
  if (!cpu_architecture(report.gfx) || !tables.fewer_threads || request.strict_environment) return;
  LookupLevel& level = report.levels.emplace_back();
  level.tables = &tables;
  level.level = Match::fewer_threads;
  level.tried_m = request.problem.m;
  const auto hit =
      tables.lookup_fewer_threads({report.gfx, report.cu_num, request.problem, request.unknown_types});
  if (!hit) return;
  level.row = hit->entry;
  level.hit_m = hit->hit_m;
  bind_level(level, device, request);
}

LookupHit hit_of(const LookupLevel& level) { return {level.level, level.hit_m, level.row}; }

/// A row as the report's answer.
void answer_with(LookupReport& report, const LookupLevel& level) {
  report.level = level.level;
  report.hit_m = level.hit_m;
  report.row = level.row;
  report.file = level.tables->path_of(*level.row);
  report.line = level.row->line;
  report.card = level.tables->model_of(*level.row);
  report.kernel_name = level.row->kernel_name;
  report.libtype = level.row->libtype;
  report.runnable = level.runnable;
  if (!level.runnable) report.why = level.why;
  report.rule = describe_hit(*level.tables, hit_of(level));
}

void answer_with_fallback(LookupReport& report, const Device& device) {
  const auto bound = bind_fallback(device, report.problem);
  report.runnable = bound.ok();
  if (!bound.ok()) {
    report.why = bound.message();
    report.rule = "no row and no fallback";
    return;
  }
  report.kernel_name = bound->candidate.kernel_name();
  report.libtype = bound->candidate.family;
  report.rule = describe_fallback(report.problem, *bound);
}

/// The level that answers, null if none does.
const LookupLevel* answering_level(const LookupReport& report, bool as_dispatch) {
  for (const LookupLevel& level : report.levels) {
    if (level.row != nullptr && (level.answers || !as_dispatch)) return &level;
  }
  return nullptr;
}

/// Levels as AITER has them: a row answers its level whatever its time and its error are.
void choose_as_aiter(LookupReport& report, const Device* device, const LookupRequest& request) {
  for (LookupLevel& level : report.levels) {
    // AITER's dispatch drops rows of such a tag, too.
    if (level.row != nullptr || level.never_chosen == nullptr || !is_of_look_up(*level.never_chosen))
      continue;
    level.row = std::exchange(level.never_chosen, nullptr);
    level.why.clear();
    bind_level(level, device, request);
  }
}

/// Rows better than the answer that did not answer, in words.
std::string passed_over(const LookupReport& report) {
  std::string text;
  for (const LookupLevel& level : report.levels) {
    if (level.row == nullptr) continue;
    if (level.row == report.row) break;
    text += describe_passed({level.tables, hit_of(level), level.refusal, level.why});
  }
  return text;
}

}  // namespace

Result<LookupReport> explain_lookup(const LookupTables& tables, const Device* device,
                                    const LookupRequest& request) {
  const bool table_only = request.gfx.has_value() || request.cu_num.has_value();
  const bool as_dispatch = !table_only || request.runnable;
  if (device == nullptr && (as_dispatch || !request.gfx || !request.cu_num)) {
    return Status::invalid(
        "look-up without a device: expected gfx and cu_num, and no question for what runs here");
  }
  GEMMTUNE_RETURN_IF_ERROR(check_asked(request.problem));
  LookupReport report;
  report.gfx = request.gfx ? *request.gfx : device->info().gfx;
  report.cu_num = request.cu_num ? *request.cu_num : device->info().cu_num;
  report.problem = request.problem;
  report.unknown_types = request.unknown_types;
  add_levels(report, *tables.tuned, device, request);
  if (tables.online != nullptr) add_levels(report, *tables.online, device, request);
  add_fewer_threads(report, *tables.tuned, device, request);
  if (const TableSet* shipped = tables.shipped(); shipped != nullptr && !shipped->table.entries().empty())
    add_levels(report, *shipped, device, request);
  if (request.as_aiter) choose_as_aiter(report, device, request);
  if (const LookupLevel* level = answering_level(report, as_dispatch)) {
    answer_with(report, *level);
  } else if (as_dispatch) {
    answer_with_fallback(report, *device);
  } else {
    report.rule = "no row";
    const std::string never_chosen = never_chosen_rows(report);
    report.why = never_chosen.empty() ? "the table has no row for this problem"
                                      : "no row of this problem may be chosen" + never_chosen;
  }
  if (report.row == nullptr) report.rule += never_chosen_rows(report);
  if (as_dispatch) report.rule += passed_over(report);
  return report;
}

}  // namespace gemmtune
