// gemmtune tune: shapes in, tuned file out.
#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/compat/translation.h"
#include "cli/help/help_model.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/tune/option_table.h"
#include "cli/tune/session.h"
#include "cli/tune/tune_options.h"
#include "formats/aiter/schema.h"
#include "formats/json.h"

namespace gemmtune::cli {
namespace {

/// A part of the run, with the options of a run of its own.
struct OperationRun {
  TuneOptions options;
  std::size_t shapes = 0;
};

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

/// One run for each operation that the options ask for: of a model without --op into a folder (-o FOLDER, or the config folder),
/// and of a folder of lists as -i (with --op of that list alone). Just the options as they are for any other run. Requires checked options.
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

/// Tunes them in turn; --budget is divided by shapes, and what one leaves goes to the next ones. Prints their answers, as one
/// JSON document with --json. Returns the exit code.
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

constexpr ShortHelpOption shape_options[] = {
    {"--input", "Shapes: CSV, tuned file or YAML (also -i); - for stdin"},
    {"--model", "Shapes of a model: llama-3.2-1b, a folder, an id"},
    {"--nsets", "Numbers of tokens (M) of a model: 1,16,128"},
    {"--tp", "Tensor-parallel ranks of a model"},
    {"-m", "Rows of x: tokens; also a list, 1,16,128"},
    {"-n", "Rows of w: output features"},
    {"-k", "The reduction"},
    {"--op", "a16w16 (default), a8w8, a8w8_blockscale, fused_moe …"},
    {"--indtype", "Type of x and w: bf16 (default), f16, f32, fp8, int8"},
    {"--m-range", "Tune each weight over M from A to B, as ranges"},
};
constexpr ShortHelpOption output_options[] = {
    {"--output", "The tuned file, or a folder (default: config folder)"},
    {"--profile-file", "All candidates with their times (-o2 FILE)"},
    {"--all", "Tune again what the output has"},
    {"--stale", "Tune again rows of another environment"},
    {"--dry-run", "Print what would be tuned and how long; end"},
};
constexpr ShortHelpOption search_options[] = {
    {"--budget", "Seconds for the whole run (default: no limit)"},
    {"--search", "staged (default), exhaustive, random …"},
    {"--libtype", "Kernel families, comma list (default: all)"},
    {"--objective", "Minimize time (default), energy or edp"},
    {"--accuracy", "default; fast: lower classes too; fp32: none lower"},
};
constexpr ShortHelpOption measuring_options[] = {
    {"--cache", "weights-cold (default), warm or cold"},
    {"--launch", "Of GPUs: graph (default) or eager"},
    {"--confirmations", "Passes over the finalists: 1 or 2 (CPU: 2)"},
    {"--baseline", "What speed-ups are against: default, library, torch"},
    {"--timeout", "Seconds for a step of one candidate"},
};
constexpr ShortHelpOption device_options[] = {
    {"--backend", "auto, cpu, cuda or hip"},
    {"--device", "cuda:0, cpu:0-15 (a set of cores); several: a list"},
    {"--shard", "Part I of N of the shapes, for many machines"},
    {"--verbose", "Each candidate, and why families refused"},
    {"--quiet", "No progress"},
    {"--json", "One JSON document on stdout, also of errors"},
};
constexpr ShortHelpGroup tune_groups[] = {{"Shapes", shape_options},
                                          {"Output", output_options},
                                          {"Search", search_options},
                                          {"Measuring", measuring_options},
                                          {"Device and reports", device_options}};
constexpr ShortHelp tune_short_help{tune_groups, R"(
Shapes that the output has already are skipped. The same command goes on with an
interrupted run. Programs find the file by GEMMTUNE_CONFIG_A16W16=FILE.

Examples:
  gemmtune tune shapes/llama-3.2-1b.csv -o tuned.csv --budget 110
  gemmtune tune -m 1,16 -n 2048 -k 8192 -o tuned.csv

All options, AITER's and tune_gemm's words too: gemmtune tune --help-all
Words of results (win, undecided, ties): gemmtune help verdicts
)"};

constexpr const char* tune_footer = R"(
Shapes come from -i (AITER's untuned CSV, a tuned file, a YAML of gemm sizes, - for stdin), from -m -n -k, from
--model_dir, or from the config folder. A model with several operations has a file of each in the folder that -o
names, or in the config folder (-o FILE: of --op alone, else a16w16); so have the lists of a recorded folder
(-i FOLDER). Shapes that the output already has for this device are skipped (--all tunes them again). The output is
written after each shape, every measurement into OUTPUT.journal: an interrupted or killed
run is continued by the same command and measures nothing twice.

tune_gemm's mode (kernel-space tuning): a YAML of sizes or of results, or one of tune_gemm's options. There a single
size without a type is fp16 (else bf16), and --compare prints after tuning whether each size's best kernel is right
(of a CSV of shapes into a CSV it reports times before and after in any case).
-o OUT.yaml replaces the lines of the same sizes and keeps all others; its sizes are tuned again in every run.

Exit codes: 0 done, 1 finished but some shapes failed, were taken by no family or could not be read, 2 usage or
input, 130 Ctrl-C (what was decided is in the file).

Examples:
  gemmtune tune -i shapes/llama-3.2-1b.csv -o tuned.csv --budget 110
  gemmtune tune -m 16 -n 2048 -k 8192 -o tuned.csv -o2 all_candidates.csv
  gemmtune tune --model_dir Llama-3.2-1B --tp 2 --nsets 1,16,512 --libtype onednn,tiled -o tuned.csv
  gemmtune tune --model_dir MODEL --for vllm --max-num-seqs 64 --budget 300 -o tuned/
  gemmtune tune -n 2048 -k 2048 --m-range 1:8192 -o ranges.csv
  gemmtune tune --run_config tuned.csv
  gemmtune tune --gemm_size_file sizes.yaml --tuning_results_file results.yaml --compare
  gemmtune tune --gemm_size_file results.yaml --compare_wo_tuning
  gemmtune tune -i shapes.csv -o tuned.csv --search exhaustive --record run.jsonl
  gemmtune tune --replay run.jsonl -o replayed.csv)";

Result<int> tune(TuneOptions& options, const Environment& environment) {
  GEMMTUNE_RETURN_IF_ERROR(translate(environment, options));
  GEMMTUNE_RETURN_IF_ERROR(check_options(options));
  GEMMTUNE_TRY(const auto other, run_other_command(options, environment));
  if (other) return *other;
  GEMMTUNE_TRY(const auto runs, runs_of(options, environment));
  if (runs.size() > 1) return tune_each(runs, environment);
  GEMMTUNE_TRY(const auto answer, TuneSession(runs.front().options, environment).run());
  if (!answer.text.empty()) print_answer(options.json, answer.text);
  return answer.code;
}

Result<int> run_tune(TuneOptions options) {
  const Environment environment = read_environment();
  const auto code = tune(options, environment);
  if (code.ok()) return *code;
  usage_error("tune", code.message());
  return interrupted() ? exit_interrupted : exit_usage;
}

}  // namespace

std::function<Result<int>()> declare_tune(CommandOptions& app) {
  auto options = std::make_shared<TuneOptions>();
  declare_section(app, OptionSection::files, *options);
  declare_size_options(app, options->size);
  declare_model_options(app, options->model);
  declare_device_options(app, options->device);
  for (const OptionSection section :
       {OptionSection::ranges, OptionSection::search, OptionSection::measuring, OptionSection::operator_times,
        OptionSection::aiter, OptionSection::tune_gemm, OptionSection::output})
    declare_section(app, section, *options);
  app.footer(tune_footer);
  app.short_help(tune_short_help);
  return [options] { return run_tune(*options); };
}

}  // namespace gemmtune::cli
