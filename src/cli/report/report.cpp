// gemmtune report: tuned files and what is known of their tuning as one HTML page; while a run goes on, from its events.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/report/follow.h"
#include "cli/report/report_overview.h"
#include "cli/report/report_page.h"
#include "cli/report/report_tables.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/output_path.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "evaluate/journal/journal.h"
#include "formats/capture/capture_file.h"
#include "formats/json_text.h"
#include "tuned/key.h"

namespace gemmtune::cli {
namespace {

constexpr const char* report_footer = R"(
One file that needs no network and no other file: what was gained, where the default is wrong, what is not sure, and every
row with its competitors and the command that repeats it. Works from AITER's tuned files alone; each option adds sections.
A journal beside a tuned file is read without --journal. The numbers are those of audit, diff, coverage and of the journal.

--follow writes the page again whenever the run has new events, until the run has ended or Ctrl-C; the page loads itself
again until then. The run may begin later.

Exit codes: 0 done, 2 usage or input.

Examples:
  gemmtune report tuned.csv -o report.html
  gemmtune report a.csv b.csv --base old.csv --capture captured.csv -o report.html --csv report
  gemmtune report tuned.csv --profile profile.csv --bandwidth 4300 --peak 790
  gemmtune report --follow events.jsonl -o run.html)";

constexpr auto pause_between_looks = std::chrono::milliseconds(200);
constexpr double seconds_between_pages = 2;
constexpr double seconds_before_events = 5;  // for which the page waits for a run that begins later
constexpr int page_refresh_seconds = 3;

struct ReportOptions {
  std::vector<std::string> files;
  std::string operation;
  std::vector<std::string> journals;
  std::vector<std::string> profiles;
  std::vector<std::string> bases;
  std::vector<std::string> captures;
  double tolerance = 3;
  double tokens = 0;
  Roof roof;
  std::string follow;
  std::string output = "report.html";
  std::string csv;
  std::string title;  // empty: model, device and operation
  bool json = false;
};

Status read_one_journal(const std::string& path, ReportInputs& inputs) {
  GEMMTUNE_TRY(auto measurements, measurements_of_journal(path));
  GEMMTUNE_TRY(auto journal, open_existing_journal(path));
  GEMMTUNE_TRY(auto runs, list_runs(journal));
  inputs.measurements.add_missing(measurements);
  inputs.runs.insert(inputs.runs.end(), runs.begin(), runs.end());
  return {};
}

/// Those that were named must be right; one that lies beside a tuned file and cannot be read is passed over.
Status read_journals(const ReportOptions& options, ReportInputs& inputs) {
  for (const std::string& path : options.journals) GEMMTUNE_RETURN_IF_ERROR(read_one_journal(path, inputs));
  if (!options.journals.empty()) return {};
  for (const TunedFile& file : inputs.tuned.files) {
    const std::string path = journal_path(file.path);
    if (!file_exists(path)) continue;
    if (const Status status = read_one_journal(path, inputs); !status.ok())
      print_note(fmt::format("{}; passed over", status.message()));
  }
  return {};
}

Status read_profiles(const ReportOptions& options, ReportInputs& inputs) {
  for (const std::string& path : options.profiles) {
    std::vector<std::string> diagnostics;
    GEMMTUNE_TRY(auto measurements, measurements_of_profile(path, diagnostics));
    for (const std::string& diagnostic : diagnostics) print_note(diagnostic);
    inputs.measurements.add_missing(measurements);
  }
  return {};
}

/// The architecture of the tuned rows, or any of several that compute with the same fp8; empty if they do not.
std::string architecture_of(const ReportInputs& inputs) {
  std::string architecture;
  for (const TunedFile& file : inputs.tuned.files) {
    for (const TunedEntry& row : file.entries) {
      const std::string_view own = table_gfx(row).empty() ? gfx_of_cu_num(row.cu_num) : table_gfx(row);
      if (architecture.empty()) architecture = own;
      if (device_fp8(own) != device_fp8(architecture)) return {};
    }
  }
  return architecture;
}

/// --base and --capture.
Status read_comparisons(const ReportOptions& options, std::optional<OperationForm> operation,
                        ReportInputs& inputs) {
  if (!options.bases.empty()) {
    GEMMTUNE_TRY(inputs.base, read_tables(options.bases, operation));
  }
  for (const std::string& path : options.captures) {
    ShapeListOptions list_options;
    list_options.operation = operation;
    list_options.architecture = architecture_of(inputs);
    GEMMTUNE_TRY(auto list, read_shape_list(path, list_options));
    take_captured_calls(path, list);
    for (const std::string& diagnostic : list.diagnostics) print_note(diagnostic);
    for (const std::string& note : list.notes) print_note(note);
    inputs.captures.push_back(std::move(list));
  }
  inputs.tolerance = options.tolerance;
  inputs.tokens = options.tokens;
  inputs.roof = options.roof;
  return {};
}

/// The large product of the compute roof says something of the device, and is no shape of the list unless it is tuned too.
void leave_out_roof_products(ReportInputs& inputs) {
  for (const auto& [hash, environment] : inputs.environments) {
    const auto product = parse_problem(measured_roof(environment).product);
    if (!product.ok()) continue;
    const bool is_tuned = std::ranges::any_of(inputs.tuned.files, [&](const TunedFile& file) {
      return std::ranges::any_of(file.entries,
                                 [&](const TunedEntry& row) { return same_key(row.problem, *product); });
    });
    if (!is_tuned) inputs.measurements.leave_out(*product);
  }
}

Status read_tuned(const ReportOptions& options, std::optional<OperationForm> operation,
                  ReportInputs& inputs) {
  GEMMTUNE_TRY(inputs.tuned.files, read_tables(options.files, operation));
  inputs.findings = all_findings(inputs.tuned, CheckOptions(), inputs.device);
  for (const TunedFile& file : inputs.tuned.files) {
    auto environment = read_environment_json(file.path);
    if (!environment.ok()) {
      print_note(environment.message());
    } else {
      inputs.environments.merge(environment->objects);
    }
  }
  GEMMTUNE_RETURN_IF_ERROR(read_journals(options, inputs));
  leave_out_roof_products(inputs);
  return read_profiles(options, inputs);
}

Status write_report(const ReportOptions& options, const ReportInputs& inputs) {
  const std::vector<ReportTable> tables = report_tables(inputs);
  const bool live = inputs.run && !inputs.run->ended && !interrupted();  // else nobody writes it again
  const ReportPage page{options.title.empty() ? report_title(inputs) : options.title, report_subtitle(inputs),
                        utc_text(), live ? page_refresh_seconds : 0};
  const std::string html = page_html(page, tables);
  if (options.output == "-") {
    print_document(html);
  } else {
    GEMMTUNE_RETURN_IF_ERROR(write_file_atomically(options.output, html));
  }
  if (options.json) {
    std::string document = fmt::format("{{\"command\":\"report\",\"output\":{},\"tables\":[\n",
                                       json_ascii_string(absolute_path(options.output)));
    for (std::size_t i = 0; i < tables.size(); ++i) document += (i == 0 ? "" : ",\n") + tables[i].json();
    print_document(document + "\n]}\n");
  }
  if (options.csv.empty()) return {};
  GEMMTUNE_RETURN_IF_ERROR(make_folders(options.csv));
  for (const ReportTable& table : tables) {
    GEMMTUNE_RETURN_IF_ERROR(
        write_file_atomically(join_path(options.csv, fmt::format("{}.csv", table.id())), table.csv()));
  }
  return {};
}

/// Writes a page whenever something is new, until the run has ended. How many lines were left out.
Result<std::size_t> follow_run(const ReportOptions& options, ReportInputs& inputs) {
  watch_for_interrupts();
  EventReader events(options.follow);
  const double begun_at = steady_seconds();
  double written_at = 0;
  bool pending = true;  // the first page is written before the run has begun
  while (true) {
    GEMMTUNE_TRY(const auto read, events.read());
    for (const std::string& note : events.take_notes()) print_note(note);
    if (!events.there() && steady_seconds() - begun_at > seconds_before_events) {
      return Status::not_found(
          "--follow {}: there is no such file after {:.0f} s; `gemmtune tune --events` writes it",
          options.follow, seconds_before_events);
    }
    pending = pending || read;
    const bool last = events.ended() || interrupted();
    if (last || (pending && steady_seconds() - written_at > seconds_between_pages)) {
      events.fill(inputs);
      GEMMTUNE_RETURN_IF_ERROR(write_report(options, inputs));
      written_at = steady_seconds();
      pending = false;
    }
    if (last) return events.skipped();
    std::this_thread::sleep_for(pause_between_looks);
  }
}

bool is_page(const std::string& /*path*/, const std::string& content) {
  return to_lower(content.substr(0, 64)).starts_with("<!doctype html>");
}

Status check_report_options(const ReportOptions& options) {
  if (options.files.empty() && options.follow.empty())
    return Status::invalid("no files: give at least one, or --follow");
  if (!options.files.empty() && !options.follow.empty())
    return Status::invalid("--follow {}: shows the rows of the run; name no tuned files beside it",
                           options.follow);
  if (options.json && options.output == "-")
    return Status::invalid("--json and -o -: both are for standard output; name a file for the page");
  if (options.json && !options.follow.empty()) return Status::invalid("--json: not with --follow");
  if (!options.follow.empty() && options.output == "-") return Status::invalid("--follow needs -o FILE");
  if (options.output != "-") {
    GEMMTUNE_RETURN_IF_ERROR(check_writable("-o", options.output));
    GEMMTUNE_RETURN_IF_ERROR(check_replaces_only("-o", options.output, "a page", is_page));
    std::vector<NamedFile> inputs;
    for (const auto* list :
         {&options.files, &options.journals, &options.profiles, &options.bases, &options.captures}) {
      for (const std::string& path : *list) inputs.push_back({path, path});
    }
    inputs.push_back({"--follow", options.follow});
    GEMMTUNE_RETURN_IF_ERROR(check_apart({{"-o", options.output}}, inputs));
  }
  return {};
}

Result<int> run_report(const ReportOptions& options) {
  GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
  GEMMTUNE_RETURN_IF_ERROR(check_report_options(options));
  ReportInputs inputs;
  const auto device = open_device(DeviceOptions(), read_environment(), false);
  if (device.ok()) inputs.device = device->get();
  Status status = read_comparisons(options, operation, inputs);
  if (status.ok() && options.follow.empty()) status = read_tuned(options, operation, inputs);
  std::size_t skipped = 0;
  if (status.ok() && options.follow.empty()) {
    status = write_report(options, inputs);
  } else if (status.ok()) {
    const auto followed = follow_run(options, inputs);
    status = followed.status();
    if (followed.ok()) skipped = *followed;
  }
  GEMMTUNE_RETURN_IF_ERROR(status);
  if (options.output != "-")
    print_note(fmt::format("{}: written, {}", options.output, report_subtitle(inputs)));
  return skipped == 0 ? exit_done : exit_findings;
}

}  // namespace

