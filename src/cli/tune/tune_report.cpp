#include "cli/tune/tune_report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>

#include "base/file.h"
#include "cli/command.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/shared/report_parts.h"
#include "cli/tune/range_report.h"
#include "formats/aiter/schema.h"
#include "formats/json.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "measure/statistics.h"
#include "select/energy.h"
#include "select/routings.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

std::string microseconds(const std::optional<double>& value) {
  return value ? fmt::format("{:.2f}", *value) : std::string("-");
}

bool has_row(const ItemReport& report) {
  return report.row() != nullptr &&
         (report.state == ProblemState::tuned || report.state == ProblemState::kept_default);
}

/// Of a call; "-" where they were not measured.
std::string millijoules(const ItemReport& report, const std::string& kernel_name) {
  const KernelEnergy* energy = find_energy(report.energies, kernel_name);
  return energy == nullptr ? "-" : fmt::format("{:.4g}", 1e3 * energy->joules);
}

std::string result_table(const RunSummary& summary) {
  const bool has_joules =
      std::ranges::any_of(summary.items, [](const ItemReport& report) { return !report.energies.empty(); });
  std::vector<TextTable::Column> columns = {{"shape (M x N x K)"},
                                            {"layer", false, true, 2},
                                            {"verdict"},
                                            {"speed-up", true},
                                            {"95 %", true},
                                            {"ties", true, false, 3},
                                            {"default µs", true, false, 1},
                                            {"tuned µs", true}};
  if (has_joules)
    columns.insert(columns.end(), {{"default mJ", true, false, 1}, {"tuned mJ", true, false, 1}});
  columns.push_back({"kernel", false, true, 4});
  TextTable table(std::move(columns));
  for (const ItemReport& report : summary.items) {
    if (!has_row(report)) continue;
    const TunedEntry& entry = *report.row();
    std::vector<std::string> cells = {
        short_name(report.shape.problem), report.shape.layer,    std::string(to_string(entry.verdict)),
        speedup_text(entry.speedup),      interval_text(entry),  ties_text(entry),
        microseconds(entry.default_us),   microseconds(entry.us)};
    if (has_joules) {
      cells.push_back(millijoules(report, entry.default_kernel));
      cells.push_back(millijoules(report, entry.kernel_name));
    }
    cells.push_back(entry.kernel_name);
    table.add(std::move(cells));
  }
  if (table.empty()) return {};
  return table.text(stdout_is_terminal() ? stdout_columns() : 0) + "\n";
}

/// "a row is outside of its error bound: row 5 (7.9 times the bound) (cublaslt_r1_…)".
std::string default_fault_text(const ItemReport& report) {
  return fmt::format("{} ({})", report.default_fault, report.row()->default_kernel);
}

/// What repeats the first failure of a shape's kernels; empty where none failed.
std::string command_of_failure(const ItemReport& report) {
  const auto failed = std::ranges::find_if(
      report.trials, [](const Trial& trial) { return trial.outcome.kind != OutcomeKind::ok; });
  return failed == report.trials.end() ? std::string()
                                       : check_command(report.shape.problem, failed->candidate.kernel_name());
}

/// "failed:" and one line for each such shape.
std::string reasons(const RunSummary& summary, ProblemState state, std::string_view title) {
  std::string text;
  for (const ItemReport& report : summary.items) {
    if (report.state != state) continue;
    text += fmt::format("  {}: {}\n", shape_text(report.shape), report.reason);
    if (const std::string command = command_of_failure(report); !command.empty())
      text += fmt::format("    repeat: {}\n", command);
    for (const std::string& refusal : report.refusals) text += fmt::format("    {}\n", refusal);
  }
  return text.empty() ? text : fmt::format("{}:\n{}", title, text);
}

/// The budget was too short for a single row.
bool nothing_tuned(const RunSummary& summary) {
  return count_of(summary.items, ProblemState::out_of_budget) > 0 &&
         std::ranges::all_of(summary.items, [](const ItemReport& report) { return report.rows.empty(); });
}

