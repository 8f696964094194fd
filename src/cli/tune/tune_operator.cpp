#include "cli/tune/tune_operator.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/file.h"
#include "cli/command.h"
#include "cli/inspect/bench_report.h"
#include "cli/shared/console.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "resolve/bind.h"
#include "resolve/online_rows.h"
#include "tuned/key.h"

namespace gemmtune::cli {

CandidateFile::CandidateFile(const std::string& output)
    : folder_(std::filesystem::temp_directory_path() / fmt::format("gemmtune_compare.{}", getpid())),
      path_((folder_ / (std::filesystem::path(output).stem().string() + ".candidate.csv")).string()) {}

CandidateFile::~CandidateFile() {
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

Status CandidateFile::make() const { return make_folders(folder_.string()); }

namespace {

int run_and_report(const TuneOptions& options, Device& device, const BenchRequest& request,
                   const BenchNames& names) {
  Console console(options.quiet);
  InProcessEvaluator evaluator(
      device, in_process_options(device, policy_of(options, device.info()), options.request.max_err_ratio));
  const std::vector<BenchRow> rows = run_bench(device, evaluator, request, console);
  fmt::print("{}",
             options.json ? bench_json("tune --run_config", rows, device.info()) : bench_text(rows, names));
  return bench_code(rows);
}

std::string improvement_text(const std::vector<BenchRow>& rows, double min_percent) {
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
    std::string word(to_string(improvement_of(row, min_percent)));
    if (row.status != BenchStatus::ok) word = std::string(to_string(row.status));
    table.add({short_name(row.shape.problem), time(row.other_microseconds), time(row.microseconds),
               percent ? fmt::format("{:+.1f} %", *percent) : "-", word, row.kernel});
  }
  return table.text(stdout_is_terminal() ? stdout_columns() : 0);
}

/// The tuned entries whose row improved.
std::vector<TunedEntry> improved_entries(const RunSummary& summary, const std::vector<BenchRow>& rows,
                                         double min_percent) {
  std::vector<TunedEntry> entries;
  for (const BenchRow& row : rows) {
    if (row.status != BenchStatus::ok || improvement_of(row, min_percent) == Improvement::keep) continue;
    const auto report =
        std::find_if(summary.items.begin(), summary.items.end(), [&](const ItemReport& candidate) {
          return candidate.row() != nullptr && same_key(candidate.shape.problem, row.shape.problem);
        });
    if (report != summary.items.end()) entries.push_back(*report->row());
  }
  return entries;
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

int compare_rows(const TuneOptions& options, const Outputs& outputs, Device& device,
                 const TuneRequest& request, const RunSummary& summary, Console& console,
                 Evaluator& evaluator) {
  const Operation operation = request.shapes.front().problem.operation;
  std::vector<TablePath> before_paths{{operation, outputs.tuned}};
  for (const std::string& path : outputs.also_read) before_paths.push_back({operation, path});
  const TableSet before = load_table_set(before_paths);
  TunedFile tuned;
  tuned.path = request.output;
  std::vector<ShapeRow> shapes;
  for (const ItemReport& report : summary.items) {
    if (report.row() == nullptr || report.state == ProblemState::skipped_done) continue;
    tuned.entries.push_back(*report.row());
    shapes.push_back(report.shape);
  }
  const TableSet after = table_set_of(std::move(tuned));
  const BenchRequest bench{.shapes = std::move(shapes), .tables = after, .against = LookupTables(before)};
  const std::vector<BenchRow> rows = run_bench(device, evaluator, bench, console);
  const std::vector<TunedEntry> improved = improved_entries(summary, rows, options.min_improvement);
  std::string ending = fmt::format("{} of {} improved by at least {} % or had no time", improved.size(),
                                   counted(rows.size(), "row"), options.min_improvement);
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
    fmt::print("{}{}\n", improvement_text(rows, options.min_improvement), ending);
  }
  const bool failed = std::any_of(summary.items.begin(), summary.items.end(), [](const ItemReport& report) {
    return report.state == ProblemState::failed || report.state == ProblemState::unsupported;
  });
  return failed && bench_code(rows) == exit_done ? exit_findings : bench_code(rows);
}

}  // namespace gemmtune::cli
