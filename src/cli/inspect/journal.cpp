// gemmtune journal: the runs of a journal, all its outcomes, and forgetting old ones.
#include "evaluate/journal/journal.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "candidates/config.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/report_parts.h"
#include "evaluate/journal/journal_report.h"
#include "formats/json.h"
#include "measure/statistics.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

/// What stands before the results of T4 (Kernel Tuner's schema 1.0.0) and behind them; they are separated by commas.
constexpr const char* t4_begin = "{\"schema_version\": \"1.0.0\", \"results\": [\n";
constexpr const char* t4_end = "]}\n";

/// T4's word for an outcome; a candidate that was too slow to be verified is none of its failures.
std::string_view invalidity_of(std::string_view kind) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 6> words{{{"refused", "constraints"},
                                                                                {"build_failed", "compile"},
                                                                                {"launch_failed", "runtime"},
                                                                                {"crashed", "runtime"},
                                                                                {"wrong", "correctness"},
                                                                                {"timed_out", "timeout"}}};
  for (const auto& [ours, theirs] : words)
    if (ours == kind) return theirs;
  return kind == "too_slow" ? "timeout" : "correct";
}

/// The parameters in a kernel's name: sk4 is sk = 4.
void add_parameters(const std::string& kernel, Json& configuration) {
  if (!family_of_kernel_name(kernel)) return;
  const std::vector<std::string_view> parts = split(kernel, '_');
  configuration["family"] = parts.front();
  for (std::size_t index = 2; index < parts.size(); ++index) {
    const std::string_view part = parts[index];
    const std::size_t digits = part.find_first_of("0123456789-");
    if (digits == 0 || digits == std::string_view::npos) {
      configuration[std::string(part)] = true;
      continue;
    }
    const std::string_view value = part.substr(digits);
    const auto number = parse_integer(value);
    configuration[std::string(part.substr(0, digits))] = number ? Json(*number) : Json(value);
  }
}

void add_measurement(Json& measurements, std::string_view name, double value, std::string_view unit) {
  if (!std::isfinite(value)) return;
  measurements.push_back({{"name", name}, {"value", value}, {"unit", unit}});
}

/// One line of JSON. `configuration` holds the problem, the kernel's name and each of its parameters; times are milliseconds, as
/// Kernel Tuner's, measurements name their unit; `correctness` is the share of y's elements within tolerance, 0 of what
/// was never verified.
std::string t4_result(const JournalLine& line) {
  const std::string_view invalidity = invalidity_of(line.kind);
  const bool verified = invalidity == "correct" || invalidity == "correctness";
  Json configuration{{"problem", line.problem}, {"m", line.m}, {"kernel", line.candidate}};
  add_parameters(line.candidate, configuration);
  Json runtimes = Json::array();
  for (const double us : line.samples) runtimes.push_back(us / 1000);
  Json measurements = Json::array();
  if (!line.samples.empty()) add_measurement(measurements, "time", median(line.samples), "us");
  if (verified) {
    add_measurement(measurements, "err_ratio", line.err_ratio, "share of elements");
    add_measurement(measurements, "rms_error", line.error.rms, "of the root mean square of y");
    add_measurement(measurements, "max_error", line.error.max, "of the root mean square of y");
  }
  const Json result{{"timestamp", line.at},
                    {"configuration", std::move(configuration)},
                    {"objectives", Json::array({"time"})},
                    {"times", {{"runtimes", std::move(runtimes)}}},
                    {"invalidity", invalidity},
                    {"correctness", verified ? 1 - line.err_ratio : 0.0},
                    {"measurements", std::move(measurements)}};
  return json_line(result);
}

constexpr const char* journal_footer = R"(
FILE is a journal (tuned.csv.journal) or the tuned file beside which it lies.

  list    its runs: when, which device, how many problems, candidates and failures, and what became of them
  export  every outcome that was ever measured, as CSV, with --json as one object a line, with --to t4 as the results
          file that auto-tuners share (T4 1.0.0), each with its measured correctness
  prune   forgets runs (--keep N newest stay, or --older-than DAYS go) and gives their space back

Exit codes: 0 done, 2 usage or input.