/// Shapes with a row of this verdict.
std::size_t shapes_with(const RunSummary& summary, Verdict verdict) {
  return static_cast<std::size_t>(std::ranges::count_if(summary.items, [&](const ItemReport& report) {
    return std::ranges::any_of(report.rows, [&](const TunedEntry& row) { return row.verdict == verdict; });
  }));
}

/// A line for each shape whose row has this verdict: what is wrong with the default.
std::string default_fault_lines(const RunSummary& summary, Verdict verdict) {
  std::string text;
  for (const ItemReport& report : summary.items) {
    if (!has_row(report) || report.row()->verdict != verdict) continue;
    text += fmt::format("  {}: {}\n    repeat: {}\n", shape_text(report.shape), default_fault_text(report),
                        check_command(report.shape.problem, report.row()->default_kernel));
  }
  return text;
}

/// Why the row is worth another run on a quiet machine; empty where it is not.
std::string why_repeat(const ItemReport& report) {
  if (!has_row(report)) return {};
  const Quietness& rounds = report.quietness;
  std::string why;
  if (report.row()->verdict == Verdict::undecided) {
    why = fmt::format("undecided: in {} rounds one kernel differed from itself by {:.1f} %", rounds.rounds,
                      100 * report.noise_floor);
  }
  if (rounds.busy()) {
    why += fmt::format("{}busy machine: {} of {} rounds were disturbed", why.empty() ? "" : "; ",
                       rounds.disturbed, rounds.rounds);
  }
  return why.empty() || report.doubt.empty() ? why : why + "; " + report.doubt;
}

/// Why joules that were asked for did not count, a line for each such row.
std::string rows_without_joules(const RunSummary& summary) {
  std::string text;
  for (const ItemReport& report : summary.items) {
    if (!has_row(report) || report.energy_reason.empty()) continue;
    text += fmt::format("  {}: {}\n", shape_text(report.shape), report.energy_reason);
  }
  return text.empty() ? text : "joules did not count:\n" + text;
}

/// Where another kernel than the fastest on the row's own routing was chosen, and where other routings were not measured.
std::string rows_of_routings(const RunSummary& summary) {
  std::string text;
  for (const ItemReport& report : summary.items) {
    if (!has_row(report)) continue;
    if (!report.routing_reason.empty())
      text += fmt::format("  {}: {}\n", shape_text(report.shape), report.routing_reason);
    if (!report.instead_of.empty())
      text += fmt::format("  {}: instead of {}, which loses more than {:g} %\n", shape_text(report.shape),
                          report.instead_of, 100 * max_routing_loss);
  }
  return text.empty() ? text : "other routings:\n" + text;
}

/// "2 rows …:", and for each why, and the command.
std::string rows_to_repeat(const RunEnding& ending) {
  const RunSummary& summary = ending.summary;
  std::string lines;
  std::string first;
  std::size_t count = 0;
  for (const ItemReport& report : summary.items) {
    const std::string why = why_repeat(report);
    if (why.empty()) continue;
    ++count;
    lines += fmt::format("  {}: {}\n", shape_text(report.shape), why);
    if (first.empty()) first = tune_command(report.shape.problem, absolute_path(ending.outputs.tuned));
  }
  if (count == 0) return {};
  lines += fmt::format("  repeat{}: {}\n", count > 1 ? " the first" : "", first);
  if (count > 1) lines += "  repeat all shapes: the same command with --all\n";
  return fmt::format("{} to repeat on a quiet machine{}; they hold, but better ones may exist:\n{}",
                     counted(count, "row"), ending.device.team.empty() ? "" : " or with --clock processor",
                     lines);
}

std::vector<TunedEntry> rows_of(const RunSummary& summary) {
  std::vector<TunedEntry> rows;
  for (const ItemReport& report : summary.items)
    rows.insert(rows.end(), report.rows.begin(), report.rows.end());
  return rows;
}

