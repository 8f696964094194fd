// gemmtune worth: what tuning can gain, before it is done.
#include "tuning/worth.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/interrupt.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "cli/shared/report_parts.h"
#include "cli/tune/option_table.h"
#include "cli/tune/tune_options.h"
#include "cli/tune/tune_workers.h"
#include "evaluate/journal/journal.h"
#include "evaluate/journal/journal_schema.h"
#include "evaluate/journal/journal_texts.h"
#include "formats/capture/capture_file.h"
#include "formats/json.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* worth_footer = R"(
WHAT is a shape list, a captured workload (its calls count), or a model (a shipped name, a folder, a Hugging Face id). Each shape's default kernel is timed beside the
kernels that tuning tries first; what the rest of a search adds to them is known from recorded runs. The
answer is a share of the time of all GEMMs, with an interval that holds the gain of a whole run in 9 of 10 cases. Nothing is written.

Of the whole: --gemm-share, which a profile says, or --tokens-per-second of a program whose step has --tokens tokens (M).

Exit codes: 0 done, 1 a shape could not be measured, 2 usage or input.

Examples:
  gemmtune worth shapes/llama-3.2-1b.csv --seconds 30
  gemmtune worth llama-3.2-1b --nsets 1,16
  gemmtune worth captured.csv --gemm-share 60
  gemmtune worth shapes/llama-3.2-1b.csv --tokens 1 --tokens-per-second 95)";

constexpr double stop_share = 0.01;  // of the whole: what is not worth a run

struct WorthOptions {
  TuneOptions tune;
  std::string what;
  std::string journal;
  double seconds = 30;
  double gemm_share = 0;  // percent of the whole; 0: not given
  double tokens_per_second = 0;
  std::int64_t tokens = 0;  // of a step
  bool quiet = false;
  bool json = false;
};

/// The share of the whole program's time that GEMMs take; nullopt where nothing was said of it. With --tokens all shapes are
/// of one step.
std::optional<double> gemm_share_of(const WorthOptions& options, const Worth& worth) {
  if (options.gemm_share > 0) return options.gemm_share / 100;
  if (options.tokens_per_second <= 0 || worth.measured == 0) return std::nullopt;
  const double step = 1e-6 * worth.default_microseconds;
  const double whole = static_cast<double>(options.tokens) / options.tokens_per_second;
  if (step <= whole) return step / whole;
  print_note(
      fmt::format("--tokens-per-second {:g}: a step of {} would take {:.3g} ms, and its GEMMs alone take "
                  "{:.3g} ms here; they count as all of it",
                  options.tokens_per_second, counted(static_cast<std::size_t>(options.tokens), "token"),
                  1e3 * whole, 1e3 * step));
  return 1.0;
}

/// --tokens: leaves the shapes of one step.
Status keep_step(std::int64_t tokens, ShapeList& shapes) {
  if (tokens == 0) return {};
  std::erase_if(shapes.rows, [&](const ShapeRow& row) { return row.problem.m != tokens; });
  return shapes.rows.empty()
             ? Status::invalid("--tokens {}: {} has no shape of that M", tokens, shapes.source)
             : Status();
}

std::string percent(double share) { return fmt::format("{:.1f} %", 100 * share); }

std::string percent(const Interval& share, double factor) {
  return fmt::format("{:.1f} to {:.1f} %", 100 * factor * share.low, 100 * factor * share.high);
}

