#include "cli/compat/tune_gemm_results.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/interrupt.h"
#include "cli/command.h"
#include "cli/shared/check_report.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/shared/report_parts.h"
#include "cli/shared/worker_evaluator.h"
#include "evaluate/in_process/in_process_evaluator.h"
#include "formats/all_formats.h"
#include "formats/json.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "measure/statistics.h"
#include "measure/timing_lock.h"
#include "resolve/bind.h"
#include "tuning/row_check.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* default_table = "benchmarking_results.csv";
constexpr int benchmark_rounds = 30;

struct ResultRows {
  std::vector<TunedEntry> entries;  // of this device
  std::vector<std::string> unread;  // "file:line: why"
  std::size_t of_other_devices = 0;
};

/// The results of --gemm_size_file. A YAML names no device: its rows are taken for this one's.
Result<ResultRows> read_results(const TuneOptions& options, const DeviceInfo& device) {
  GEMMTUNE_TRY(auto content, read_file(options.input));
  const Format& format = detect_format(options.input, content);
  const auto x_type = x_type_of(options.size, device.gfx);
  const auto y_type = y_type_of(options.size, device.gfx);
  for (const Status& status : {x_type.status(), y_type.status()}) GEMMTUNE_RETURN_IF_ERROR(status);
  ConversionOptions conversion;
  conversion.gfx = device.gfx;
  conversion.cu_num = device.cu_num;
  conversion.x_type = *x_type;
  conversion.y_type = *y_type;
  GEMMTUNE_TRY(conversion.operation, operation_of(options.size));
  if (format.read == nullptr || (!is_yaml_path(options.input) && !is_tuned_format(format))) {
    return Status::invalid("--gemm_size_file {}: is {}, expected a YAML of results or a tuned CSV",
                           options.input, format.name);
  }
  GEMMTUNE_TRY(auto rows, format.read(options.input, std::move(content), conversion));
  ResultRows results;
  for (const LeftOut& item : rows.left_out) {
    if (item.kind == LeftOutKind::row) results.unread.push_back(describe(options.input, item));
  }
  for (TunedEntry& entry : rows.entries) {
    if (entry.libtype.empty() && entry.kernel_name.empty()) {
      results.unread.push_back(fmt::format("{}:{}: {}: a size without a result", options.input, entry.line,
                                           short_name(entry.problem)));
    } else if (!is_within(options, entry.problem)) {
      continue;
    } else if (row_is_of(entry, device)) {
      entry.problem.bias = entry.problem.bias || options.bias_vector;
      results.entries.push_back(std::move(entry));
    } else {
      ++results.of_other_devices;
    }
  }
  if (static_cast<std::size_t>(options.limit) < results.entries.size())
    results.entries.resize(static_cast<std::size_t>(options.limit));
  if (results.entries.empty() && results.unread.empty())
    return Status::not_found("--gemm_size_file {}: no result of this device ({}, cu_num {})", options.input,
                             device.gfx, device.cu_num);
  return results;
}

/// Why the row's kernel is none that could run here at all; empty if it may.
std::string why_foreign(const TunedEntry& entry) {
  if (entry.libtype != "triton") return {};
  return fmt::format("a configuration of Triton ({}), which only Triton can run", entry.kernel_name);
}

CheckedRow not_run(const TunedEntry& entry, std::string reason) {
  CheckedRow row{entry, {}};
  row.check.reason = std::move(reason);
  return row;
}

/// A row that ran right, with its time.
struct TimedRow {
  GemmResult result;
  std::string kernel;
};

/// Fills `timed` if the kernel is right and has a time.
CheckedRow time_row(const TuneOptions& options, const Device& device, Evaluator& evaluator,
                    const TunedEntry& entry, std::vector<TimedRow>& timed) {
  const auto candidate = resolve_name(device, entry.kernel_name, entry.problem);
  if (!candidate.ok()) return not_run(entry, candidate.message());
  const auto finals = evaluator.finals(entry.problem, {&*candidate, 1}, benchmark_rounds);
  if (!finals.ok()) return not_run(entry, finals.message());
  const Outcome& outcome = finals->outcomes.front();
  CheckedRow row{entry, {}};
  row.check.err_ratio = outcome.err_ratio;
  row.check.error = outcome.error;
  row.check.deterministic = outcome.deterministic;
  row.check.accuracy = device.accuracy(*candidate, entry.problem);
  if (outcome.kind != OutcomeKind::ok) {
    row.check.state =
        outcome.kind == OutcomeKind::refused ? RowCheckState::not_runnable : RowCheckState::wrong;
    row.check.reason = fmt::format("{}: {}", to_string(outcome.kind), outcome.reason);
    return row;
  }
  row.check.state = RowCheckState::right;
  std::vector<double> times;
  for (const auto& round : finals->times) times.push_back(round.front());
  TimedRow one{gemm_size_of(entry.problem), entry.kernel_name};
  set_time(entry.problem, median(times), one.result);
  if (!options.json)
    print_text(fmt::format("{} {}: {} TFLOPS, {} µs\n", short_name(entry.problem), entry.kernel_name,
                           gemm_result_number(*one.result.tflops, TuneGemmVersion::v3_4),
                           gemm_result_number(*one.result.us, TuneGemmVersion::v3_4)));
  timed.push_back(std::move(one));
  return row;
}

