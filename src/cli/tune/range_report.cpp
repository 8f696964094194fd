#include "cli/tune/range_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/shared/console.h"
#include "cli/shared/report_parts.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

bool has_rows(const ItemReport& report) { return !report.rows.empty(); }

std::string range_table(const RunSummary& summary) {
  TextTable table({{"weight (N x K)", false, true},
                   {"M", true, false},
                   {"verdict", false, false},
                   {"speed-up", true, false},
                   {"95 %", true, false},
                   {"regret", true, false},
                   {"tuned µs", true, false},
                   {"kernel", false, true}});
  for (const ItemReport& report : summary.items) {
    for (const TunedEntry& row : report.rows) {
      table.add({weight_text(row.problem),
                 fmt::format("{} to {}", row.m_from.value_or(row.problem.m), row.problem.m),
                 std::string(to_string(row.verdict)), speedup_text(row.speedup), interval_text(row),
                 fmt::format("{:.2f} %", 100 * row.regret.value_or(0)), fmt::format("{:.2f}", row.us),
                 row.kernel_name});
    }
  }
  if (table.empty()) return {};
  return table.text(stdout_is_terminal() ? stdout_columns() : 0) + "\n";
}

std::string range_counts(const RunEnding& ending) {
  const RunSummary& summary = ending.summary;
  std::size_t rows = 0;
  std::size_t searched = 0;
  for (const ItemReport& report : summary.items) {
    rows += report.rows.size();
    searched += report.range->searched;
  }
  return fmt::format("{} over M = {} to {} in {}: {}, {} M searched", counted(summary.items.size(), "weight"),
                     ending.range->first, ending.range->last, duration(summary.seconds), counted(rows, "row"),
                     searched) +
         rare_counts(summary.items,
                     {{ProblemState::failed, "failed"},
                      {ProblemState::unsupported, "that no family takes"},
                      {ProblemState::skipped_done, "already in the file"},
                      {ProblemState::out_of_budget, "not finished"},
                      {ProblemState::interrupted, "interrupted"}},
                     ending.shapes, summary.candidates);
}

std::string range_reasons(const RunSummary& summary) {
  std::string text;
  for (const ItemReport& report : summary.items) {
    if (report.state != ProblemState::tuned && report.state != ProblemState::kept_default &&
        report.state != ProblemState::skipped_done)
      text += fmt::format("  {}: {}\n", weight_text(report.shape.problem), report.reason);
    for (const std::string& failure : report.range->failures)
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

}  // namespace

std::string weight_text(const Problem& problem) {
  Problem any = problem;
  any.m = 1;
  const std::string text = short_name(any);  // "1x2048x2048 bf16"
  const auto first = text.find('x');
  return first == std::string::npos ? text : text.substr(first + 1);
}

std::string range_result_text(const ItemReport& report) {
  const std::string work =
      fmt::format("{}, {} M searched, {} compared, {}", counted(report.rows.size(), "row"),
                  report.range->searched, report.range->compared, duration(report.seconds));
  if (report.state == ProblemState::tuned || report.state == ProblemState::kept_default) return work;
  std::string text(to_string(report.state));
  if (!report.reason.empty()) text += ": " + report.reason;
  return has_rows(report) ? fmt::format("{}; {}", text, work) : text;
}

std::string range_ending_text(const RunEnding& ending) {
  const RunSummary& summary = ending.summary;
  if (count_of(summary.items, ProblemState::skipped_done) == summary.items.size() && !ending.interrupted) {
    return fmt::format(
        "nothing to do: ranges of M = {} to {} of {} are in {} already (use --all to tune again)\n",
        ending.range->first, ending.range->last, counted(summary.items.size(), "weight"),
        ending.outputs.tuned);
  }
  std::string text = range_table(summary) + range_counts(ending);
  if (summary.geometric_mean_speedup > 0) {
    text += fmt::format("geometric-mean speed-up over the default, of the rows: {:.3f}x{}\n",
                        summary.geometric_mean_speedup, opponents_text(summary, ending.device));
  }
  text += range_reasons(summary);
  if (ending.interrupted) {
    text += "interrupted: the ranges that were verified by then are in the file; the same command goes on\n";
  } else if (count_of(summary.items, ProblemState::out_of_budget) > 0) {
    text += "the budget ended before the M axis was settled; the same command goes on from there\n";
  }
  if (std::ranges::any_of(summary.items, has_rows)) {
    text += fmt::format("written: {}\n", ending.outputs.tuned);
  }
  return text;
}

Json range_json(const ItemReport& report) {
  Json json;
  json["n"] = report.shape.problem.n;
  json["k"] = report.shape.problem.k;
  json["problem"] = print(report.shape.problem);
  json["calls"] = report.shape.calls;
  json["state"] = to_string(report.state);
  if (!report.reason.empty()) json["reason"] = report.reason;
  if (!report.refusals.empty()) json["refusals"] = report.refusals;
  json["failures"] = report.range->failures;
  json["rows"] = Json::array();
  for (const TunedEntry& row : report.rows) json["rows"].push_back(range_row_json(row));
  json["searched"] = report.range->searched;
  json["compared"] = report.range->compared;
  json["finals_calls"] = report.range->finals_calls;
  json["settled_share"] = report.range->settled_share;
  json["seconds"] = report.seconds;
  return json;
}

}  // namespace gemmtune::cli