std::string worth_text(const WorthOptions& options, const Worth& worth,
                       const std::optional<double>& gemm_share) {
  TextTable table({{"shape (M x N x K)"},
                   {"layer", false, true, 2},
                   {"calls", true, false, 1},
                   {"default µs", true},
                   {"of the time", true},
                   {"best so far", true, false, 1},
                   {"expected", true},
                   {"95 %", true},
                   {"default kernel", false, true, 3}});
  std::string left_out;
  for (const ShapeWorth& shape : worth.shapes) {
    if (!shape.why_not.empty()) {
      left_out += fmt::format("  {}: {}\n", short_name(shape.shape.problem), shape.why_not);
      continue;
    }
    const auto calls = std::max<std::int64_t>(1, shape.shape.calls);
    table.add({short_name(shape.shape.problem), shape.shape.layer, std::to_string(calls),
               fmt::format("{:.2f}", shape.default_microseconds),
               percent(static_cast<double>(calls) * shape.default_microseconds / worth.default_microseconds),
               fmt::format("{:.2f}x", shape.default_microseconds / shape.best_microseconds),
               fmt::format("{:.2f}x", shape.speedup),
               fmt::format("{:.2f} to {:.2f}", shape.speedup_interval.low, shape.speedup_interval.high),
               shape.default_kernel});
  }
  std::string text = table.text(stdout_is_terminal() ? stdout_columns() : 0) + "\n";
  if (!left_out.empty()) text += "not counted:\n" + left_out;
  if (worth.measured == 0) return text + "no shape was measured; give more time (--seconds)\n";
  text += fmt::format("{} measured in {}; their GEMMs take {:.3f} ms by calls\n",
                      counted(worth.measured, "shape"), duration(worth.seconds),
                      1e-3 * worth.default_microseconds);
  text += fmt::format("tuning is expected to save {} of this time (95 %: {})\n", percent(worth.saved_share),
                      percent(worth.saved_interval, 1));
  const double factor = gemm_share.value_or(1);
  if (gemm_share)
    text += fmt::format("GEMMs are {} of the whole, so that it becomes {} faster (95 %: {})\n",
                        percent(*gemm_share), percent(factor * worth.saved_share),
                        percent(worth.saved_interval, factor));
  if (factor * worth.saved_interval.high < stop_share)
    return text + fmt::format("tuning cannot gain more than {} here: stop\n",
                              percent(factor * worth.saved_interval.high));
  const std::string source =
      options.tune.model.folder.empty() ? shell_word(options.what) : "--model " + shell_word(options.what);
  return text + fmt::format("next: gemmtune tune {} -o tuned.csv --budget {}\n", source,
                            std::max<std::size_t>(30, 10 * worth.shapes.size()));
}

std::string worth_json(const Worth& worth, const std::optional<double>& gemm_share,
                       const DeviceInfo& device) {
  Json json = {{"command", "worth"}, {"device", device_json(device)}, {"shapes", Json::array()}};
  for (const ShapeWorth& shape : worth.shapes) {
    Json one = {{"problem", print(shape.shape.problem)},
                {"layer", shape.shape.layer},
                {"calls", std::max<std::int64_t>(1, shape.shape.calls)}};
    if (!shape.why_not.empty()) {
      one["why_not"] = shape.why_not;
    } else {
      one.update({{"default_us", shape.default_microseconds},
                  {"default_kernel", shape.default_kernel},
                  {"best_us", shape.best_microseconds},
                  {"best_kernel", shape.best_kernel},
                  {"roof_us", shape.roof_microseconds > 0 ? Json(shape.roof_microseconds) : Json()},
                  {"tried", shape.tried},
                  {"kernels", shape.kernels},
                  {"expected_kernels", shape.expected},
                  {"speedup", shape.speedup},
                  {"speedup_low", shape.speedup_interval.low},
                  {"speedup_high", shape.speedup_interval.high}});
    }
    json["shapes"].push_back(std::move(one));
  }
  json["default_us"] = worth.default_microseconds;
  json["saved_share"] = worth.saved_share;
  json["saved_share_low"] = worth.saved_interval.low;
  json["saved_share_high"] = worth.saved_interval.high;
  json["gemm_share"] = number_or_null(gemm_share);
  json["seconds"] = worth.seconds;
  return json_document(json);
}

/// A folder is a model's; what is no file is one too, so that the message of models answers for a name.
void take_what(WorthOptions& options) {
  std::error_code ignored;
  const bool is_file = options.what == "-" || std::filesystem::exists(options.what, ignored);
  const bool is_folder = std::filesystem::is_directory(options.what, ignored);
  const bool looks_like_file = options.what.ends_with(".csv") || options.what.ends_with(".yaml");
  (is_folder || (!is_file && !looks_like_file) ? options.tune.model.folder : options.tune.input) =
      options.what;
}

