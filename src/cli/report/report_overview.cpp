#include "cli/report/report_overview.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "base/text.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/shared/report_parts.h"
#include "formats/json.h"
#include "tuned/choice.h"
#include "tuned/key.h"

namespace gemmtune::cli {
namespace {

std::string last_parts(const std::string& path, std::size_t parts) {
  std::size_t begin = path.size();
  for (; parts > 0 && begin > 0; --parts) {
    begin = path.rfind('/', begin - 1);
    if (begin == std::string::npos) return path;
  }
  return path.substr(begin == path.size() ? 0 : begin + 1);
}

/// Environments by how many rows name them, the most first; parsed.
std::vector<Json> environments_by_rows(const ReportInputs& inputs) {
  std::map<std::string, std::size_t> counts;
  for (const TunedFile& file : inputs.tuned.files)
    for (const TunedEntry& row : file.entries) ++counts[row.env];
  std::vector<std::pair<std::size_t, std::string>> order;
  for (const auto& [env, count] : counts)
    if (inputs.environments.contains(env)) order.emplace_back(count, env);
  std::ranges::stable_sort(order, std::greater<>(), &std::pair<std::size_t, std::string>::first);
  std::vector<Json> parsed;
  for (const auto& each : order) {
    Json json = parse_json(inputs.environments.find(each.second)->second);
    if (json.is_object()) parsed.push_back(std::move(json));
  }
  return parsed;
}

std::string text_in(const Json& json, const char* name) {
  const auto found = json.find(name);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

/// The view with the most rows, and one of its rows; null where there are none.
const TunedEntry* row_of_largest_view(const ReportInputs& inputs) {
  std::map<std::string, std::pair<std::size_t, const TunedEntry*>> views;
  for (const TunedFile& file : inputs.tuned.files) {
    for (const TunedEntry& row : file.entries) {
      auto& view = views[view_of(row)];
      ++view.first;
      if (view.second == nullptr) view.second = &row;
    }
  }
  const auto largest =
      std::ranges::max_element(views, {}, [](const auto& view) { return view.second.first; });
  return largest == views.end() ? nullptr : largest->second.second;
}

bool is_busy(const ReportInputs& inputs, const TunedEntry& row) {
  const MeasuredProblem* const measured = inputs.measurements.find(row);
  return measured != nullptr && measured->quietness.rounds > 0 && measured->quietness.busy();
}

}  // namespace

std::vector<std::string> shown_file_names(const ReportInputs& inputs) {
  std::map<std::string, std::size_t> counts;
  for (const TunedFile& file : inputs.tuned.files) ++counts[last_parts(file.path, 1)];
  std::vector<std::string> names;
  for (const TunedFile& file : inputs.tuned.files) {
    const std::string name = last_parts(file.path, 1);
    names.push_back(counts[name] > 1 ? last_parts(file.path, 2) : name);
  }
  return names;
}

std::string report_title(const ReportInputs& inputs) {
  const TunedEntry* const row = row_of_largest_view(inputs);
  if (row == nullptr) return "GEMM tuning report";
  const auto environments = environments_by_rows(inputs);
  std::string device = environments.empty() ? std::string() : text_in(environments.front(), "device");
  if (device.empty()) device = row->gfx.empty() ? std::string(gfx_of_cu_num(row->cu_num)) : row->gfx;
  return fmt::format("GEMM tuning report: {}{}{} {}", device, device.empty() ? "" : ", ",
                     to_string(form_of(row->problem)), to_string(row->problem.x_type));
}

std::string report_subtitle(const ReportInputs& inputs) {
  constexpr std::size_t named_files = 3;
  const std::vector<std::string> names = shown_file_names(inputs);
  std::size_t rows = 0;
  for (const TunedFile& file : inputs.tuned.files) rows += file.entries.size();
  std::string text = counted(rows, "row") + " in ";
  for (std::size_t i = 0; i < std::min(names.size(), named_files); ++i)
    text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > named_files)
    text += fmt::format(" and {}", counted(names.size() - named_files, "other file"));
  if (names.empty()) text += "no file";
  const auto environments = environments_by_rows(inputs);
  if (environments.empty()) return text;
  const Json& environment = environments.front();
  const std::string units = environment.contains("cu_num") ? json_line(environment["cu_num"]) : std::string();
  text += fmt::format(" · {} ({}, {} compute units)", text_in(environment, "device"),
                      text_in(environment, "gfx"), units);
  std::string libraries;
  if (const auto found = environment.find("libraries"); found != environment.end() && found->is_object()) {
    for (const auto& [name, version] : found->items())
      if (version.is_string())
        libraries += fmt::format("{}{} {}", libraries.empty() ? "" : ", ", name, version.get<std::string>());
  }
  if (!libraries.empty()) text += " · " + libraries;
  if (const auto found = environment.find("observations"); found != environment.end() && found->is_object())
    if (const std::string recorded = text_in(*found, "recorded"); !recorded.empty())
      text += " · measured " + recorded.substr(0, 10);
  if (const std::string policy = text_in(environment, "policy"); !policy.empty()) text += " · " + policy;
  if (environments.size() > 1)
    text += fmt::format(" · and {}", counted(environments.size() - 1, "other environment"));
  return text;
}

ReportTable next_steps_table(const ReportInputs& inputs) {
  ReportTable table("next_steps", "Steps", "",
                    {{"what", "what", text_kind}, {"rows", "rows"}, {"command", "command", text_kind}});
  if (inputs.run && !inputs.run->ended) return table;
  const std::vector<std::string> names = shown_file_names(inputs);
  std::map<OperationForm, std::vector<std::string>> files;
  std::size_t rows = 0, undecided = 0, busy = 0, wrong = 0, untimed = 0;
  const TunedEntry* to_repeat = nullptr;
  const TunedEntry* wrong_row = nullptr;
  for (std::size_t i = 0; i < inputs.tuned.files.size(); ++i) {
    std::set<OperationForm> operations;
    for (const TunedEntry& row : inputs.tuned.files[i].entries) {
      operations.insert(form_of(row.problem));
      ++rows;
      const bool row_is_busy = is_busy(inputs, row);
      undecided += row.verdict == Verdict::undecided;
      busy += row_is_busy;
      wrong += row.verdict == Verdict::default_wrong;
      untimed += row.verdict == Verdict::default_untimed;
      if (to_repeat == nullptr &&
          (row_is_busy || row.verdict == Verdict::undecided || row.verdict == Verdict::default_untimed))
        to_repeat = &row;
      if (wrong_row == nullptr && row.verdict == Verdict::default_wrong) wrong_row = &row;
    }
    for (const OperationForm operation : operations) files[operation].push_back(names[i]);
  }
  if (rows == 0) return table;
  for (const auto& [operation, paths] : files) {
    const std::string command = fmt::format("export GEMMTUNE_CONFIG_{}={}", upper(to_string(operation)),
                                            shell_word(joined(paths, ":")));
    table.add({"use the file (an absolute path works from every folder)", ReportValue(), command});
  }
  const auto file_of = [&](const TunedEntry& row) { return names[row.source]; };
  if (undecided + busy + untimed > 0 && to_repeat != nullptr) {
    const std::string command = tune_command(to_repeat->problem, file_of(*to_repeat));
    table.add({"repeat on a quiet machine: undecided, busy or without a default's time; the first of them",
               undecided + busy + untimed, command});
  }
  if (wrong_row != nullptr) {
    const std::string command = check_command(wrong_row->problem, wrong_row->default_kernel);
    table.add({"the default kernel is wrong: see how, and report it to its library", wrong, command});
  }
  const auto errors = std::ranges::count_if(
      inputs.findings, [](const Finding& finding) { return finding.severity() == Severity::error; });
  if (errors > 0 && !names.empty()) {
    const std::string command = fmt::format("gemmtune audit {} --fix fixed.csv", shell_word(names.front()));
    table.add({"rows with errors: drop them into a clean copy", errors, command});
  }
  if (inputs.captures.empty() && !names.empty()) {
    const std::string command =
        fmt::format("gemmtune report {} --capture captured.csv", shell_word(names.front()));
    table.add(
        {"weigh the rows by your program's calls (GEMMTUNE_CAPTURE records them)", ReportValue(), command});
  }
  return table;
}

ReportTable side_by_side_table(const ReportInputs& inputs) {
  const auto& files = inputs.tuned.files;
  const std::vector<std::string> names = shown_file_names(inputs);
  const std::string note =
      files.size() < 2 ? std::string()
                       : fmt::format(
                             "First: {}; second: {}. A ratio above 1: the second one's kernel is slower. "
                             "The times are of different runs; `gemmtune bench` compares them in one.",
                             names[0], names[1]);
  ReportTable table("side_by_side", "Two files side by side", note,
                    {{"view", "device and operation", text_kind},
                     {"m", "M"},
                     {"n", "N"},
                     {"k", "K"},
                     {"first_us", "first µs", ReportKind::number, 3},
                     {"second_us", "second µs", ReportKind::number, 3},
                     {"ratio", "ratio", ReportKind::number, 3},
                     {"first_kernel", "first kernel", text_kind},
                     {"second_kernel", "second kernel", text_kind}});
  if (files.size() < 2) return table;
  std::unordered_map<Problem, std::vector<const TunedEntry*>, SameKeyHash, SameKey> second;
  for (const TunedEntry& row : files[1].entries) second[row.problem].push_back(&row);
  for (const TunedEntry& row : files[0].entries) {
    const auto found = second.find(row.problem);
    if (found == second.end()) continue;
    const auto same_device = [&](const TunedEntry* other) { return view_of(*other) == view_of(row); };
    const auto other = std::ranges::find_if(found->second, same_device);
    if (other == found->second.end() || !valid_time(row.us) || !valid_time((*other)->us)) continue;
    table.add({view_of(row), row.problem.m, row.problem.n, row.problem.k, row.us, (*other)->us,
               (*other)->us / row.us, row.kernel_name, (*other)->kernel_name});
  }
  return table;
}

Roof measured_roof(std::string_view environment) {
  Roof roof;
  const Json json = parse_json(environment);
  const auto observations = json.is_object() ? json.find("observations") : json.end();
  if (observations == json.end() || !observations->is_object()) return roof;
  const auto number_in = [](const Json& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_number() ? found->get<double>() : 0.0;
  };
  roof.gigabytes = number_in(*observations, "memory_roof_gbs");
  const auto compute = observations->find("compute_roof");
  if (compute != observations->end() && compute->is_object()) {
    roof.tflops = number_in(*compute, "tflops");
    const auto product = compute->find("problem");
    if (product != compute->end() && product->is_string()) roof.product = product->get<std::string>();
  }
  return roof;
}

}  // namespace gemmtune::cli