std::function<Result<int>()> declare_report(CommandOptions& app) {
  auto options = std::make_shared<ReportOptions>();
  app.add_option("TUNED", options->files, "Tuned files, or colon-separated lists of them");
  declare_file_operation(app, options->operation);
  app.add_option("-o,--output", options->output, "The page; - is standard output").capture_default_str();
  app.add_option("--csv", options->csv, "Write the page's tables into this folder too, a CSV each")
      .type_name("FOLDER");
  app.add_option("--journal", options->journals,
                 "Journals of the runs (default: those beside the tuned files)")
      .type_name("FILE")
      .one_at_a_time();
  app.add_option("--profile", options->profiles, "Profiles of the runs (tune -o2)")
      .type_name("FILE")
      .one_at_a_time();
  app.add_option("--base", options->bases, "Older tuned files: what changed since, as `gemmtune diff`")
      .type_name("FILE")
      .one_at_a_time();
  app.add_option("--tolerance", options->tolerance,
                 "Percent that a time may move from the base without a spread (default: 3)")
      .number_range(0, 1e6);
  app.add_option("--capture", options->captures, "A captured workload: gains by its calls, and its coverage")
      .type_name("FILE")
      .one_at_a_time();
  app.add_option("--tokens", options->tokens,
                 "Tokens of the workload (default: estimated as those of the weight that saw the fewest)")
      .number_range(0, 1e18);
  app.add_option("--peak", options->roof.tflops,
                 "TFLOP/s that the device computes at most (default: what a row reaches)")
      .number_range(0, 1e9);
  app.add_option("--bandwidth", options->roof.gigabytes,
                 "GB/s that the device's memory gives at most (default: what a row reaches)")
      .number_range(0, 1e9);
  app.add_option("--follow", options->follow,
                 "In place of tuned files: the events of a run (tune --events), while it goes on")
      .type_name("EVENTS");
  app.add_option("--title", options->title, "The page's title (default: model, operation and device)");
  app.add_flag("--json", options->json, "The page's tables as one JSON document on stdout too");
  app.footer(report_footer);
  return [options] { return run_report(*options); };
}

}  // namespace gemmtune::cli
