#include "cli/tune/range_report.h"

#include <fmt/format.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "cli/command.h"
#include "cli/shared/console.h"
#include "cli/shared/report_parts.h"

namespace gemmtune::cli {
namespace {

using Json = nlohmann::ordered_json;

bool has_rows(const MRangeReport& report) { return !report.rows.empty(); }

std::string range_table(const MRangeSummary& summary) {
  TextTable table({{"weight (N x K)", false, true},
                   {"M", true, false},
                   {"verdict", false, false},
                   {"speed-up", true, false},
                   {"regret", true, false},
                   {"tuned µs", true, false},
                   {"kernel", false, true}});
  for (const MRangeReport& report : summary.groups) {
    for (const TunedEntry& row : report.rows) {
      table.add({weight_text(row.problem),
                 fmt::format("{} to {}", row.m_from.value_or(row.problem.m), row.problem.m),
                 std::string(to_string(row.verdict)), speedup_text(row.speedup),
                 fmt::format("{:.2f} %", 100 * row.regret.value_or(0)), fmt::format("{:.2f}", row.us),
                 row.kernel_name});
    }
  }
  if (table.empty()) return {};
  return table.text(stdout_is_terminal() ? stdout_columns() : 0) + "\n";
}

std::string range_counts(const RangeEnding& ending) {
  const MRangeSummary& summary = ending.summary;
  std::size_t rows = 0;
  std::size_t searched = 0;
  for (const MRangeReport& report : summary.groups) {
    rows += report.rows.size();
    searched += report.tuned;
  }
  return fmt::format("{} over M = {} to {} in {}: {}, {} M searched",
                     counted(summary.groups.size(), "weight"), ending.range.first, ending.range.last,
                     duration(summary.seconds), counted(rows, "row"), searched) +
         rare_counts(summary.groups,
                     {{ProblemState::failed, "failed"},
                      {ProblemState::unsupported, "that no family takes"},
                      {ProblemState::skipped_done, "already in the file"},
                      {ProblemState::out_of_budget, "not finished"}},
                     ending.shapes, summary.candidates);
}

std::string range_reasons(const MRangeSummary& summary) {
  std::string text;
  for (const MRangeReport& report : summary.groups) {
    if (report.state != ProblemState::tuned && report.state != ProblemState::kept_default &&
        report.state != ProblemState::skipped_done)
      text += fmt::format("  {}: {}\n", weight_text(report.shape.problem), report.reason);
    for (const std::string& failure : report.failures)
      text += fmt::format("  {}: no kernel at {}\n", weight_text(report.shape.problem), failure);
  }
  return text.empty() ? text : "not everywhere:\n" + text;
}

Json range_row_json(const TunedEntry& row) {
  Json json;
  json["m_from"] = row.m_from ? Json(*row.m_from) : Json();
  json["m"] = row.problem.m;
  add_row(row, json);
  json["regret"] = number_or_null(row.regret);
  return json;
}

Json group_json(const MRangeReport& report) {
  Json json;
  json["n"] = report.shape.problem.n;
  json["k"] = report.shape.problem.k;
  json["problem"] = print(report.shape.problem);
  json["calls"] = report.shape.calls;
  json["state"] = to_string(report.state);
  if (!report.reason.empty()) json["reason"] = report.reason;
  if (!report.refusals.empty()) json["refusals"] = report.refusals;
  json["failures"] = report.failures;
  json["rows"] = Json::array();
  for (const TunedEntry& row : report.rows) json["rows"].push_back(range_row_json(row));
  json["searched"] = report.tuned;
  json["compared"] = report.compared;
  json["finals_calls"] = report.finals_calls;
  json["settled_share"] = report.settled_share;
  json["seconds"] = report.seconds;
  return json;
}

}  // namespace

std::string weight_text(const Problem& problem) {
  Problem any = problem;
  any.m = 1;
  const std::string text = short_name(any);  // "1x2048x2048 bf16"
  const auto first = text.find('x');
  return first == std::string::npos ? text : text.substr(first + 1);
}

std::string group_text(const MRangeReport& report) {
  const std::string work =
      fmt::format("{}, {} M searched, {} compared, {}", counted(report.rows.size(), "row"), report.tuned,
                  report.compared, duration(report.seconds));
  if (report.state == ProblemState::tuned || report.state == ProblemState::kept_default) return work;
  std::string text(to_string(report.state));
  if (!report.reason.empty()) text += ": " + report.reason;
  return has_rows(report) ? fmt::format("{}; {}", text, work) : text;
}

std::string ending_text(const RangeEnding& ending) {
  const MRangeSummary& summary = ending.summary;
  if (count_of(summary.groups, ProblemState::skipped_done) == summary.groups.size() && !ending.interrupted) {
    return fmt::format(
        "nothing to do: ranges of M = {} to {} of {} are in {} already (use --all to tune again)\n",
        ending.range.first, ending.range.last, counted(summary.groups.size(), "weight"),
        ending.outputs.tuned);
  }
  std::string text = range_table(summary) + range_counts(ending);
  if (summary.geometric_mean_speedup > 0) {
    text += fmt::format("geometric-mean speed-up over the default, of the rows: {:.3f}x\n",
                        summary.geometric_mean_speedup);
  }
  text += range_reasons(summary);
  if (ending.interrupted) {
    text += "interrupted: the ranges that were verified by then are in the file; the same command goes on\n";
  } else if (count_of(summary.groups, ProblemState::out_of_budget) > 0) {
    text += "the budget ended before the M axis was settled; the same command goes on from there\n";
  }
  if (std::any_of(summary.groups.begin(), summary.groups.end(), has_rows)) {
    text += fmt::format("written: {}\n", ending.outputs.tuned);
  }
  return text;
}

std::string ending_json(const RangeEnding& ending) {
  Json json;
  json["command"] = "tune";
  json["m_range"] = {ending.range.first, ending.range.last};
  json["device"] = device_json(ending.device);
  json["weights"] = Json::array();
  for (const MRangeReport& report : ending.summary.groups) json["weights"].push_back(group_json(report));
  json["diagnostics"] = ending.shapes.diagnostics;
  json["geometric_mean_speedup"] = ending.summary.geometric_mean_speedup;
  json["candidates"] = ending.summary.candidates;
  json["seconds"] = ending.summary.seconds;
  json["output"] = ending.outputs.tuned;
  json["interrupted"] = ending.interrupted;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int ending_code(const RangeEnding& ending) {
  if (ending.interrupted) return exit_interrupted;
  const auto& groups = ending.summary.groups;
  const bool gaps = std::any_of(groups.begin(), groups.end(),
                                [](const MRangeReport& report) { return !report.failures.empty(); });
  const bool findings = gaps || count_of(ending.summary.groups, ProblemState::failed) > 0 ||
                        count_of(ending.summary.groups, ProblemState::unsupported) > 0 ||
                        !ending.shapes.diagnostics.empty();
  return findings ? exit_findings : exit_done;
}

TuneSummary as_problems(const MRangeSummary& summary) {
  TuneSummary problems;
  for (const MRangeReport& report : summary.groups) {
    ProblemReport& problem = problems.problems.emplace_back();
    problem.shape = report.shape;
    problem.state = report.state;
    problem.reason = report.reason;
  }
  return problems;
}

}  // namespace gemmtune::cli