/// "8 of 12 shapes won", and the gain with its interval.
std::string gain_text(const RunEnding& ending) {
  const RunSummary& summary = ending.summary;
  const auto rows = static_cast<std::size_t>(std::ranges::count_if(summary.items, has_row));
  if (rows == 0) return {};
  std::string text = fmt::format("{} of {} won", shapes_with(summary, Verdict::win), counted(rows, "shape"));
  if (summary.geometric_mean_speedup <= 0) return text + "\n";
  text += fmt::format("; geometric-mean speed-up over the default: {:.3f}x", summary.geometric_mean_speedup);
  if (const auto interval = gain_interval(rows_of(summary)))
    text += fmt::format(" (95 %: {:.3f} to {:.3f})", interval->low, interval->high);
  return text + opponents_text(summary, ending.device) + "\n";
}

std::string counts(const RunEnding& ending) {
  const RunSummary& summary = ending.summary;
  const auto count = [&](ProblemState state) { return count_of(summary.items, state); };
  return fmt::format("{} in {}: {} tuned, {} kept at default, {} failed",
                     counted(summary.items.size(), "shape"), duration(summary.seconds),
                     count(ProblemState::tuned), count(ProblemState::kept_default),
                     count(ProblemState::failed)) +
         rare_counts(summary.items,
                     {{ProblemState::unsupported, "that no family takes"},
                      {ProblemState::skipped_done, "already in the file", false},
                      {ProblemState::skipped_done, "listed before", true},
                      {ProblemState::out_of_budget, "not reached"},
                      {ProblemState::interrupted, "interrupted"}},
                     ending.shapes, summary.candidates);
}

std::string files_and_next_step(const RunEnding& ending) {
  const auto row = std::ranges::find_if(ending.summary.items, has_row);
  if (row == ending.summary.items.end()) return {};
  const std::string path = absolute_path(ending.outputs.tuned);
  if (!ending.outputs.is_written)
    return "nothing is written: times of zeros say nothing about other numbers\n";
  std::string text = fmt::format("written: {}", path);
  if (file_exists(path + ".env.json")) text += fmt::format(" and {}.env.json", path);
  if (!ending.outputs.profile.empty()) text += fmt::format("; all candidates: {}", ending.outputs.profile);
  if (!ending.outputs.keep_folder.empty()) text += fmt::format("; kept: {}", ending.outputs.keep_folder);
  const Problem& problem = row->shape.problem;
  if (is_yaml_path(path)) {
    return fmt::format(
        "{}\nnext: gemmtune tune --gemm_size_file {} --compare_wo_tuning; for programs: gemmtune convert {} "
        "--to aiter --gfx {} --cu_num {} --indtype {} -o {}\n",
        text, path, path, ending.device.gfx, ending.device.cu_num, to_string(problem.x_type),
        tuned_file_name(form_of(problem)));
  }
  text += ending.outputs.is_config_file ? "\nnext: programs that use gemmtune find this file by themselves"
          : !ending.outputs.folder.empty()
              ? fmt::format("\nnext: export GEMMTUNE_CONFIG_DIR={}   for programs that use gemmtune",
                            parent_folder(path))
              : fmt::format("\nnext: export GEMMTUNE_CONFIG_{}={}   for programs that use gemmtune",
                            upper(to_string(form_of(problem))), path);
  return fmt::format(
      "{}\n      gemmtune report {}   one page: what was gained, how sure, every row\n"
      "      gemmtune help verdicts   what win, default, undecided and ties mean\n",
      text, path);
}

/// Nothing where no joules were asked for.
void add_energy(const ItemReport& report, Json& json) {
  if (report.energies.empty() && report.energy_reason.empty()) return;
  const auto joules_of = [&](const std::string& kernel_name) {
    const KernelEnergy* energy = find_energy(report.energies, kernel_name);
    return energy == nullptr ? Json() : Json(energy->joules);
  };
  json["joules"] = joules_of(report.row()->kernel_name);
  json["default_joules"] = joules_of(report.row()->default_kernel);
  json["chosen_by"] = to_string(report.chosen_by);
  if (!report.energy_reason.empty()) json["no_joules"] = report.energy_reason;
  json["energies"] = Json::array();
  for (const KernelEnergy& energy : report.energies) {
    json["energies"].push_back({{"kernelName", energy.kernel_name},
                                {"joules", energy.joules},
                                {"spread", energy.spread},
                                {"us", energy.microseconds},
                                {"batches", energy.batches}});
  }
}

