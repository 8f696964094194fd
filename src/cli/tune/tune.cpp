// gemmtune tune: shapes in, tuned file out.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "cli/command.h"
#include "cli/commands.h"
#include "cli/shared/console.h"
#include "cli/shared/family_names.h"
#include "cli/shared/interrupt.h"
#include "cli/shared/report_parts.h"
#include "cli/tune/interruptible_evaluator.h"
#include "cli/tune/m_range_options.h"
#include "cli/tune/profile_file.h"
#include "cli/tune/tune_events.h"
#include "cli/tune/tune_journal.h"
#include "cli/tune/tune_operator.h"
#include "cli/tune/tune_options.h"
#include "cli/tune/tune_progress.h"
#include "cli/tune/tune_range.h"
#include "cli/tune/tune_replay.h"
#include "cli/tune/tune_report.h"
#include "cli/tune/tune_workers.h"
#include "search/strategy.h"

namespace gemmtune::cli {
namespace {

using Devices = std::vector<std::unique_ptr<Device>>;

constexpr const char* tune_footer = R"(
Shapes come from -i (AITER's untuned CSV, a tuned file, a YAML of gemm sizes, - for stdin), from -m -n -k, from
--model_dir, or from the config folder. Shapes that the output already has for this device are skipped (--all tunes
them again). The output is written after each shape, every measurement into OUTPUT.journal: an interrupted or killed
run is continued by the same command and measures nothing twice.

Exit codes: 0 done, 1 finished but some shapes failed, were taken by no family or could not be read, 2 usage or
input, 130 Ctrl-C (what was decided is in the file).

Examples:
  gemmtune tune -i shapes/llama-3.2-1b.csv -o tuned.csv --budget 110
  gemmtune tune -m 16 -n 2048 -k 8192 -o tuned.csv -o2 all_candidates.csv
  gemmtune tune --model_dir Llama-3.2-1B --tp 2 --nsets 1,16,512 --libtype onednn,tiled -o tuned.csv
  gemmtune tune -n 2048 -k 2048 --m-range 1:8192 -o ranges.csv
  gemmtune tune --run_config tuned.csv
  gemmtune tune -i shapes.csv -o tuned.csv --search exhaustive --record run.jsonl
  gemmtune tune --replay run.jsonl -o replayed.csv)";

void declare_files(CLI::App& app, TuneOptions& options) {
  app.add_option(
         "-i,--input,--untune-file,--input-file,--gemm-size-file", options.input,
         "Shapes: CSV, YAML of gemm sizes, - for stdin (default: the config folder's bf16_untuned_gemm.csv)")
      ->type_name("FILE");
  app.add_option("--limit", options.limit, "Only the first N shapes")->type_name("N");
  app.add_option(
      "-o,--output,--tune-file,--tuned-file", options.output,
      "The tuned file; a colon list: all are read, the first is written (default: the config folder's "
      "bf16_tuned_gemm.csv)");
  app.add_option("--profile-file", options.profile,
                 "-o2 FILE: append all candidates with time, spread, error, outcome and reason");
  app.add_option("--csv-schema", options.schema, "Of a new output: aiter (leading gfx) or seed (without)")
      ->capture_default_str();
  app.add_option("--sort", options.sort, "Sort the output by gfx, cu_num, N, M, K (bare, or True or False)");
  app.add_flag("--all", options.all, "Tune again what the output has");
  app.add_flag("--resume,!--no-resume", options.resume,
               "Go on with an unfinished run of the same request (on; its journal is OUTPUT.journal)");
  app.add_flag("--retry-failed", options.retry_failed,
               "Try candidates again that failed before; without it only repaired kernels are");
  app.add_option("--record", options.record, "Write everything that is measured into a recording")
      ->type_name("FILE");
  app.add_option("--events", options.events,
                 "Append what happens, as it happens, to a file or pipe: JSON, one object a line")
      ->type_name("FILE");
  app.add_option("--replay", options.replay, "Answer from a recording instead of a machine")
      ->type_name("FILE");
  app.add_flag("--stale", options.stale, "Tune again the rows that were measured in another environment");
  app.add_flag("--strict", options.strict, "A row that cannot be read is an error");
}

void declare_search(CLI::App& app, TuneOptions& options) {
  app.add_option("--libtype", options.families,
                 "Kernel families, comma list; also AITER's words (hipblaslt, triton, ck, asm, torch …)")
      ->capture_default_str();
  app.add_flag("--splitK,!--no-splitK", options.split_k, "Kernels that split K (on; a bare -k is this flag)");
  std::string strategies = "Which candidates are measured:";
  for (const StrategyInfo& strategy : all_strategies()) {
    strategies += fmt::format(" {} ({});", strategy.name, strategy.summary);
  }
  strategies.back() = '.';
  app.add_option("--search", options.search, strategies)->capture_default_str();
  app.add_option("--budget", options.budget_seconds, "Seconds for the whole run (default: none)");
  app.add_option("--errRatio", options.max_err_ratio, "Share of elements that may be outside tolerance")
      ->capture_default_str();
  app.add_option("--prefer-ratio", options.prefer_ratio,
                 "Keep the default kernel unless beaten by this ratio")
      ->capture_default_str();
}

void declare_measuring(CLI::App& app, TuneOptions& options) {
  app.add_option("--cache", options.cache,
                 "warm, weights-cold or cold: what lies in the cache when a call begins")
      ->capture_default_str();
  app.add_option("--warmup", options.warmup, "Minimum number of warm-up calls")->capture_default_str();
  app.add_option("--iters", options.iterations, "Maximum number of timed calls of a finalist in a round")
      ->capture_default_str();
  app.add_option("--confirmations", options.confirmations,
                 "How often the finalists of each shape are measured, 1 or 2. 2: a confirmation pass follows "
                 "once all shapes are settled, because neighbours on a shared machine change which kernel "
                 "is fastest (default: 2 on a CPU, else 1)")
      ->check(CLI::Range(1, 2));
  app.add_option("--batch", options.batch, "Most shapes that are with workers at once")
      ->capture_default_str();
  app.add_option("--mp", options.workers,
                 "Worker processes, one a device (default: all that --device names)");
  app.add_option(
         "--timeout", options.timeout,
         "Seconds for a step of one candidate before its worker is replaced, or none; in screening the "
         "other candidates' times set a nearer limit")
      ->capture_default_str();
  app.add_flag("--shape-grouped", options.shape_grouped,
               "Accepted: all candidates of a shape run on one device anyway");
  app.add_flag("--in-process", options.in_process,
               "Measure in this process, for debugging: a kernel that crashes ends the run");
  app.add_option("--pdl", options.pdl,
                 "allow: also find the best kernel that is launched before the one in front of it has ended "
                 "(programmatic dependent launch, NVIDIA), in columns of its own; off: none")
      ->capture_default_str();
}

void declare_operator(CLI::App& app, TuneOptions& options, std::string& run_config,
                      CLI::Option*& run_config_option) {
  run_config_option =
      app.add_option("--run-config", run_config,
                     "Time the production operator on the shapes of a tuned file (or, bare, of the "
                     "input with defaults), and end")
          ->expected(0, 1);
  app.add_flag("--compare", options.compare, "Time the operator before and after tuning, and report");
  app.add_flag("--update-improved", options.update_improved, "With --compare: write only rows that improved");
  app.add_option("--min-improvement-pct", options.least_improvement, "What counts as improved, percent")
      ->capture_default_str();
}

void say_diagnostics(Console& console, const ShapeList& shapes) {
  for (const std::string& diagnostic : shapes.diagnostics) console.urgent_line(diagnostic);
}

/// The usual run: everything but --run_config and --compare.
int tune_shapes(const TuneOptions& options, const Environment& environment, const Devices& devices,
                const ShapeList& shapes) {
  Device& device = *devices.front();
  auto outputs = outputs_of(options, environment, device.info(), shapes);
  if (!outputs.ok()) return usage_error("tune", outputs.message());
  auto request = request_of(options, shapes, *outputs, device);
  if (!request.ok()) return usage_error("tune", request.message());
  const std::string environment_hash = row_environment(device, request->policy).hash;
  ProfileFile profile(outputs->profile, device.info(), environment_hash, request->publish.schema);
  if (!outputs->profile.empty()) {
    if (const Status status = profile.check_header(); !status.ok())
      return usage_error("tune", status.message());
  }
  Console console(options.quiet);
  auto journal = TuneJournal::open(options, *outputs, device, *request);
  if (!journal.ok()) return usage_error("tune", journal.message());
  request->earlier_winners = [&](const Problem& problem) { return (*journal)->earlier_winners(problem); };
  say_diagnostics(console, shapes);
  std::string device_names;
  for (const auto& each : devices)
    device_names += (device_names.empty() ? "" : "; ") + device_line(each->info());
  console.line(fmt::format("{} on {}{}", counted(shapes.rows.size(), "shape"), device_names,
                           (*journal)->goes_on() ? ", going on with an unfinished run" : ""));
  watch_for_interrupts();
  const auto evaluators = make_evaluators(options, environment, devices, *request);
  std::vector<std::unique_ptr<InterruptibleEvaluator>> interruptible;
  std::vector<Evaluator*> measuring;
  for (const auto& evaluator : evaluators) {
    const auto journaled = (*journal)->around(*evaluator);
    if (!journaled.ok()) return usage_error("tune", journaled.message());
    interruptible.push_back(std::make_unique<InterruptibleEvaluator>(**journaled, interrupted));
    measuring.push_back(interruptible.back().get());
  }
  TuneProgress progress(console, device, outputs->profile.empty() ? nullptr : &profile, *request,
                        options.verbose);
  const auto events = TuneEvents::open(options.events, progress);
  if (!events.ok()) return usage_error("tune", events.message());
  const auto summary = tune(device, measuring, *request, (*journal)->around(**events));
  (*journal)->end(summary.ok() ? &*summary : nullptr, interrupted());
  console.clear_live_line();
  if (!summary.ok()) return usage_error("tune", summary.message());
  for (const std::string& line : failed_families(summary->problems)) console.urgent_line(line);
  const TuneEnding ending{*summary, shapes, *outputs, device.info(), interrupted()};
  fmt::print("{}", options.json ? ending_json(ending) : ending_text(ending));
  return ending_code(ending);
}

int run_tune(TuneOptions options) {
  if (const Status status = take_m_range(options); !status.ok()) return usage_error("tune", status.message());
  if (const Status status = check_options(options); !status.ok())
    return usage_error("tune", status.message());
  const Environment environment = read_environment();
  if (!options.replay.empty()) return replay_tuning(options, environment);
  const auto devices = open_tune_devices(options, environment);
  if (!devices.ok()) return usage_error("tune", devices.message());
  Device& device = *devices->front();
  if (const auto families = resolve_families(options.families, device); !families.ok()) {
    return usage_error("tune", families.message());
  }
  if (options.run_config && !options.run_config->empty()) {
    return run_operator_on_file(options, device);
  }
  auto shapes = shapes_of(options, environment, device.info());
  if (!shapes.ok()) return usage_error("tune", shapes.message());
  if (options.run_config) return run_operator_on_shapes(options, environment, device, *shapes);
  if (options.compare) return compare_operator(options, environment, *devices, *shapes);
  if (!options.m_range.empty()) return tune_ranges(options, environment, *devices, *shapes);
  return tune_shapes(options, environment, *devices, *shapes);
}

}  // namespace

std::function<int()> declare_tune(CLI::App& app) {
  auto options = std::make_shared<TuneOptions>();
  auto run_config = std::make_shared<std::string>();
  CLI::Option* run_config_option = nullptr;
  declare_files(app, *options);
  declare_size_options(app, options->size);
  declare_model_options(app, options->model);
  declare_device_options(app, options->device);
  declare_m_range(app, *options);
  declare_search(app, *options);
  declare_measuring(app, *options);
  declare_operator(app, *options, *run_config, run_config_option);
  app.add_flag("-v,--verbose", options->verbose, "Each candidate, and why families refused");
  app.add_flag("-q,--quiet", options->quiet, "No progress");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(tune_footer);
  return [options, run_config, run_config_option] {
    if (run_config_option->count() > 0) options->run_config = *run_config;
    return run_tune(*options);
  };
}

}  // namespace gemmtune::cli
