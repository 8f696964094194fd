#include "cli/shared/bench_report.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/interrupt.h"
#include "cli/command.h"
#include "cli/shared/report_parts.h"
#include "formats/json.h"
#include "measure/statistics.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

std::string time_text(const std::optional<double>& microseconds) {
  return microseconds ? fmt::format("{:.2f}", *microseconds) : std::string("-");
}

/// How many times faster A is than B.
std::optional<double> speedup_of(const BenchRow& row) {
  return row.ratio ? std::optional(1 / *row.ratio) : std::nullopt;
}

std::string match_text(const BenchRow& row) {
  return row.hit_m > 0 ? fmt::format("{} M={}", to_string(row.match), row.hit_m)
                       : std::string(to_string(row.match));
}

double geometric_mean_speedup(const std::vector<BenchRow>& rows) {
  std::vector<double> speedups;
  for (const BenchRow& row : rows) {
    if (row.ratio && row.status == BenchStatus::ok) speedups.push_back(*speedup_of(row));
  }
  return geometric_mean(speedups);
}

}  // namespace

std::vector<BenchRow> run_bench(const Device& device, Evaluator& evaluator, const BenchRequest& request,
                                Console& console) {
  watch_for_interrupts();
  std::vector<BenchRow> rows;
  for (std::size_t i = 0; i < request.shapes.size() && !interrupted(); ++i) {
    console.live_line(
        fmt::format("[{}/{}] {}", i + 1, request.shapes.size(), short_name(request.shapes[i].problem)));
    BenchRequest one = request;
    one.shapes = {request.shapes[i]};
    for (BenchRow& row : bench_operator(device, evaluator, one, {})) {
      console.clear_live_line();
      console.line(fmt::format("[{}/{}] {}: {} µs, {}", i + 1, request.shapes.size(),
                               short_name(row.shape.problem), time_text(row.microseconds),
                               std::string(to_string(row.status))));
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

std::string bench_text(const std::vector<BenchRow>& rows, const BenchNames& names) {
  TextTable table({{"shape (M x N x K)", false, true},
                   {"verdict", false, false},
                   {"speed-up", true, false},
                   {names.b + " µs", true, false},
                   {names.a + " µs", true, false},
                   {"match", false, false},
                   {"status", false, false},
                   {"kernel", false, true}});
  std::string notes;
  for (const BenchRow& row : rows) {
    table.add({short_name(row.shape.problem), std::string(to_string(row.verdict)),
               speedup_text(speedup_of(row)), time_text(row.other_microseconds), time_text(row.microseconds),
               match_text(row), std::string(to_string(row.status)), row.kernel});
    if (row.passed_rows) notes += fmt::format("{}: {}\n", short_name(row.shape.problem), row.rule);
    if (row.accuracy != Accuracy::fp32)
      notes += fmt::format("{}: accuracy class {}, against {}\n", short_name(row.shape.problem),
                           to_string(row.accuracy), to_string(row.other_accuracy));
    if (!row.reason.empty()) notes += fmt::format("{}: {}\n", short_name(row.shape.problem), row.reason);
    if (row.status != BenchStatus::ok && !row.kernel.empty())
      notes += fmt::format("  repeat: {}\n", check_command(row.shape.problem, row.kernel));
  }
  std::string text = table.text(stdout_is_terminal() ? stdout_columns() : 0) + "\n" + notes;
  if (const double mean = geometric_mean_speedup(rows); mean > 0) {
    text += fmt::format("geometric-mean speed-up over {}: {:.3f}x\n", names.b, mean);
  }
  return text;
}

std::string bench_json(const std::string& command, const std::vector<BenchRow>& rows,
                       const DeviceInfo& device) {
  Json json;
  json["command"] = command;
  json["device"] = {{"name", device.name}, {"gfx", device.gfx}, {"cu_num", device.cu_num}};
  json["rows"] = Json::array();
  for (const BenchRow& row : rows) {
    Json entry = {{"problem", print(row.shape.problem)},
                  {"m", row.shape.problem.m},
                  {"n", row.shape.problem.n},
                  {"k", row.shape.problem.k},
                  {"kernelName", row.kernel},
                  {"match", to_string(row.match)},
                  {"hit_m", row.hit_m},
                  {"rule", row.rule},
                  {"accuracy", to_string(row.accuracy)},
                  {"other_kernel", row.other_kernel},
                  {"other_accuracy", row.other_kernel.empty() ? Json() : Json(to_string(row.other_accuracy))},
                  {"other_rule", row.other_rule},
                  {"us", number_or_null(row.microseconds)},
                  {"other_us", number_or_null(row.other_microseconds)},
                  {"ratio", number_or_null(row.ratio)},
                  {"verdict", to_string(row.verdict)},
                  {"err_ratio", row.err_ratio},
                  {"status", to_string(row.status)},
                  {"reason", row.reason}};
    entry["certain_ratio"] = number_or_null(row.certain_ratio);
    entry["interval"] = row.interval ? Json({row.interval->low, row.interval->high}) : Json();
    json["rows"].push_back(std::move(entry));
  }
  json["geometric_mean_speedup"] = geometric_mean_speedup(rows);
  return json_document(json);
}

std::string regressions_text(const std::vector<BenchRow>& rows, double percent) {
  std::string text;
  for (const BenchRow& row : rows) {
    if (!is_regression(row, percent)) continue;
    text += fmt::format(
        "slower: {}: {} takes {:.3f} times as long as {} (at least {:.3f} with 99.9 % confidence)\n",
        short_name(row.shape.problem), row.kernel, *row.ratio, row.other_kernel, *row.certain_ratio);
  }
  return text;
}

int bench_code(const std::vector<BenchRow>& rows) {
  if (interrupted()) return exit_interrupted;
  const bool right =
      std::ranges::all_of(rows, [](const BenchRow& row) { return row.status == BenchStatus::ok; });
  return right ? exit_done : exit_findings;
}

}  // namespace gemmtune::cli