/// Nothing where none were measured.
void add_routings(const ItemReport& report, Json& json) {
  if (!report.routing_reason.empty()) json["no_routings"] = report.routing_reason;
  if (!report.instead_of.empty()) json["instead_of"] = report.instead_of;
  for (const RoutingLoss& loss : report.routing_losses) {
    json["routings"].push_back({{"kernelName", loss.kernel_name},
                                {"routing", loss.routing},
                                {"loss", loss.loss},
                                {"best", loss.best_kernel}});
  }
}

Json problem_json(const ItemReport& report) {
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
  if (report.row() != nullptr) {
    add_row(*report.row(), json);
    json["ties"] = report.ties;
    json["rounds"] = {{"used", report.quietness.rounds},
                      {"disturbed", report.quietness.disturbed},
                      {"repeated", report.quietness.repeated}};
    json["noise_floor"] = report.noise_floor;
    if (const std::string why = why_repeat(report); !why.empty()) json["repeat"] = why;
    add_energy(report, json);
    add_routings(report, json);
  }
  if (!report.default_fault.empty()) json["default_fault"] = report.default_fault;
  if (report.state == ProblemState::failed) {
    if (const std::string command = command_of_failure(report); !command.empty())
      json["repeat_command"] = command;
  }
  json["candidates"] = report.trials.size();
  json["seconds"] = report.seconds;
  return json;
}

std::string buckets_text(const BucketReport& report) {
  std::string text;
  for (const WrittenBucket& one : report.written)
    text += fmt::format(
        "{}: {} of {}, {}{}: {}\n", one.path, one.key, counted(one.ms, "M"),
        one.regret ? fmt::format("regret {:.2f} %", 100 * *one.regret) : std::string("regret not measured"),
        one.is_cut ? fmt::format(" (the budget ended after {} of them)", one.compared) : "", one.kernel);
  for (const std::string& problem : report.problems) text += fmt::format("no bucket: {}\n", problem);
  if (!report.written.empty()) {
    text += fmt::format("next: set GEMMTUNE_CONFIG_TRITON={} for programs that use gemmtune\n",
                        parent_folder(report.written.front().path));
  }
  return text;
}

std::string shapes_ending_text(const RunEnding& ending) {
  const RunSummary& summary = ending.summary;
  if (!ending.interrupted) {
    if (auto text = nothing_done_text(summary, ending.outputs.tuned)) return *text + "\n";
  }
  std::string text = result_table(summary) + counts(ending) + gain_text(ending);
  if (summary.confirmed > 0) {
    text += fmt::format("confirmation pass of {}: {} another kernel; ratios of kernels moved by ±{:.1f} %\n",
                        counted(summary.confirmed, "shape"),
                        summary.revised == 1 ? "1 has" : fmt::format("{} have", summary.revised),
                        100 * summary.pass_deviation);
  }
  if (summary.waited_seconds >= 1) {
    text += fmt::format(
        "waited {} for other programs that were timing; no part of the times and the budget above\n",
        duration(summary.waited_seconds));
  }
  if (const auto wrong = shapes_with(summary, Verdict::default_wrong); wrong > 0) {
    text += fmt::format("the default is wrong for {}; their rows have no speed-up:\n{}",
                        counted(wrong, "shape"), default_fault_lines(summary, Verdict::default_wrong));
  }
  if (const auto untimed = shapes_with(summary, Verdict::default_untimed); untimed > 0) {
    text += fmt::format(
        "the default could not be timed for {}; their rows have no speed-up (--all tries again):\n{}",
        counted(untimed, "shape"), default_fault_lines(summary, Verdict::default_untimed));
  }
  text += rows_without_joules(summary);
  text += rows_of_routings(summary);
  text += rows_to_repeat(ending);
  text += reasons(summary, ProblemState::failed, "failed");
  text += reasons(summary, ProblemState::unsupported, "no kernel family takes");
  if (ending.interrupted) {
    text += "interrupted: what was decided by then is in the file; the same command goes on from there\n";
  } else if (count_of(summary.items, ProblemState::out_of_budget) > 0) {
    text += nothing_tuned(summary)
                ? "the budget ended before a row was proved; give more time (the same command goes on from "
                  "there)\n"
                : "the budget ended before all shapes were tuned; the same command goes on from there\n";
  }
  return text + files_and_next_step(ending);
}

}  // namespace