Result<int> answer_worth(WorthOptions& options) {
  const Environment environment = read_environment();
  if (options.tokens_per_second > 0 && options.tokens <= 0)
    return Status::invalid("--tokens-per-second: expected --tokens M too, the tokens of a step");
  take_what(options);
  GEMMTUNE_RETURN_IF_ERROR(check_options(options.tune));
  GEMMTUNE_TRY(auto devices, open_tune_devices(options.tune, environment));
  devices.resize(1);
  const Device& device = *devices.front();
  GEMMTUNE_TRY(auto shapes, shapes_of(options.tune, environment, device.info()));
  if (!options.tune.input.empty()) take_captured_calls(options.tune.input, shapes);
  GEMMTUNE_RETURN_IF_ERROR(keep_step(options.tokens, shapes));
  for (const std::string& diagnostic : shapes.diagnostics) print_note(diagnostic);
  for (const std::string& note : shapes.notes) print_note(note);
  GEMMTUNE_TRY(auto request, request_of(options.tune, shapes, Outputs(), device));
  std::optional<Journal> journal;
  if (!options.journal.empty()) {
    GEMMTUNE_RETURN_IF_ERROR(open_existing_journal(options.journal).status());
    GEMMTUNE_TRY(journal, Journal::open(options.journal));
    request.earlier_winners = [&](const Problem& problem) {
      constexpr std::size_t max_hints = 4;
      std::vector<std::string> names;
      const auto hints = journal->hints(journal_device_text(device.info()), problem, max_hints);
      if (!hints.ok()) return names;
      for (const JournalHint& hint : *hints) names.push_back(hint.candidate);
      return names;
    };
  }
  watch_for_interrupts();
  std::atomic<double> waited{0};  // for other programs that were timing: no part of --seconds
  WorkerHooks hooks;
  hooks.on_waited = [&waited](double seconds) { waited.fetch_add(seconds); };
  request.clock = [&waited] { return steady_seconds() - waited; };
  const auto evaluators = make_evaluators(options.tune, environment, devices, request, hooks);
  Worth worth;
  {
    Console console(options.quiet);
    GEMMTUNE_TRY(worth,
                 estimate_worth(device, *evaluators.front(), request, options.seconds,
                                [&](const ShapeWorth& shape, std::size_t done, std::size_t count) {
                                  console.line(fmt::format(
                                      "[{}/{}] {}: {}", done, count, short_name(shape.shape.problem),
                                      shape.why_not.empty()
                                          ? fmt::format("default {:.2f} µs, best so far {:.2f} µs",
                                                        shape.default_microseconds, shape.best_microseconds)
                                          : shape.why_not));
                                }));
  }
  const std::optional<double> gemm_share = gemm_share_of(options, worth);
  print_answer(options.json, options.json ? worth_json(worth, gemm_share, device.info())
                                          : worth_text(options, worth, gemm_share));
  if (interrupted()) return exit_interrupted;
  return worth.measured == worth.shapes.size() && shapes.diagnostics.empty() ? exit_done : exit_findings;
}

}  // namespace

std::function<Result<int>()> declare_worth(CommandOptions& app) {
  auto options = std::make_shared<WorthOptions>();
  app.add_option("WHAT", options->what,
                 "A shape list, a captured workload, or a model (name, folder, Hugging Face id)")
      .required();
  app.add_option("--seconds", options->seconds, "Seconds of measuring (0: 32 kernels of each shape)")
      .capture_default_str()
      .number_range(0, 1e6);
  app.add_option("--journal", options->journal, "The journal of earlier runs: what won there is tried first")
      .type_name("FILE");
  app.add_option("--gemm-share", options->gemm_share,
                 "Percent of the program's time that GEMMs take, of a profile")
      .number_range(0, 100);
  app.add_option("--tokens-per-second", options->tokens_per_second, "What the program reaches untuned")
      .number_range(0, 1e12);
  app.add_option("--tokens", options->tokens, "Tokens of a step of that program: only shapes of that M count")
      .positive();
  app.add_option("--op", options->tune.size.operation,
                 "The operation, where header and file name do not say it");
  app.add_option("--nsets", options->tune.model.tokens, "Token counts of a model, comma list");
  app.add_option("--tp", options->tune.model.tensor_parallel, "Tensor parallelism of a model's shapes");
  app.add_option("--indtype", options->tune.size.x_type, "Type of x and w of a model's shapes");
  app.add_option("--libtype", options->tune.families, "Kernel families, comma list").capture_default_str();
  declare_device_options(app, options->tune.device);
  app.add_flag("-q,--quiet", options->quiet, "No progress");
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(worth_footer);
  return [options] { return answer_worth(*options); };
}

}  // namespace gemmtune::cli
