#include "cli/tune/tune_operator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>

#include "base/file.h"
#include "cli/command.h"
#include "cli/inspect/bench_report.h"
#include "cli/shared/console.h"
#include "cli/shared/interrupt.h"
#include "cli/tune/interruptible_evaluator.h"
#include "cli/tune/tune_progress.h"
#include "cli/tune/tune_report.h"
#include "cli/tune/tune_workers.h"
#include "resolve/bind.h"
#include "resolve/online_rows.h"
#include "tuned/key.h"

namespace gemmtune::cli {
namespace {

int run_and_report(const TuneOptions& options, Device& device, const BenchRequest& request,
                   const BenchNames& names) {
  Console console(options.quiet);
  InProcessEvaluator evaluator(
      device, in_process_options(device, policy_of(options, device.info()), options.max_err_ratio));
  const std::vector<BenchRow> rows = run_bench(device, evaluator, request, console);
  fmt::print("{}",
             options.json ? bench_json("tune --run_config", rows, device.info()) : bench_text(rows, names));
  return bench_code(rows);
}

/// A tuned file beside nobody's: of this process, removed with all that belongs to it.
class CandidateFile {
 public:
  explicit CandidateFile(const std::string& output)
      : folder_(std::filesystem::temp_directory_path() / fmt::format("gemmtune_compare.{}", getpid())),
        path_((folder_ / (std::filesystem::path(output).stem().string() + ".candidate.csv")).string()) {}
  ~CandidateFile() {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  CandidateFile(const CandidateFile&) = delete;
  CandidateFile& operator=(const CandidateFile&) = delete;

  Status make() const { return make_folders(folder_.string()); }
  const std::string& path() const { return path_; }

 private:
  std::filesystem::path folder_;
  std::string path_;
};

std::string improvement_text(const std::vector<BenchRow>& rows, double least_percent) {
  TextTable table({{"shape (M x N x K)", false, true},
                   {"before µs", true, false},
                   {"after µs", true, false},
                   {"improvement", true, false},
                   {"", false, false},
                   {"kernel", false, true}});
  for (const BenchRow& row : rows) {
    const auto percent = improvement_percent(row);
    const auto time = [](const std::optional<double>& value) {
      return value ? fmt::format("{:.2f}", *value) : "-";
    };
    std::string word(to_string(improvement_of(row, least_percent)));
    if (row.status != BenchStatus::ok) word = std::string(to_string(row.status));
    table.add({short_name(row.shape.problem), time(row.other_microseconds), time(row.microseconds),
               percent ? fmt::format("{:+.1f} %", *percent) : "-", word, row.kernel});
  }
  return table.text(stdout_is_terminal() ? stdout_columns() : 0);
}

/// The tuned entries whose row improved.
std::vector<TunedEntry> improved_entries(const TuneSummary& summary, const std::vector<BenchRow>& rows,
                                         double least_percent) {
  std::vector<TunedEntry> entries;
  for (const BenchRow& row : rows) {
    if (row.status != BenchStatus::ok || improvement_of(row, least_percent) == Improvement::keep) continue;
    const auto report =
        std::find_if(summary.problems.begin(), summary.problems.end(), [&](const ProblemReport& candidate) {
          return candidate.entry && same_key(candidate.shape.problem, row.shape.problem);
        });
    if (report != summary.problems.end()) entries.push_back(*report->entry);
  }
  return entries;
}

/// After tuning: times, report, and the rows that improved into the output.
int compare_rows(const TuneOptions& options, const Outputs& outputs, Device& device,
                 const TuneRequest& request, const TuneSummary& summary, Console& console,
                 Evaluator& evaluator) {
  const Operation operation = request.shapes.front().problem.operation;
  std::vector<TablePath> before_paths{{operation, outputs.tuned}};
  for (const std::string& path : outputs.also_read) before_paths.push_back({operation, path});
  const TableSet before = load_table_set(before_paths);
  TunedFile tuned;
  tuned.path = request.output;
  std::vector<ShapeRow> shapes;
  for (const ProblemReport& report : summary.problems) {
    if (!report.entry || report.state == ProblemState::skipped_done) continue;
    tuned.entries.push_back(*report.entry);
    shapes.push_back(report.shape);
  }
  const TableSet after = table_set_of(std::move(tuned));
  const BenchRequest bench{.shapes = std::move(shapes), .tables = after, .against = LookupTables(before)};
  const std::vector<BenchRow> rows = run_bench(device, evaluator, bench, console);
  const std::vector<TunedEntry> improved = improved_entries(summary, rows, options.least_improvement);
  std::string ending = fmt::format("{} of {} improved by at least {} % or had no time", improved.size(),
                                   counted(rows.size(), "row"), options.least_improvement);
  if (options.update_improved && !improved.empty()) {
    PublishOptions publish_options = request.publish;
    publish_options.environment_json = row_environment(device, request.policy).json;
    if (const Status status = publish(outputs.tuned, improved, publish_options); !status.ok()) {
      return usage_error("tune", status.message());
    }
    ending += fmt::format("; written to {}", outputs.tuned);
  } else {
    ending +=
        options.update_improved ? "; nothing to write" : "; nothing is written without --update_improved";
  }
  if (options.json) {
    fmt::print("{}", bench_json("tune --compare", rows, device.info()));
    console.line(ending);
  } else {
    fmt::print("{}{}\n", improvement_text(rows, options.least_improvement), ending);
  }
  const bool failed =
      std::any_of(summary.problems.begin(), summary.problems.end(), [](const ProblemReport& report) {
        return report.state == ProblemState::failed || report.state == ProblemState::unsupported;
      });
  return failed && bench_code(rows) == exit_done ? exit_findings : bench_code(rows);
}

}  // namespace

int run_operator_on_file(const TuneOptions& options, Device& device) {
  auto file = read_tuned_csv(*options.run_config, {.strict = options.strict});
  if (!file.ok()) return usage_error("tune", fmt::format("--run_config {}", file.message()));
  std::vector<ShapeRow> shapes;
  for (const TunedEntry& entry : file->entries) {
    const bool seen = std::any_of(shapes.begin(), shapes.end(), [&](const ShapeRow& shape) {
      return same_key(shape.problem, entry.problem);
    });
    if (!seen && row_is_of(entry, device.info())) shapes.push_back({entry.problem, 1, {}, entry.line});
  }
  if (shapes.empty()) {
    return usage_error("tune", fmt::format("--run_config {}: no row of this device ({}, cu_num {})",
                                           *options.run_config, device.info().gfx, device.info().cu_num));
  }
  const TableSet tables = table_set_of(std::move(*file));
  return run_and_report(options, device, {.shapes = std::move(shapes), .tables = tables},
                        {"tuned", "default"});
}

int run_operator_on_shapes(const TuneOptions& options, const Environment& environment, Device& device,
                           const ShapeList& shapes) {
  const TableSet tables = production_tables(environment);
  if (const Status fault = tables.first_fault(); !fault.ok()) return usage_error("tune", fault.message());
  const auto online = production_online_rows(environment, device);
  const BenchRequest request{.shapes = shapes.rows, .tables = {tables, online.get()}};
  return run_and_report(options, device, request, {"operator", "default"});
}

int compare_operator(const TuneOptions& options, const Environment& environment,
                     const std::vector<std::unique_ptr<Device>>& devices, const ShapeList& shapes) {
  if (devices.size() > 1) return usage_error("tune", "--compare takes one device");
  Device& device = *devices.front();
  auto outputs = outputs_of(options, environment, device.info(), shapes);
  if (!outputs.ok()) return usage_error("tune", outputs.message());
  const CandidateFile candidate(outputs->tuned);
  if (const Status status = candidate.make(); !status.ok()) return usage_error("tune", status.message());
  Outputs into = *outputs;
  into.also_read.insert(into.also_read.begin(), outputs->tuned);
  into.tuned = candidate.path();
  auto request = request_of(options, shapes, into, device);
  if (!request.ok()) return usage_error("tune", request.message());
  Console console(options.quiet);
  for (const std::string& diagnostic : shapes.diagnostics) console.urgent_line(diagnostic);
  watch_for_interrupts();
  const auto evaluators = make_evaluators(options, environment, devices, *request);
  Evaluator& evaluator = *evaluators.front();
  InterruptibleEvaluator interruptible(evaluator, interrupted);
  TuneProgress progress(console, device, nullptr, *request, options.verbose);
  const auto summary = tune(device, interruptible, *request, progress);
  if (!summary.ok()) return usage_error("tune", summary.message());
  if (interrupted()) return exit_interrupted;
  return compare_rows(options, *outputs, device, *request, *summary, console, evaluator);
}

}  // namespace gemmtune::cli