std::vector<std::string> opponents(const RunSummary& summary, const DeviceInfo& device) {
  std::vector<std::string> texts;
  for (const ItemReport& report : summary.items) {
    for (const TunedEntry& row : report.rows) {
      const auto family = family_of_kernel_name(row.default_kernel);
      if (!row.speedup || !family) continue;
      std::string text = device.vendor_text(*family);
      if (!text.empty() && std::find(texts.begin(), texts.end(), text) == texts.end())
        texts.push_back(std::move(text));
    }
  }
  return texts;
}

std::string opponents_text(const RunSummary& summary, const DeviceInfo& device) {
  const std::vector<std::string> texts = opponents(summary, device);
  return texts.empty() ? std::string() : fmt::format(", {}", fmt::join(texts, "; "));
}

bool is_timed(const Trial& trial) {
  return trial.outcome.kind == OutcomeKind::ok && !trial.outcome.microseconds.empty();
}

std::string trial_text(const Trial& trial) {
  const Outcome& outcome = trial.outcome;
  if (is_timed(trial)) {
    return fmt::format("{} {:.2f} µs ±{:.2f}, err_ratio {:.4f}", trial.candidate.kernel_name(),
                       median(outcome.microseconds), spread(outcome.microseconds), outcome.err_ratio);
  }
  return fmt::format("{} {}{}{}", trial.candidate.kernel_name(), to_string(outcome.kind),
                     outcome.reason.empty() ? "" : ": ", outcome.reason);
}

std::string shape_text(const ShapeRow& shape) {
  std::string text = short_name(shape.problem);
  if (!shape.layer.empty()) text += fmt::format(" ({})", shape.layer);
  return text;
}

std::string result_text(const ItemReport& report) {
  if (has_row(report)) {
    const TunedEntry& entry = *report.row();
    std::string verdict = verdict_text(entry);
    if (entry.verdict == Verdict::default_wrong) verdict = "default is wrong: " + default_fault_text(report);
    if (entry.verdict == Verdict::default_untimed)
      verdict = "default could not be timed: " + default_fault_text(report);
    std::string text = fmt::format("{}: {} {:.2f} µs", verdict, entry.kernel_name, entry.us);
    if (entry.ties.value_or(0) > 0) text += ", " + counted(static_cast<std::size_t>(*entry.ties), "tie");
    if (report.quietness.busy()) text += ", busy machine";
    return text;
  }
  std::string text(to_string(report.state));
  std::replace(text.begin(), text.end(), '_', ' ');
  return report.reason.empty() ? text : fmt::format("{}: {}", text, report.reason);
}

std::string problem_event(std::string_view event, std::size_t index, const ItemReport& report) {
  Json json = {{"event", event}, {"index", index}};
  json.update(problem_json(report));
  return json_line(json);
}

std::optional<std::string> nothing_done_text(const RunSummary& summary, const std::string& output) {
  if (summary.items.empty()) return "nothing to do: this run has no shapes";
  const std::size_t skipped = count_of(summary.items, ProblemState::skipped_done);
  if (skipped != summary.items.size()) return std::nullopt;
  return fmt::format("nothing to do: {} in {} already (use --all to tune again)",
                     skipped == 1 ? "the shape is" : fmt::format("all {} shapes are", skipped), output);
}