Examples:
  gemmtune journal list tuned.csv
  gemmtune journal export tuned.csv --json
  gemmtune journal export tuned.csv --to t4 > results.json
  gemmtune journal prune tuned.csv --keep 3)";

struct JournalCommand {
  std::string action;
  std::string file;
  std::optional<std::int64_t> keep;
  std::optional<double> older_than_days;
  std::string to;  // of export: csv, json or t4; empty: csv, or json with --json
  bool json = false;
};

std::string_view state_of(const JournalRunReport& run) {
  if (run.running) return "running";
  return run.finished.empty() ? "unfinished" : "finished";
}

std::string list_json(const std::vector<JournalRunReport>& runs) {
  Json json;
  json["command"] = "journal list";
  json["runs"] = Json::array();
  for (const JournalRunReport& run : runs) {
    json["runs"].push_back({{"run", run.id},
                            {"started", run.started},
                            {"finished", run.finished.empty() ? Json() : Json(run.finished)},
                            {"state", state_of(run)},
                            {"device", run.device},
                            {"request", run.command},
                            {"policy", run.policy},
                            {"env", run.environment},
                            {"problems", run.problems},
                            {"decided", run.decided},
                            {"candidates", run.candidates},
                            {"failures", run.failures}});
  }
  return json_document(json);
}

std::string list_text(const std::vector<JournalRunReport>& runs) {
  if (runs.empty()) return "no runs\n";
  TextTable table({{"run", true},
                   {"started"},
                   {"state"},
                   {"problems", true},
                   {"decided", true},
                   {"candidates", true},
                   {"failures", true},
                   {"device", false, true},
                   {"request", false, true}});
  for (const JournalRunReport& run : runs) {
    table.add({std::to_string(run.id), run.started, std::string(state_of(run)), std::to_string(run.problems),
               std::to_string(run.decided), std::to_string(run.candidates), std::to_string(run.failures),
               run.device, run.command});
  }
  return table.text(stdout_is_terminal() ? stdout_columns() : 0);
}

/// RFC 4180: quoted where it must be.
std::string csv_cell(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string cell = "\"";
  for (const char c : text) cell += c == '"' ? "\"\"" : std::string(1, c);
  return cell + "\"";
}

std::string number_text(std::optional<double> number) {
  return number && std::isfinite(*number) ? fmt::format("{}", *number) : std::string();
}

constexpr const char* export_header =
    "run,at,device,env,problem,stage,m,candidate,source,kind,reason,err_ratio,deterministic,us,reference_us,"
    "samples\n";

std::string export_csv(const JournalLine& line) {
  const std::string samples =
      joined(line.samples, " ", [](const double sample) { return fmt::format("{}", sample); });
  const auto us = line.samples.empty() ? std::nullopt : std::optional(median(line.samples));
  return fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", line.run, line.at,
                     csv_cell(line.device), line.environment, csv_cell(line.problem), line.stage, line.m,
                     csv_cell(line.candidate), csv_cell(line.source), line.kind, csv_cell(line.reason),
                     number_text(line.err_ratio), line.deterministic ? "True" : "False", number_text(us),
                     number_text(line.reference_us), samples);
}

std::string export_json(const JournalLine& line) {
  Json json = {{"run", line.run},
               {"at", line.at},
               {"device", line.device},
               {"env", line.environment},
               {"problem", line.problem},
               {"stage", line.stage},
               {"m", line.m},
               {"candidate", line.candidate},
               {"source", line.source},
               {"kind", line.kind},
               {"reason", line.reason},
               {"err_ratio", line.err_ratio},
               {"deterministic", line.deterministic},
               {"us", line.samples.empty() ? Json() : Json(median(line.samples))},
               {"reference_us", number_or_null(line.reference_us)},
               {"samples", line.samples}};
  // Only runs that look for bit classes have them.
  if (!line.bits.id.empty()) json["bits"] = line.bits.id;
  if (!line.bits.reason.empty()) json["no_bits"] = line.bits.reason;
  return json_line(json) + "\n";
}

