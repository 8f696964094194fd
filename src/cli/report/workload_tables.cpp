// A captured workload: what its calls gain, and how the tables serve it.

#include <algorithm>
#include <cmath>
#include <map>

#include "cli/report/report_tables.h"
#include "tuned/coverage.h"

namespace gemmtune::cli {
namespace {

constexpr std::size_t listed_untuned = 50;

ReportValue percent_value(double part, double whole) {
  return whole > 0 ? ReportValue(100 * part / whole) : ReportValue();
}

/// The fewest tokens that a weight of the workload saw: each passes every weight at least once.
double estimated_tokens(const std::vector<WorkloadShape>& workload) {
  std::unordered_map<Problem, double, SameKeyHash, SameKey> tokens;
  for (const WorkloadShape& shape : workload)
    tokens[weight_of(shape.problem)] +=
        static_cast<double>(shape.calls) * static_cast<double>(shape.problem.m);
  double fewest = 0;
  for (const auto& each : tokens) fewest = fewest > 0 ? std::min(fewest, each.second) : each.second;
  return fewest;
}

/// What one call costs with the default kernel; nullopt where its row was not compared with one.
std::optional<double> default_call(const ServedShape& served) {
  if (served.row == nullptr || !served.row->speedup || !valid_time(served.row->us)) return std::nullopt;
  return served.us * *served.row->speedup;
}

struct WorkloadTables {
  ReportTable sums{"workload",
                   "The captured workload",
                   "Calls times the µs of the row that answers them; the default's side by the paired ratio. "
                   "Tokens are those of --tokens; else they are estimated: calls times M of the weight that "
                   "saw the fewest, as if that one ran once a token.",
                   {{"view", "device and operation", text_kind},
                    {"shapes", "shapes"},
                    {"calls", "calls"},
                    {"tokens", "tokens"},
                    {"tokens_from", "tokens of", text_kind},
                    {"ms", "ms", ReportKind::number, 3},
                    {"compared_ms", "of it compared, ms", ReportKind::number, 3},
                    {"default_ms", "the same with the default, ms", ReportKind::number, 3},
                    {"saved_ms", "saved, ms", ReportKind::number, 3},
                    {"saved_us_per_token", "µs saved a token", ReportKind::number, 3},
                    {"speedup", "speed-up by calls", ReportKind::number, 3}}};
  ReportTable shapes{"workload_shapes",
                     "Where the time goes",
                     "Shapes of the workload, by the row that answers.",
                     {{"view", "device and operation", text_kind},
                      {"m", "M"},
                      {"n", "N"},
                      {"k", "K"},
                      {"layer", "layer", text_kind},
                      {"match", "answered by", text_kind},
                      {"verdict", "verdict", text_kind},
                      {"calls", "calls"},
                      {"us", "µs a call", ReportKind::number, 3},
                      {"default_us", "default µs", ReportKind::number, 3},
                      {"total_us", "µs in all", ReportKind::number, 1},
                      {"saved_us", "µs saved in all", ReportKind::number, 2},
                      {"time_percent", "% of time", ReportKind::number, 1},
                      {"estimated", "estimated", text_kind, ReportColumn::all_digits, true}}};
  ReportTable coverage{
      "coverage",
      "Coverage of the workload",
      "As `gemmtune coverage`: which level of the look-up answers. Untuned calls are estimated.",
      {{"view", "device and operation", text_kind},
       {"level", "level", text_kind},
       {"shapes", "shapes"},
       {"calls", "calls"},
       {"calls_percent", "% of calls", ReportKind::number, 1},
       {"us", "µs", ReportKind::number, 3},
       {"us_percent", "% of time", ReportKind::number, 1}}};
  ReportTable misses{"misses",
                     "Untuned shapes",
                     "Most calls first.",
                     {{"view", "device and operation", text_kind},
                      {"problem", "problem", text_kind},
                      {"calls", "calls"},
                      {"us", "estimated µs a call", ReportKind::number, 3}}};

  void add(const ReportInputs& inputs, const ShapeList& list, const Coverage& coverage_of,
           const std::string& view, const std::vector<WorkloadShape>& workload) {
    double us = 0;
    double defaults = 0;
    for (const ServedShape& served : coverage_of.shapes) {
      const auto calls = static_cast<double>(served.shape->calls);
      const auto by_default = default_call(served);
      if (by_default) {
        us += calls * served.us;
        defaults += calls * *by_default;
      }
      const Problem& problem = served.shape->problem;
      const ShapeRow& row = list.rows[static_cast<std::size_t>(served.shape - workload.data())];
      shapes.add({view, problem.m, problem.n, problem.k, row.layer, to_string(served.match),
                  served.row != nullptr ? to_string(served.row->verdict) : "", calls, served.us, by_default,
                  calls * served.us,
                  by_default ? ReportValue(calls * (*by_default - served.us)) : ReportValue(),
                  percent_value(calls * served.us, coverage_of.total.us), served.estimated ? "yes" : ""});
    }
    const double tokens = inputs.tokens > 0 ? inputs.tokens : estimated_tokens(workload);
    const bool compared = defaults > 0;
    sums.add({view, workload.size(), coverage_of.total.calls, tokens,
              inputs.tokens > 0 ? "--tokens" : "estimated", coverage_of.total.us / 1000, us / 1000,
              compared ? ReportValue(defaults / 1000) : ReportValue(),
              compared ? ReportValue((defaults - us) / 1000) : ReportValue(),
              compared && tokens > 0 ? ReportValue((defaults - us) / tokens) : ReportValue(),
              compared && us > 0 ? ReportValue(defaults / us) : ReportValue()});
    for (const Match match : matches_in_order) {
      const LevelShare& level = coverage_of.at(match);
      if (match == Match::fewer_threads && level.shapes == 0) continue;
      coverage.add({view, to_string(match), level.shapes, level.calls,
                    percent_value(level.calls, coverage_of.total.calls), level.us,
                    percent_value(level.us, coverage_of.total.us)});
    }
    for (const ServedShape* miss : worst_misses(coverage_of, listed_untuned)) {
      misses.add({view, print(miss->shape->problem), miss->shape->calls,
                  miss->us > 0 ? ReportValue(miss->us) : ReportValue()});
    }
  }
};

}  // namespace

void add_workload_tables(const ReportInputs& inputs, std::vector<ReportTable>& tables) {
  if (inputs.captures.empty()) return;
  std::vector<TunedEntry> entries;
  for (const TunedFile& file : inputs.tuned.files)
    entries.insert(entries.end(), file.entries.begin(), file.entries.end());
  const TunedTable table(std::move(entries));
  WorkloadTables workload_tables;
  for (const ShapeList& list : inputs.captures) {
    std::vector<WorkloadShape> workload;
    for (const ShapeRow& row : list.rows) workload.push_back({row.problem, row.calls});
    std::map<std::string, std::pair<std::string, int>> devices;  // by view
    for (const TunedEntry& row : table.entries()) {
      if (form_of(row.problem) != list.operation || row.cu_num == 0) continue;
      devices[view_of(row)] = {std::string(row.gfx.empty() ? gfx_of_cu_num(row.cu_num) : row.gfx),
                               row.cu_num};
    }
    for (const auto& [view, device] : devices)
      workload_tables.add(inputs, list, cover(table, device.first, device.second, workload), view, workload);
  }
  tables.push_back(std::move(workload_tables.sums));
  tables.push_back(std::move(workload_tables.shapes));
  tables.push_back(std::move(workload_tables.coverage));
  tables.push_back(std::move(workload_tables.misses));
}

}  // namespace gemmtune::cli
