#include "cli/tune/tune_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/command.h"
#include "cli/shared/console.h"
#include "cli/shared/report_parts.h"

namespace gemmtune::cli {
namespace {

using Json = nlohmann::ordered_json;

std::string microseconds(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : std::string("-");
}

bool has_row(const ProblemReport& report) {
  return report.entry && (report.state == ProblemState::tuned || report.state == ProblemState::kept_default);
}

std::string result_table(const TuneSummary& summary) {
  TextTable table({{"shape (M x N x K)", false, true},
                   {"verdict", false, false},
                   {"speed-up", true, false},
                   {"ties", true, false},
                   {"default µs", true, false},
                   {"tuned µs", true, false},
                   {"kernel", false, true}});
  for (const ProblemReport& report : summary.problems) {
    if (!has_row(report)) continue;
    const TunedEntry& entry = *report.entry;
    table.add({shape_text(report.shape), std::string(to_string(entry.verdict)), speedup_text(entry.speedup),
               ties_text(entry), microseconds(entry.default_us), microseconds(entry.us), entry.kernel_name});
  }
  if (table.empty()) return {};
  return table.text(stdout_is_terminal() ? stdout_columns() : 0) + "\n";
}

/// "failed:" and one line for each such shape.
std::string reasons(const TuneSummary& summary, ProblemState state, std::string_view title) {
  std::string text;
  for (const ProblemReport& report : summary.problems) {
    if (report.state != state) continue;
    text += fmt::format("  {}: {}\n", shape_text(report.shape), report.reason);
    for (const std::string& refusal : report.refusals) text += fmt::format("    {}\n", refusal);
  }
  return text.empty() ? text : fmt::format("{}:\n{}", title, text);
}

std::size_t busy_shapes(const TuneSummary& summary) {
  return static_cast<std::size_t>(
      std::count_if(summary.problems.begin(), summary.problems.end(),
                    [](const ProblemReport& report) { return report.quietness.busy(); }));
}

std::string counts(const TuneEnding& ending) {
  const TuneSummary& summary = ending.summary;
  const auto count = [&](ProblemState state) { return count_of(summary.problems, state); };
  return fmt::format("{} in {}: {} tuned, {} kept at default, {} failed",
                     counted(summary.problems.size(), "shape"), duration(summary.seconds),
                     count(ProblemState::tuned), count(ProblemState::kept_default),
                     count(ProblemState::failed)) +
         rare_counts(summary.problems,
                     {{ProblemState::unsupported, "that no family takes"},
                      {ProblemState::skipped_done, "already in the file"},
                      {ProblemState::out_of_budget, "not reached"}},
                     ending.shapes, summary.candidates);
}

/// The operation as its environment variable has it.
std::string upper(std::string_view word) {
  std::string text(word);
  for (char& letter : text)
    if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
  return text;
}

std::string files_and_next_step(const TuneEnding& ending) {
  const auto row = std::find_if(ending.summary.problems.begin(), ending.summary.problems.end(), has_row);
  if (row == ending.summary.problems.end()) return {};
  const std::string& path = ending.outputs.tuned;
  std::string text = fmt::format("written: {}", path);
  if (file_exists(path + ".env.json")) text += fmt::format(" and {}.env.json", path);
  if (!ending.outputs.profile.empty()) text += fmt::format("; all candidates: {}", ending.outputs.profile);
  const Problem& problem = row->shape.problem;
  text += ending.outputs.is_config_file
              ? "\nnext: programs that use gemmtune find this file by themselves"
              : fmt::format("\nnext: set GEMMTUNE_CONFIG_{}={} for programs that use gemmtune",
                            upper(to_string(problem.operation)), path);
  const bool dense = problem.operation == Operation::a16w16;
  return fmt::format("{}; see gemmtune lookup{} -m {} -n {} -k {} --table {}\n", text,
                     dense ? std::string() : fmt::format(" --op {}", to_string(problem.operation)), problem.m,
                     problem.n, problem.k, path);
}

Json problem_json(const ProblemReport& report) {
  Json json;
  json["m"] = report.shape.problem.m;
  json["n"] = report.shape.problem.n;
  json["k"] = report.shape.problem.k;
  json["problem"] = print(report.shape.problem);
  if (!report.shape.layer.empty()) json["layer"] = report.shape.layer;
  json["calls"] = report.shape.calls;
  json["state"] = to_string(report.state);
  if (!report.reason.empty()) json["reason"] = report.reason;
  if (!report.refusals.empty()) json["refusals"] = report.refusals;
  if (report.entry) {
    add_row(*report.entry, json);
    json["ties"] = report.ties;
    json["rounds"] = {{"used", report.quietness.rounds},
                      {"disturbed", report.quietness.disturbed},
                      {"repeated", report.quietness.repeated}};
  }
  json["candidates"] = report.trials.size();
  json["seconds"] = report.seconds;
  return json;
}

}  // namespace

std::string shape_text(const ShapeRow& shape) {
  std::string text = short_name(shape.problem);
  if (!shape.layer.empty()) text += fmt::format(" ({})", shape.layer);
  return text;
}

std::string result_text(const ProblemReport& report) {
  if (has_row(report)) {
    const TunedEntry& entry = *report.entry;
    std::string text = fmt::format("{}: {} {:.2f} µs", verdict_text(entry), entry.kernel_name, entry.us);
    if (entry.ties.value_or(0) > 0) text += ", " + counted(static_cast<std::size_t>(*entry.ties), "tie");
    if (report.quietness.busy()) text += ", busy machine";
    return text;
  }
  std::string text(to_string(report.state));
  std::replace(text.begin(), text.end(), '_', ' ');
  return report.reason.empty() ? text : fmt::format("{}: {}", text, report.reason);
}

std::string problem_event(std::string_view event, std::size_t index, const ProblemReport& report) {
  Json json = {{"event", event}, {"index", index}};
  json.update(problem_json(report));
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string ending_text(const TuneEnding& ending) {
  const TuneSummary& summary = ending.summary;
  const std::size_t skipped = count_of(summary.problems, ProblemState::skipped_done);
  if (skipped == summary.problems.size() && !ending.interrupted) {
    return fmt::format("nothing to do: {} in {} already (use --all to tune again)\n",
                       skipped == 1 ? "the shape is" : fmt::format("all {} shapes are", skipped),
                       ending.outputs.tuned);
  }
  std::string text = result_table(summary) + counts(ending);
  if (summary.geometric_mean_speedup > 0) {
    text +=
        fmt::format("geometric-mean speed-up over the default: {:.3f}x\n", summary.geometric_mean_speedup);
  }
  if (summary.confirmed > 0) {
    text += fmt::format("confirmation pass of {}: {} another kernel; ratios of kernels moved by ±{:.1f} %\n",
                        counted(summary.confirmed, "shape"),
                        summary.revised == 1 ? "1 has" : fmt::format("{} have", summary.revised),
                        100 * summary.pass_deviation);
  }
  if (const auto busy = busy_shapes(summary); busy > 0) {
    text += fmt::format(
        "{} measured while the machine was busy (more than a quarter of the rounds): the rows hold, "
        "a quiet machine may find better ones\n",
        counted(busy, "shape"));
  }
  text += reasons(summary, ProblemState::failed, "failed");
  text += reasons(summary, ProblemState::unsupported, "no kernel family takes");
  if (ending.interrupted) {
    text += "interrupted: what was decided by then is in the file; the same command goes on from there\n";
  } else if (count_of(summary.problems, ProblemState::out_of_budget) > 0) {
    text += "the budget ended before all shapes were tuned; the same command goes on from there\n";
  }
  return text + files_and_next_step(ending);
}

std::string ending_json(const TuneEnding& ending) {
  Json json;
  json["command"] = "tune";
  json["device"] = device_json(ending.device);
  json["problems"] = Json::array();
  for (const ProblemReport& report : ending.summary.problems)
    json["problems"].push_back(problem_json(report));
  std::map<std::string, std::size_t> states;
  for (const ProblemReport& report : ending.summary.problems) ++states[std::string(to_string(report.state))];
  json["states"] = states;
  json["diagnostics"] = ending.shapes.diagnostics;
  json["failed_families"] = failed_families(ending.summary.problems);
  json["geometric_mean_speedup"] = ending.summary.geometric_mean_speedup;
  json["candidates"] = ending.summary.candidates;
  if (ending.summary.confirmed > 0) {
    json["confirmations"] = {{"shapes", ending.summary.confirmed},
                             {"revised", ending.summary.revised},
                             {"deviation", ending.summary.pass_deviation}};
  }
  json["seconds"] = ending.summary.seconds;
  json["output"] = ending.outputs.tuned;
  json["interrupted"] = ending.interrupted;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

int ending_code(const TuneEnding& ending) {
  if (ending.interrupted) return exit_interrupted;
  const bool findings = count_of(ending.summary.problems, ProblemState::failed) > 0 ||
                        count_of(ending.summary.problems, ProblemState::unsupported) > 0 ||
                        !ending.shapes.diagnostics.empty();
  return findings ? exit_findings : exit_done;
}

}  // namespace gemmtune::cli
