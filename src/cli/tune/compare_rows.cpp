#include "cli/tune/compare_rows.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <unordered_map>
#include <utility>

#include "base/file.h"
#include "cli/command.h"
#include "cli/shared/bench_report.h"
#include "cli/tune/tune_report.h"
#include "tuned/key.h"

namespace gemmtune::cli {

CandidateFile::CandidateFile(const std::string& output)
    : name_(std::filesystem::path(output).stem().string() + ".candidate.csv") {}

CandidateFile::~CandidateFile() {
  std::error_code ignored;
  if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
}

Status CandidateFile::make() {
  std::error_code error;
  std::string folder = (std::filesystem::temp_directory_path(error) / "gemmtune_compare.XXXXXX").string();
  // Not a name that others could make before: they would own what is written and removed here.
  if (error || mkdtemp(folder.data()) == nullptr) {
    return Status::io("{}: cannot make a folder: {}", folder, error ? error.message() : std::strerror(errno));
  }
  folder_ = folder;
  return {};
}

namespace {

std::string improvement_text(const std::vector<BenchRow>& rows, double min_percent) {
  TextTable table({{"shape (M x N x K)", false, true},
                   {"before µs", true, false},
                   {"after µs", true, false},
                   {"improvement", true, false},
                   {"", false, false},
                   {"kernel", false, true}});
  for (const BenchRow& row : rows) {
    const auto improved = improvement_percent(row);
    const auto time = [](const std::optional<double>& value) {
      return value ? fmt::format("{:.2f}", *value) : "-";
    };
    std::string word(to_string(improvement_of(row, min_percent)));
    if (row.status != BenchStatus::ok) word = std::string(to_string(row.status));
    table.add({short_name(row.shape.problem), time(row.other_microseconds), time(row.microseconds),
               improved ? fmt::format("{:+.1f} %", *improved) : "-", word, row.kernel});
  }
  return table.text(stdout_is_terminal() ? stdout_columns() : 0);
}

/// The tuned entries whose row improved.
std::vector<TunedEntry> improved_entries(const RunSummary& summary, const std::vector<BenchRow>& rows,
                                         double min_percent) {
  std::unordered_map<Problem, const TunedEntry*, SameKeyHash, SameKey> tuned;
  for (const ItemReport& report : summary.items) {
    if (report.row() != nullptr) tuned.try_emplace(report.shape.problem, report.row());
  }
  std::vector<TunedEntry> entries;
  for (const BenchRow& row : rows) {
    if (row.status != BenchStatus::ok || improvement_of(row, min_percent) == Improvement::keep) continue;
    if (const auto found = tuned.find(row.shape.problem); found != tuned.end())
      entries.push_back(*found->second);
  }
  return entries;
}

}  // namespace

int compare_rows(const TuneOptions& options, const Outputs& outputs, Device& device,
                 const TuneRequest& request, const RunSummary& summary, Console& console,
                 Evaluator& evaluator) {
  TunedFile tuned;
  tuned.path = request.output;
  std::vector<ShapeRow> shapes;
  for (const ItemReport& report : summary.items) {
    if (report.row() == nullptr || report.state == ProblemState::skipped_done) continue;
    tuned.entries.push_back(*report.row());
    shapes.push_back(report.shape);
  }
  if (shapes.empty()) {
    if (const auto text = nothing_done_text(summary, outputs.tuned)) {
      if (options.json) print_document(bench_json("tune --compare", {}, device.info()));
      options.json ? console.line(*text) : print_text(*text + "\n");
      return exit_done;
    }
  }
  const OperationForm operation = form_of(request.shapes.front().problem);
  std::vector<TablePath> before_paths{{operation, outputs.tuned}};
  for (const std::string& path : outputs.also_read) before_paths.push_back({operation, path});
  const TableSet before = load_table_set(before_paths);
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
    print_document(bench_json("tune --compare", rows, device.info()));
    console.line(ending);
  } else {
    print_text(improvement_text(rows, options.min_improvement) + ending + "\n");
  }
  const bool failed = std::ranges::any_of(summary.items, [](const ItemReport& report) {
    return report.state == ProblemState::failed || report.state == ProblemState::unsupported;
  });
  return failed && bench_code(rows) == exit_done ? exit_findings : bench_code(rows);
}

}  // namespace gemmtune::cli
