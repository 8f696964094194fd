#include "cli/tune/each_operation.h"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "cli/command.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/tune/session.h"
#include "formats/aiter/schema.h"
#include "formats/json.h"

namespace gemmtune::cli {
namespace {

/// What is of one run: a side file, or a way to run that has one list of shapes.
bool is_of_one_run(const TuneOptions& options) {
  return !options.profile.empty() || !options.record.empty() || !options.events.empty() ||
         !options.replay.empty() || !options.shard.empty() || options.compare || options.checks_winners ||
         options.buckets || options.keep;
}

OperationRun run_of(const TuneOptions& options, OperationForm operation, std::size_t shapes) {
  OperationRun run{options, shapes};
  run.options.size.operation = to_string(operation);
  return run;
}

Result<std::vector<OperationRun>> runs_of_model(const TuneOptions& options, const Environment& environment) {
  GEMMTUNE_TRY(const auto shapes, shapes_of_model(options.model, options.size, environment, {}, true));
  std::vector<OperationRun> runs;
  for (const OperationForm operation : all_operation_forms()) {
    const auto rows = std::ranges::count_if(
        shapes.rows, [&](const ShapeRow& row) { return form_of(row.problem) == operation; });
    if (rows > 0) runs.push_back(run_of(options, operation, static_cast<std::size_t>(rows)));
  }
  return runs;
}

Result<std::vector<OperationRun>> runs_of_lists(const TuneOptions& options) {
  std::vector<OperationRun> runs;
  const auto asked = parse_operation(options.size.operation);  // none: all
  for (const OperationForm operation : all_operation_forms()) {
    if (asked && *asked != operation) continue;
    const std::string path = join_path(options.input, untuned_file_name(operation));
    if (!file_exists(path)) continue;
    ShapeListOptions list;
    list.operation = operation;
    list.strict = options.strict;
    GEMMTUNE_TRY(const auto shapes, read_shape_list(path, list));
    runs.push_back(run_of(options, operation, shapes.rows.size()));
    runs.back().options.input = path;
  }
  if (runs.empty())
    return Status::not_found("{}: no list of shapes{}{}", options.input, asked ? ", expected " : ", such as ",
                             untuned_file_name(asked.value_or(OperationForm())));
  if (!asked && !options.output.empty() && !names_folder(options.output))
    return Status::invalid("-o {}: a file holds one operation, and {} is a folder: give -o FOLDER/",
                           options.output, options.input);
  if (runs.size() > 1 && is_of_one_run(options))
    return Status::invalid(
        "{}: has lists of {} operations, and one of the options is of one run: give -i FILE", options.input,
        runs.size());
  return runs;
}

}  // namespace

Result<std::vector<OperationRun>> runs_of(const TuneOptions& options, const Environment& environment) {
  std::vector<OperationRun> as_it_is{{options}};
  if (options.size.any()) return as_it_is;
  if (!options.input.empty()) return names_folder(options.input) ? runs_of_lists(options) : as_it_is;
  if (!options.size.operation.empty()) return as_it_is;
  const bool has_folder =
      options.output.empty() ? options.default_output.empty() : names_folder(options.output);
  if (model_folder(options.model, environment).empty() || !has_folder || is_of_one_run(options))
    return as_it_is;
  return runs_of_model(options, environment);
}

Result<int> tune_each(const std::vector<OperationRun>& runs, const Environment& environment) {
  const bool json = runs.front().options.json;
  const double budget = runs.front().options.request.budget_seconds;
  const double begin = steady_seconds();
  std::size_t left = 0;
  for (const OperationRun& run : runs) left += run.shapes;
  Json answers = Json::array();
  int code = exit_done;
  for (std::size_t i = 0; i < runs.size(); ++i) {
    TuneOptions options = runs[i].options;
    if (budget > 0) {
      const double rest = std::max(1.0, budget - (steady_seconds() - begin));
      options.request.budget_seconds =
          rest * static_cast<double>(runs[i].shapes) / static_cast<double>(std::max<std::size_t>(1, left));
    }
    left -= runs[i].shapes;
    if (!options.quiet)
      print_note(fmt::format("operation {} of {}: {}, {}", i + 1, runs.size(), options.size.operation,
                             counted(runs[i].shapes, "shape")));
    GEMMTUNE_TRY(const auto answer, TuneSession(options, environment).run());
    if (json) {
      answers.push_back(Json::parse(answer.text));
    } else {
      print_answer(false, answer.text);
    }
    code = std::max(code, answer.code);
    if (interrupted()) break;
  }
  if (json) print_answer(true, json_document(Json{{"command", "tune"}, {"operations", std::move(answers)}}));
  return code;
}

}  // namespace gemmtune::cli
