#include "dispatch/lookup_report.h"

#include <utility>

#include "dispatch/planner.h"
#include "tuned/checks.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

/// The levels with the M each looks for, no row yet. Those that the operation's look-up does not have look
/// for its own M and never find one.
std::vector<LookupLevel> levels_of(const Problem& problem) {
  std::vector<LookupLevel> levels(4);
  levels[0].level = Match::exact;
  levels[1].level = Match::range;
  levels[2].level = Match::fine;
  levels[3].level = Match::coarse;
  for (LookupLevel& level : levels) level.tried_m = problem.m;
  const Padding padding = padding_of(problem.operation);
  if (padding == Padding::two_levels) {
    levels[2].tried_m = padded_m(problem.m, problem.n, 0);
    levels[3].tried_m = padded_m(problem.m, problem.n, 1);
  } else if (padding == Padding::token_tiers) {
    levels[3].tried_m = token_tier(problem.m);
  }
  return levels;
}

void judge_row(LookupLevel& level, const TableSet& tables, const Device* device, const Problem& problem) {
  if (device == nullptr) {
    level.why = "no device of this backend is open here";
    return;
  }
  const DeviceInfo& info = device->info();
  const bool other_device =
      !level.row->gfx.empty() && (level.row->gfx != info.gfx || level.row->cu_num != info.cu_num);
  if (other_device) {
    level.why = fmt::format("the row is of {} with cu_num {}, this is {} with {}", level.row->gfx,
                            level.row->cu_num, info.gfx, info.cu_num);
    return;
  }
  const auto bound = bind_kernel_name(*device, level.row->kernel_name, problem);
  level.runnable = bound.ok();
  level.why = bound.message();
  const std::string other = tables.other_environment(*level.row, device->info());
  level.other_environment = !other.empty();
  if (level.why.empty()) level.why = other;
}

/// A row as the report's answer.
void answer_with(LookupReport& report, const LookupLevel& level, const TableSet& tables) {
  report.level = level.level;
  report.hit_m = level.hit_m;
  report.row = level.row;
  report.file = tables.path_of(*level.row);
  report.line = level.row->line;
  report.kernel_name = level.row->kernel_name;
  report.libtype = level.row->libtype;
  report.runnable = level.runnable;
  if (!level.runnable) report.why = level.why;
  report.rule = describe_hit(tables, {level.level, level.hit_m, level.row});
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
  report.rule = describe_fallback(report.problem, bound->candidate);
}

/// The level that answers, null where none does.
const LookupLevel* choose(const LookupReport& report, const LookupRequest& request, bool as_dispatch) {
  for (const LookupLevel& level : report.levels) {
    if (level.row == nullptr) continue;
    if (!as_dispatch) return &level;
    if (level.runnable && !(request.strict_environment && level.other_environment)) return &level;
  }
  return nullptr;
}

/// Rows better than the answer that did not answer, in words.
std::string passed_over(const LookupReport& report, const TableSet& tables) {
  std::string text;
  for (const LookupLevel& level : report.levels) {
    if (level.row == nullptr) continue;
    if (level.row == report.row) break;
    text += fmt::format("; passed over {}, kernel '{}': {}",
                        describe_hit(tables, {level.level, level.hit_m, level.row}), level.row->kernel_name,
                        level.why);
  }
  return text;
}

}  // namespace

Result<LookupReport> explain_lookup(const TableSet& tables, const Device* device,
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
  report.levels = levels_of(request.problem);
  for (const LookupHit& hit : tables.table.lookup({report.gfx, report.cu_num, request.problem})) {
    LookupLevel& level = report.levels[static_cast<std::size_t>(hit.match)];
    level.row = hit.entry;
    level.hit_m = hit.hit_m;
    judge_row(level, tables, device, request.problem);
  }
  if (const LookupLevel* level = choose(report, request, as_dispatch)) {
    answer_with(report, *level, tables);
  } else if (as_dispatch) {
    answer_with_fallback(report, *device);
  } else {
    report.rule = "no row";
    report.why = "the table has no row for this problem";
  }
  if (as_dispatch) report.rule += passed_over(report, tables);
  return report;
}

}  // namespace gemmtune