std::string counts_text(const TuneOptions& options, const ResultRows& results,
                        const std::vector<CheckedRow>& rows) {
  const auto count = [&](RowCheckState state) {
    return std::ranges::count_if(rows, [&](const CheckedRow& row) { return row.check.state == state; });
  };
  std::string text = fmt::format("{}: {}: {} right, {} wrong, {} that cannot run here", options.input,
                                 counted(rows.size(), "result"), count(RowCheckState::right),
                                 count(RowCheckState::wrong), count(RowCheckState::not_runnable));
  if (!results.unread.empty()) text += fmt::format("; {} could not be read", results.unread.size());
  if (results.of_other_devices > 0) text += fmt::format("; {} of other devices", results.of_other_devices);
  return text + "\n";
}

int code_of(const ResultRows& results, const std::vector<CheckedRow>& rows) {
  if (interrupted()) return exit_interrupted;
  return all_right(rows) && results.unread.empty() ? exit_done : exit_findings;
}

/// Calls `check` for each row that may run here, and `on_row` with what came out for every row; with progress.
template <typename Check, typename OnRow>
std::vector<CheckedRow> for_each_row(const TuneOptions& options, const ResultRows& results,
                                     const Check& check, const OnRow& on_row) {
  Console console(options.quiet);
  for (const std::string& note : options.notes) console.urgent_line(note);
  for (const std::string& line : results.unread) console.urgent_line(line);
  watch_for_interrupts();
  std::vector<CheckedRow> rows;
  for (const TunedEntry& entry : results.entries) {
    if (interrupted()) break;
    console.live_line(
        fmt::format("[{}/{}] {}", rows.size() + 1, results.entries.size(), short_name(entry.problem)));
    std::string foreign = why_foreign(entry);
    CheckedRow row = foreign.empty() ? check(entry) : not_run(entry, std::move(foreign));
    console.clear_live_line();
    on_row(row);
    rows.push_back(std::move(row));
  }
  return rows;
}

Json document(const char* command, const TuneOptions& options, const Device& device,
              const ResultRows& results, const std::vector<CheckedRow>& rows) {
  return {{"command", command},
          {"file", options.input},
          {"device", device_json(device.info())},
          {"rows", checked_rows_json(rows)},
          {"diagnostics", results.unread}};
}

Status check_table_path(const std::string& path) {
  GEMMTUNE_RETURN_IF_ERROR(check_writable("-o", path));
  return check_replaces_no_tuned_file("-o", path);
}

}  // namespace

Result<int> check_results(const TuneOptions& options, const Environment& environment, Device& device) {
  GEMMTUNE_TRY(const auto results, read_results(options, device.info()));
  const auto evaluator =
      make_verifying_worker(device, options.device, environment, options.request.max_err_ratio);
  const auto rows = for_each_row(
      options, results,
      [&](const TunedEntry& entry) {
        return CheckedRow{entry, check_rows(device, *evaluator, {&entry, 1}, {}).front()};
      },
      [&](const CheckedRow& row) {
        if (!options.json) print_text(correctness_text({row}));
      });
  print_answer(options.json, options.json ? json_document(document("tune --compare_wo_tuning", options,
                                                                   device, results, rows))
                                          : counts_text(options, results, rows));
  return code_of(results, rows);
}

Result<int> benchmark_results(const TuneOptions& options, const Environment& environment, Device& device) {
  const std::string path = options.output.empty() ? default_table : options.output;
  GEMMTUNE_RETURN_IF_ERROR(check_table_path(path));
  GEMMTUNE_TRY(const auto results, read_results(options, device.info()));
  InProcessOptions evaluation =
      in_process_options(device, policy_of(options, device.info()), options.request.max_err_ratio);
  evaluation.timing_lock = timing_lock_path(environment.runtime_folder, device.info());
  const auto evaluator =
      make_worker(device, options.device, environment, evaluation, timeout_of(options).value());
  std::vector<TimedRow> timed;
  const auto rows = for_each_row(
      options, results,
      [&](const TunedEntry& entry) { return time_row(options, device, *evaluator, entry, timed); },
      [&](const CheckedRow& row) {
        if (!options.json && row.check.state != RowCheckState::right) print_text(correctness_text({row}));
      });
  std::vector<GemmResult> table;
  for (const TimedRow& row : timed) table.push_back(row.result);
  GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(path, write_gemm_benchmark_csv(table)));
  if (options.json) {
    Json json = document("tune --benchmark", options, device, results, rows);
    json["output"] = path;
    json["times"] = Json::array();
    for (const TimedRow& row : timed) {
      json["times"].push_back({{"m", row.result.m},
                               {"n", row.result.n},
                               {"k", row.result.k},
                               {"kernelName", row.kernel},
                               {"tflops", *row.result.tflops},
                               {"us", *row.result.us}});
    }
    print_document(json_document(json));
  } else {
    print_text(counts_text(options, results, rows) + fmt::format("written: {}\n", path));
  }
  return code_of(results, rows);
}

}  // namespace gemmtune::cli