Result<int> list_journal(const JournalCommand& command, SqlDatabase& journal) {
  GEMMTUNE_TRY(const auto runs, list_runs(journal));
  print_answer(command.json, command.json ? list_json(runs) : list_text(runs));
  return exit_done;
}

Result<int> export_t4(SqlDatabase& journal) {
  print_document(t4_begin);
  bool first = true;
  const Status status = for_each_outcome(journal, [&](const JournalLine& line) {
    print_document((first ? "" : ",\n") + t4_result(line));
    first = false;
  });
  print_document(fmt::format("{}{}", first ? "" : "\n", t4_end));
  GEMMTUNE_RETURN_IF_ERROR(status);
  return exit_done;
}

Result<int> export_all(const JournalCommand& command, SqlDatabase& journal) {
  if (command.to == "t4") return export_t4(journal);
  if (!command.json) print_document(export_header);
  GEMMTUNE_RETURN_IF_ERROR(for_each_outcome(journal, [&](const JournalLine& line) {
    print_document(command.json ? export_json(line) : export_csv(line));
  }));
  return exit_done;
}

Result<int> prune(const JournalCommand& command, SqlDatabase& journal) {
  GEMMTUNE_TRY(const auto gone, command.keep ? prune_to(journal, *command.keep)
                                             : prune_older(journal, command.older_than_days.value_or(0)));
  print_answer(command.json, command.json
                                 ? json_line(Json{{"command", "journal prune"}, {"pruned", gone}}) + "\n"
                                 : counted(static_cast<std::size_t>(gone), "run") + " forgotten\n");
  return exit_done;
}

Status check_command(const JournalCommand& command) {
  const bool prunes = command.action == "prune";
  if (!prunes && command.action != "list" && command.action != "export") {
    return Status::invalid("'{}': expected list, export or prune", command.action);
  }
  if (!command.to.empty()) {
    if (command.action != "export") return Status::invalid("--to is of export");
    if (command.to != "csv" && command.to != "json" && command.to != "t4")
      return Status::invalid("--to {}: expected csv, json or t4", command.to);
    if (command.json && command.to != "json") return Status::invalid("--to {}: not with --json", command.to);
  }
  if (!prunes) {
    if (!command.keep && !command.older_than_days) return {};
    return Status::invalid("--keep and --older-than are of prune");
  }
  if (command.keep.has_value() == command.older_than_days.has_value()) {
    return Status::invalid("prune: give --keep N or --older-than DAYS");
  }
  if (command.keep.value_or(0) < 0)
    return Status::invalid("--keep {}: expected at least 0", command.keep.value_or(0));
  if (!(command.older_than_days.value_or(0) >= 0)) {
    return Status::invalid("--older-than {}: expected at least 0", command.older_than_days.value_or(0));
  }
  return {};
}

/// The journal itself, or the one beside a tuned file.
std::string journal_of(const std::string& file) {
  const bool is_journal = std::filesystem::path(file).extension() == ".journal";
  return is_journal || !file_exists(journal_path(file)) ? file : journal_path(file);
}

Result<int> run_journal(const JournalCommand& command) {
  GEMMTUNE_RETURN_IF_ERROR(check_command(command));
  GEMMTUNE_TRY(auto journal, open_existing_journal(journal_of(command.file)));
  if (command.action == "list") return list_journal(command, journal);
  if (command.action == "export") return export_all(command, journal);
  return prune(command, journal);
}

}  // namespace

std::function<Result<int>()> declare_journal(CommandOptions& app) {
  auto command = std::make_shared<JournalCommand>();
  app.add_option("ACTION", command->action, "list, export or prune").required();
  app.add_option("FILE", command->file, "The journal, or its tuned file").required();
  app.add_option("--keep", command->keep, "prune: how many of the newest runs stay").type_name("N");
  app.add_option("--older-than", command->older_than_days, "prune: forget runs older than this")
      .type_name("DAYS");
  app.add_option("--to", command->to, "export: csv (default), json (as --json) or t4");
  app.add_flag("--json", command->json, "For machines; export: one object a line");
  app.footer(journal_footer);
  return [command] {
    command->json = command->json || command->to == "json";
    return run_journal(*command);
  };
}

}  // namespace gemmtune::cli