std::string ending_text(const RunEnding& ending) {
  std::string text = ending.range ? range_ending_text(ending) : shapes_ending_text(ending);
  if (ending.buckets) text += buckets_text(*ending.buckets);
  if (ending.correctness) text += correctness_text(*ending.correctness);
  return text;
}

std::string ending_json(const RunEnding& ending) {
  const RunSummary& summary = ending.summary;
  Json items = Json::array();
  for (const ItemReport& report : summary.items)
    items.push_back(ending.range ? range_json(report) : problem_json(report));
  Json json;
  json["command"] = "tune";
  if (ending.range) json["m_range"] = {ending.range->first, ending.range->last};
  json["device"] = device_json(ending.device);
  json[ending.range ? "weights" : "problems"] = std::move(items);
  if (!ending.range) {
    std::map<std::string, std::size_t> states;
    for (const ItemReport& report : summary.items) ++states[std::string(to_string(report.state))];
    json["states"] = states;
  }
  if (!ending.range) {
    json["repeat"] = Json::array();
    for (const ItemReport& report : summary.items) {
      if (const std::string why = why_repeat(report); !why.empty())
        json["repeat"].push_back({{"problem", print(report.shape.problem)}, {"why", why}});
    }
  }
  json["diagnostics"] = ending.shapes.diagnostics;
  json["notes"] = ending.shapes.notes;
  if (!ending.range) json["failed_families"] = failed_families(summary.items);
  json["geometric_mean_speedup"] = summary.geometric_mean_speedup;
  const auto interval = gain_interval(rows_of(summary));
  json["geometric_mean_interval"] = interval ? Json({interval->low, interval->high}) : Json();
  json["opponents"] = opponents(summary, ending.device);
  json["default_wrong"] = shapes_with(summary, Verdict::default_wrong);
  json["default_untimed"] = shapes_with(summary, Verdict::default_untimed);
  json["candidates"] = summary.candidates;
  if (summary.confirmed > 0) {
    json["confirmations"] = {
        {"shapes", summary.confirmed}, {"revised", summary.revised}, {"deviation", summary.pass_deviation}};
  }
  json["seconds"] = summary.seconds;
  json["waited_seconds"] = summary.waited_seconds;
  json["output"] = ending.outputs.is_written ? ending.outputs.tuned : std::string();
  if (!ending.outputs.keep_folder.empty()) json["kept"] = ending.outputs.keep_folder;
  if (ending.correctness) json["correctness"] = checked_rows_json(*ending.correctness);
  if (ending.buckets) {
    json["buckets"] = Json::array();
    for (const WrittenBucket& one : ending.buckets->written) {
      json["buckets"].push_back({{"path", one.path},
                                 {"key", one.key},
                                 {"kernelName", one.kernel},
                                 {"regret", number_or_null(one.regret)},
                                 {"ms", one.ms},
                                 {"compared", one.compared},
                                 {"cut", one.is_cut}});
    }
    json["bucket_problems"] = ending.buckets->problems;
  }
  json["interrupted"] = ending.interrupted;
  return json_document(json);
}

int ending_code(const RunEnding& ending) {
  if (ending.interrupted) return exit_interrupted;
  const auto& items = ending.summary.items;
  const bool gaps = std::ranges::any_of(
      items, [](const ItemReport& report) { return report.range && !report.range->failures.empty(); });
  const bool unanswered = ending.buckets && !ending.buckets->problems.empty();
  const bool wrong = ending.correctness && !all_right(*ending.correctness);
  const bool findings = gaps || unanswered || wrong || nothing_tuned(ending.summary) ||
                        shapes_with(ending.summary, Verdict::default_untimed) > 0 ||
                        count_of(items, ProblemState::failed) > 0 ||
                        count_of(items, ProblemState::unsupported) > 0 || !ending.shapes.diagnostics.empty();
  return findings ? exit_findings : exit_done;
}

}  // namespace gemmtune::cli
