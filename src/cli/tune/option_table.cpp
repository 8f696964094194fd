#include "cli/tune/option_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>

#include "base/hash.h"
#include "base/text.h"
#include "cli/shared/command_options.h"
#include "cli/shared/family_names.h"
#include "cli/shared/routing_options.h"
#include "cli/tune/tune_buckets.h"
#include "search/strategy.h"

namespace gemmtune::cli {
namespace {

/// "a, b or c".
std::string one_of(std::span<const std::string_view> words) {
  std::string text;
  for (std::size_t i = 0; i < words.size(); ++i) {
    text += fmt::format("{}{}", i == 0 ? "" : i + 1 == words.size() ? " or " : ", ", words[i]);
  }
  return text;
}

/// The word's place in the list, with '_' read as '-'; an error names the option.
Result<std::size_t> word_of(std::string_view option, const std::string& text,
                            std::span<const std::string_view> words) {
  std::string dashed = text;
  for (char& letter : dashed) letter = letter == '_' ? '-' : letter;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (dashed == words[i]) return i;
  }
  return Status::invalid("{} {}: expected {}", option, text, one_of(words));
}

Status apply_schema(const TuneOptions& options, TuneRequest& request) {
  constexpr std::array<std::string_view, 2> words = {"aiter", "seed"};
  GEMMTUNE_TRY(const auto word, word_of("--csv-schema", options.schema, words));
  request.publish.schema = std::array{CsvSchema::aiter, CsvSchema::seed}[word];
  return {};
}

Status apply_sort(const TuneOptions& options, TuneRequest& request) {
  request.publish.sort = options.sort == "true";
  if (options.sort.empty() || options.sort == "true" || options.sort == "false") return {};
  return Status::invalid("--sort {}: expected True or False", options.sort);
}

Status apply_cache(const TuneOptions& options, TuneRequest& request) {
  const auto mode = parse_cache_mode(options.cache);
  if (!mode) return Status::invalid("--cache {}: expected warm, weights-cold or cold", options.cache);
  request.policy.cache = *mode;
  return {};
}

Status apply_accuracy(const TuneOptions& options, TuneRequest& request) {
  const auto policy = parse_accuracy_policy(options.accuracy);
  if (!policy) return Status::invalid("--accuracy {}: expected default, fast or fp32", options.accuracy);
  request.policy.accuracy = *policy;
  return {};
}

Status apply_launch(const TuneOptions& options, TuneRequest& request) {
  const auto mode = parse_launch_mode(options.launch);
  if (!mode) return Status::invalid("--launch {}: expected graph or eager", options.launch);
  request.policy.launch = *mode;
  return {};
}

Status apply_team(const TuneOptions& options, TuneRequest& request) {
  if (options.team.empty()) return {};
  const auto team = parse_team(options.team);
  if (!team || *team == Team::automatic)
    return Status::invalid("--team {}: expected own or openmp", options.team);
  request.policy.team = options.team;
  return {};
}

Status apply_between(const TuneOptions& options, TuneRequest& request) {
  constexpr std::array<std::string_view, 2> words = {"none", "parallel"};
  GEMMTUNE_TRY(const auto word, word_of("--between", options.between, words));
  request.policy.parallel_pass = word == 1;
  return {};
}

Status apply_clock(const TuneOptions& options, TuneRequest& request) {
  constexpr std::array<std::string_view, 2> words = {"wall", "processor"};
  GEMMTUNE_TRY(const auto word, word_of("--clock", options.clock, words));
  request.policy.processor_time = word == 1;
  return {};
}

Status apply_objective(const TuneOptions& options, TuneRequest& request) {
  const auto objective = parse_objective(options.objective);
  if (!objective) return Status::invalid("--objective {}: expected time, energy or edp", options.objective);
  request.policy.objective = *objective;
  return {};
}

Status apply_routings(const TuneOptions& options, TuneRequest& request) {
  return read_routings(options.routing, options.routing_trace, request.policy);
}

Status apply_pdl(const TuneOptions& options, TuneRequest& request) {
  constexpr std::array<std::string_view, 2> words = {"off", "allow"};
  GEMMTUNE_TRY(const auto word, word_of("--pdl", options.pdl, words));
  request.pdl = word == 1;
  if (request.pdl && !options.m_range.empty())
    return Status::invalid("--pdl allow: rows of --m-range have no dependent launches");
  return {};
}

Status apply_invariant(const TuneOptions& options, TuneRequest& request) {
  if (options.invariant.empty()) return {};
  constexpr std::array<std::string_view, 2> words = {"rows", "tp"};
  GEMMTUNE_TRY(const auto word, word_of("--invariant", options.invariant, words));
  request.invariant = true;
  request.tensor_parallel = word == 1;
  return {};
}

Status apply_search(const TuneOptions&, TuneRequest& request) {
  const auto is_asked = [&](const StrategyInfo& strategy) { return strategy.name == request.strategy; };
  if (std::ranges::any_of(all_strategies(), is_asked)) return {};
  return Status::invalid("--search {}: unknown strategy (known: {})", request.strategy,
                         joined(all_strategies(), ", ", &StrategyInfo::name));
}

Status apply_confirmations(const TuneOptions& options, TuneRequest&) {
  if (options.confirmations < 2 || options.m_range.empty()) return {};
  return Status::invalid("--confirmations {}: rows of --m-range have no confirmation pass, expected 1",
                         options.confirmations);
}

Status apply_m_range(const TuneOptions& options, TuneRequest& request) {
  if (options.m_range.empty()) return {};
  GEMMTUNE_TRY(request.m_range, m_range_of(options));
  return {};
}

std::string libtypes_identity(const TuneRequest& request) {
  return fmt::format("libtypes={}", request.libtypes.empty() ? "all" : joined(request.libtypes, ","));
}

/// By what the file chooses, not by its name or layout.
Status check_rules(const TuneOptions& options) {
  const auto rules = parse_rule_set(options.rules);
  if (!rules.ok()) return Status::invalid("--rules {}", rules.message());
  if (*rules == RuleSet::own || options.replay.empty()) return {};
  return Status::invalid("--rules {}: not with --replay, a recording has configs and no rules",
                         options.rules);
}

std::string search_space_identity(const TuneRequest& request) {
  const std::string text = request.search_space.text();
  return text.empty() ? "" : "search_space=" + short_hash(text);
}

std::string m_range_identity(const TuneRequest& request) {
  if (!request.m_range) return {};
  const MRange& range = request.m_range->range;
  return fmt::format("m_range={}:{} m_regret={}", range.first, range.last, request.m_range->regret);
}

const char* search_help() {
  static const std::string help = [] {
    std::string text = "Which candidates are measured:";
    for (const StrategyInfo& strategy : all_strategies())
      text += fmt::format(" {} ({});", strategy.name, strategy.summary);
    text.back() = '.';
    return text;
  }();
  return help.c_str();
}

constexpr OptionBounds not_negative{.min = 0};
constexpr OptionBounds at_least_one{.min = 1};
constexpr OptionBounds share{.min = 0, .max = 1, .expected = "a share from 0 to 1"};
constexpr OptionBounds ratio{
    .min = 0, .max = 1, .expected = "a ratio above 0, up to 1", .excludes_min = true};
constexpr OptionBounds percent{
    .min = 0, .max = 100, .expected = "percent above 0, up to 100", .excludes_min = true};

constexpr const char* aiter_heading = "Options of AITER's tuners that have no other name here";
constexpr const char* tune_gemm_heading =
    "tune_gemm's options (with one of them a single size is fp16 by default)";

using enum OptionSection;
using Effect = OptionEffect;

std::vector<TuneOption> own_rows() {
  return {
      {files,
       "shapes,-i,--input,--untune-file,--input-file,--gemm-size-file",
       &TuneOptions::input,
       "Shapes: CSV, YAML of gemm sizes, - for stdin, a folder of recorded lists (default: GTUNE_INPUT, else "
       "the config folder's bf16_untuned_gemm.csv)",
       {.value_name = "FILE"}},
      {files,
       "--limit",
       &TuneOptions::limit,
       "Only the first N shapes",
       {.value_name = "N", .bounds = at_least_one}},
      {files,
       "--max-dim",
       &TuneOptions::max_dim,
       "Only shapes whose M, N and K are at most N",
       {.value_name = "N", .bounds = at_least_one}},
      {files, "-o,--output,--tune-file,--tuned-file,--tuning-results-file", &TuneOptions::output,
       "The tuned file (tune_gemm's --o too): .yaml and .yml are tune_gemm's results, others AITER's CSV; of "
       "these a colon list: all are read, the first is written. A folder (or NAME/) gets one file an "
       "operation (default: GTUNE_TUNED, else the config folder)"},
      {files, "--profile-file", &TuneOptions::profile,
       "-o2 FILE: append all candidates with time, spread, error, outcome and reason"},
      {files,
       "--csv-schema",
       &TuneOptions::schema,
       "Of a new output: aiter (leading gfx) or seed (without)",
       {.shows_default = true, .apply = apply_schema}},
      {files,
       "--sort",
       &TuneOptions::sort,
       "Sort the output by gfx, cu_num, N, M, K (bare, or True or False)",
       {.apply = apply_sort}},
      {files,
       "--shard",
       &TuneOptions::shard,
       "Only part I of N of the shapes, into an output of its own (tuned.3of16.csv), which `merge "
       "--expect-shards` puts together; auto: as Slurm, mpirun or Kubernetes number their processes, auto/N: "
       "and there must be N",
       {.value_name = "I/N"}},
      {files, "--list", &TuneOptions::list,
       "With --shard (also all/N): print its shapes with their predicted seconds, and end. Needs no device; "
       "predicted for GPUs unless --backend is cpu"},
      {files, "--all", &TuneRequest::all, "Tune again what the output has"},
      {files, "--dry-run", &TuneOptions::dry_run,
       "Print the shapes, how many kernels each has, what is in the output already and about how long it "
       "takes, and end; nothing is measured or written"},
      {files, "--add-device", &TuneOptions::add_device,
       "Add rows of this device to an output whose rows are all of other devices (--backend or --device "
       "allow it too)"},
      {files, "--resume,!--no-resume", &TuneOptions::resume,
       "Go on with an unfinished run of the same request (on; its journal is OUTPUT.journal)"},
      {files,
       "--journal",
       &TuneOptions::journal_folder,
       "Keep the journal in this folder while the run lasts, on a local disk where the output lies on a "
       "shared one, and move it beside the output at the end",
       {.value_name = "FOLDER"}},
      {files, "--retry-failed", &TuneOptions::retry_failed,
       "Try candidates again that failed before; without it only repaired kernels are"},
      {files,
       "--record",
       &TuneOptions::record,
       "Write everything that is measured into a recording",
       {.value_name = "FILE"}},
      {files,
       "--events",
       &TuneOptions::events,
       "Append what happens, as it happens, to a file or pipe: JSON, one object a line",
       {.value_name = "FILE"}},
      {files,
       "--replay",
       &TuneOptions::replay,
       "Answer from a recording instead of a machine",
       {.value_name = "FILE"}},
      {files, "--stale", &TuneRequest::stale,
       "Tune again the rows that were measured in another environment"},
      {files, "--strict", &TuneOptions::strict, "A row that cannot be read is an error"},

      {ranges,
       "--m-range",
       &TuneOptions::m_range,
       "Tune each weight (N, K, types) over M from A to B and store ranges: few rows, each the best kernel "
       "of an interval within --m-regret, verified inside it. With -n -k, -i or --model_dir, whose M then "
       "only weight the calls",
       {.effect = Effect::run, .value_name = "A:B", .apply = apply_m_range, .identity = m_range_identity}},
      {ranges,
       "--m-regret",
       &TuneOptions::m_regret,
       "Percent that a range may be slower than the best kernel at an M (or the noise measured there)",
       {.effect = Effect::run, .shows_default = true, .bounds = percent}},

      {ranges, "--buckets", &TuneOptions::buckets,
       "Also write a Triton config for each (N, K), with one kernel for a bucket of M; -o is a folder "
       "(default: triton in the config folder, where dispatch finds it). Without shapes those of AITER's "
       "block-scale tuner (--op a8w8_blockscale)"},
      {ranges,
       "--bucket-scheme",
       &TuneOptions::bucket_scheme,
       "thirds (small_M up to 256, medium_M up to 2048, large_M) or bounds (M_LEQ_x, any)",
       {.shows_default = true,
        .apply = [](const TuneOptions& tune, TuneRequest&) { return bucket_scheme_of(tune).status(); }}},

      {search,
       "--libtype",
       &TuneOptions::families,
       "Kernel families, comma list; also AITER's words (hipblaslt, triton, ck, asm, torch …)",
       {.effect = Effect::run, .shows_default = true, .identity = libtypes_identity}},
      {search,
       "--search-space",
       &TuneOptions::search_space,
       "Choose values and rules of the families' spaces: YAML, family: {parameters: {key: [values]}, rules: "
       "{name: on|off}, replace: true|false}; `explain --space FAMILY` shows what there is",
       {.effect = Effect::run, .value_name = "FILE", .identity = search_space_identity}},
      {search,
       "--rules",
       &TuneOptions::rules,
       rules_help,
       {.effect = Effect::run,
        .shows_default = true,
        .apply = [](const TuneOptions& tune, TuneRequest&) { return check_rules(tune); }}},
      {search,
       "--splitK,!--no-splitK",
       &TuneRequest::split_k,
       "Kernels that split K (on; a bare -k is this flag)",
       {.effect = Effect::run,
        .identity = [](const TuneRequest& request) { return fmt::format("splitK={:d}", request.split_k); }}},
      {search,
       "--search",
       &TuneRequest::strategy,
       search_help(),
       {.effect = Effect::run,
        .shows_default = true,
        .apply = apply_search,
        .identity = [](const TuneRequest& request) { return "search=" + request.strategy; }}},
      {search,
       "--budget",
       &TuneRequest::budget_seconds,
       "Seconds for the whole run (default: none): a short visit of every shape, then time goes where "
       "calls and expected gain a second are largest, until it is over or nothing is cut",
       {.bounds = not_negative}},
      {search,
       "--errRatio",
       &TuneRequest::max_err_ratio,
       "Share of elements that may be outside tolerance",
       {.effect = Effect::run, .shows_default = true, .bounds = share}},
      {search,
       "--prefer-ratio",
       &Policy::prefer_ratio,
       "Keep the default kernel unless beaten by this ratio",
       {.effect = Effect::run,
        .shows_default = true,
        .bounds = ratio,
        .identity =
            [](const TuneRequest& request) {
              return fmt::format("prefer_ratio={}", request.policy.prefer_ratio);
            }}},

      {search,
       "--accuracy",
       &TuneOptions::accuracy,
       "default: no kernel of a lower accuracy class than the default kernel's; fast: all classes, against "
       "the library's fast accumulation (fp8 on tensor cores that keep fewer bits than float32); fp32: only "
       "kernels of that class (int4 weights that are not rounded)",
       {.effect = Effect::measuring, .shows_default = true, .apply = apply_accuracy}},

      {search,
       "--invariant",
       &TuneOptions::invariant,
       "rows: all M of a weight take kernels of one bit class, so that a row of y has the same bits in every "
       "batch; the rows have it in the column bits, and answer every M. tp: so, and ranks of 1/2, 1/4, … of "
       "N or K give the bits of the whole weight (CPUs)",
       {.effect = Effect::run,
        .value_name = "rows|tp",
        .apply = apply_invariant,
        .identity =
            [](const TuneRequest& request) {
              if (!request.invariant) return std::string();
              return std::string(request.tensor_parallel ? "invariant=tp" : "invariant=rows");
            }}},

      {search,
       "--objective",
       &TuneOptions::objective,
       "Minimize time, energy (joules a call) or edp (joules x time). energy and edp choose among the "
       "finalists up to 1.3 times the fastest one's time, by batches of a second each; speed-ups stay those "
       "of time",
       {.effect = Effect::measuring,
        .shows_default = true,
        .apply = apply_objective,
        .identity =
            [](const TuneRequest& request) {
              const Objective objective = request.policy.objective;
              return objective == Objective::time ? std::string()
                                                  : fmt::format("objective={}", to_string(objective));
            }}},
      {search,
       "--energy",
       &TuneRequest::energy,
       "Measure the joules a call of each shape's best finalists and of its default, where the device counts "
       "them (NVML; a CPU's RAPL), for -o2, --json and FILE.env.json; half a minute a shape",
       {.effect = Effect::run,
        .identity =
            [](const TuneRequest& request) { return std::string(request.energy ? "energy=1" : ""); }}},

      {measuring,
       "--cache",
       &TuneOptions::cache,
       "warm, weights-cold or cold: what lies in the cache when a call begins",
       {.effect = Effect::measuring, .shows_default = true, .apply = apply_cache}},
      {measuring,
       "--launch",
       &TuneOptions::launch,
       "How a GPU's calls are timed: graph, or eager (enqueued one by one, which adds what that costs)",
       {.effect = Effect::measuring, .shows_default = true, .apply = apply_launch}},
      {measuring,
       "--team",
       &TuneOptions::team,
       "Whose threads run a CPU's kernels: openmp, as in programs that use OpenMP (PyTorch), or own, "
       "gemmtune's pool (default: GEMMTUNE_TEAM, else openmp if there is a libgomp)",
       {.effect = Effect::measuring, .apply = apply_team}},
      {measuring,
       "--between",
       &TuneOptions::between,
       "What a CPU's threads do between timed calls: none, or parallel (an elementwise pass over 4 MiB, as "
       "programs have one between their products)",
       {.effect = Effect::measuring, .shows_default = true, .apply = apply_between}},
      {measuring,
       "--clock",
       &TuneOptions::clock,
       "What a CPU's time is: wall, or processor (what the threads computed: for a machine that other "
       "programs keep busy)",
       {.effect = Effect::measuring, .shows_default = true, .apply = apply_clock}},
      {measuring,
       "--routing",
       &TuneOptions::routing,
       routing_help,
       {.effect = Effect::measuring, .shows_default = true, .apply = apply_routings}},
      {measuring,
       "--routing-trace",
       &TuneOptions::routing_trace,
       "Recorded tokens on which a mixture's kernel must hold too, as it must on uniform and zipf: at most 3 "
       "% behind the best finalist there",
       {.effect = Effect::measuring, .value_name = "FILE", .apply = apply_routings}},
      {measuring,
       "--warmup",
       &Policy::warmup,
       "Minimum number of warm-up calls",
       {.effect = Effect::measuring, .shows_default = true, .bounds = not_negative}},
      {measuring,
       "--iters",
       &Policy::iterations,
       "Maximum number of timed calls of a finalist in a round",
       {.effect = Effect::measuring, .shows_default = true, .bounds = at_least_one}},
      {measuring,
       "--seed",
       &TuneOptions::seed,
       "Of the random numbers that operands hold and the search draws",
       {.effect = Effect::run,
        .shows_default = true,
        .value_name = "N",
        .bounds = not_negative,
        .apply =
            [](const TuneOptions& tune, TuneRequest& request) {
              request.policy.seed = static_cast<std::uint64_t>(tune.seed);
              return Status();
            },
        .identity =
            [](const TuneRequest& request) {
              return request.policy.seed == Policy().seed ? std::string()
                                                          : fmt::format("seed={}", request.policy.seed);
            }}},
      {measuring,
       "--confirmations",
       &TuneOptions::confirmations,
       "How often the finalists of each shape are measured, 1 or 2. 2: a confirmation pass follows once all "
       "shapes are settled, because neighbours on a shared machine change which kernel is fastest (default: "
       "2 on a CPU, else 1)",
       {.bounds = {.min = 1, .max = 2}, .apply = apply_confirmations}},
      {measuring,
       "--batch",
       &TuneRequest::shapes_at_once,
       "Most shapes that are with workers at once",
       {.shows_default = true, .bounds = at_least_one}},
      {measuring,
       "--mp",
       &TuneOptions::workers,
       "Worker processes, one a device (default: all devices, or those that --device names)",
       {.bounds = not_negative}},
      {measuring,
       "--timeout",
       &TuneOptions::timeout,
       "Seconds for a step of one candidate before its worker is replaced, or none; in screening the other "
       "candidates' times set a nearer limit",
       {.shows_default = true,
        .apply = [](const TuneOptions& tune, TuneRequest&) { return timeout_of(tune).status(); }}},
      {measuring, "--shape-grouped", &TuneOptions::shape_grouped,
       "Accepted: all candidates of a shape run on one device anyway"},
      {measuring, "--in-process", &TuneOptions::in_process,
       "Measure in this process, for debugging: a kernel that crashes ends the run"},
      {measuring,
       "--pdl",
       &TuneOptions::pdl,
       "allow: also find the best kernel that is launched before the one in front of it has ended "
       "(programmatic dependent launch, NVIDIA), in columns of its own; off: none",
       {.effect = Effect::run,
        .shows_default = true,
        .apply = apply_pdl,
        .identity = [](const TuneRequest& request) { return std::string(request.pdl ? "pdl=allow" : ""); }}},

      {operator_times, "--run-config", &TuneOptions::run_config,
       "Time the production operator on the shapes of a tuned file (or, bare, of the input with defaults), "
       "and end"},
      {operator_times, "--compare", &TuneOptions::compare,
       "Time the operator before and after tuning, and report. With a YAML, or with -m -n -k and one of "
       "tune_gemm's options: tune as ever, then print for each size whether its best kernel is right, with "
       "its error"},
      {operator_times, "--update-improved", &TuneOptions::update_improved,
       "With --compare: write only rows that improved"},
      {operator_times,
       "--min-improvement-pct",
       &TuneOptions::min_improvement,
       "What counts as improved, percent",
       {.shows_default = true, .bounds = not_negative}},

      {output, "-v,--verbose", &TuneOptions::verbose, "Each candidate, and why families refused"},
      {output, "-q,--quiet", &TuneOptions::quiet, "No progress"},
      {output, "--json", &TuneOptions::json, "One JSON document on stdout"},
  };
}

/// In the order of --help, within a section.
const std::vector<TuneOption>& table() {
  static const std::vector<TuneOption> options = [] {
    std::vector<TuneOption> all = own_rows();
    for (const std::vector<TuneOption>& more : {aiter_option_rows(), tune_gemm_option_rows()})
      all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return options;
}

template <typename Value>
Value& value_in(TuneOptions& options, Value TuneOptions::*field) {
  return options.*field;
}
template <typename Value>
Value& value_in(TuneOptions& options, Value TuneRequest::*field) {
  return options.request.*field;
}
template <typename Value>
Value& value_in(TuneOptions& options, Value Policy::*field) {
  return options.request.policy.*field;
}
template <typename Value>
Value& value_in(TuneOptions& options, Value DeviceOptions::*field) {
  return options.device.*field;
}

CommandOption add(CommandOptions& app, const TuneOption& option, bool& value) {
  return app.add_flag(option.names, value, option.help);
}
/// Bare too: the text is then empty.
CommandOption add(CommandOptions& app, const TuneOption& option, std::optional<std::string>& value) {
  return app.add_bare_option(option.names, value, option.help);
}
template <typename Value>
CommandOption add(CommandOptions& app, const TuneOption& option, Value& value) {
  CommandOption added = app.add_option(option.names, value, option.help);
  if (option.details.shows_default) added.capture_default_str();
  if (option.details.value_name != nullptr) added.type_name(option.details.value_name);
  if constexpr (std::is_same_v<Value, int>) {
    // Both ends are known: CLI11 has the words, and names them in --help.
    if (std::isfinite(option.details.bounds.max))
      added.integer_range(static_cast<int>(option.details.bounds.min),
                          static_cast<int>(option.details.bounds.max));
  }
  return added;
}

/// What check_bounds() compares; nothing for other than numbers.
template <typename Value>
std::optional<double> number_of(const Value& value) {
  if constexpr (std::is_arithmetic_v<Value> && !std::is_same_v<Value, bool>) {
    return static_cast<double>(value);
  } else {
    return std::nullopt;
  }
}

Status check_bounds(const TuneOption& option, double value) {
  const OptionBounds& bounds = option.details.bounds;
  const bool is_integer_range = bounds.expected == nullptr && std::isfinite(bounds.max);
  const bool is_above = bounds.excludes_min ? value > bounds.min : value >= bounds.min;
  if (is_integer_range || !std::isfinite(bounds.min) ||
      (std::isfinite(value) && is_above && value <= bounds.max))
    return {};
  const std::string expected =
      bounds.expected != nullptr ? bounds.expected : fmt::format("a number of at least {}", bounds.min);
  return Status::invalid("{} {}: expected {}", long_name(option), value, expected);
}

}  // namespace

std::span<const TuneOption> tune_option_table() { return table(); }

std::string_view long_name(const TuneOption& option) {
  const std::string_view names = option.names;
  const std::size_t begin = names.find("--");
  return names.substr(begin, names.find(',', begin) - begin);
}

void declare_section(CommandOptions& app, OptionSection section, TuneOptions& options) {
  for (const TuneOption& option : table()) {
    if (option.section != section) continue;
    std::visit(
        [&](auto field) {
          CommandOption added = add(app, option, value_in(options, field));
          if (section == OptionSection::tune_gemm) added.group(tune_gemm_heading);
          if (section == OptionSection::aiter) added.group(aiter_heading);
        },
        option.field);
  }
}

bool uses_section(const TuneOptions& options, OptionSection section) {
  TuneOptions given = options;
  TuneOptions defaults;
  return std::ranges::any_of(table(), [&](const TuneOption& option) {
    return option.section == section &&
           std::visit([&](auto field) { return value_in(given, field) != value_in(defaults, field); },
                      option.field);
  });
}

Status check_bounds(const TuneOptions& options) {
  TuneOptions copy = options;
  for (const TuneOption& option : table()) {
    const auto number =
        std::visit([&](auto field) { return number_of(value_in(copy, field)); }, option.field);
    if (number) GEMMTUNE_RETURN_IF_ERROR(check_bounds(option, *number));
  }
  return {};
}

Status apply_options(const TuneOptions& options, TuneRequest& request) {
  for (const TuneOption& option : table()) {
    if (option.details.apply != nullptr) GEMMTUNE_RETURN_IF_ERROR(option.details.apply(options, request));
  }
  return {};
}

void copy_policy_options(const Policy& from, Policy& to) {
  for (const TuneOption& option : table()) {
    if (const auto* whole = std::get_if<int Policy::*>(&option.field)) to.*(*whole) = from.*(*whole);
    if (const auto* real = std::get_if<double Policy::*>(&option.field)) to.*(*real) = from.*(*real);
  }
}

std::string identity_text(const TuneRequest& request) {
  std::string text;
  for (const TuneOption& option : table()) {
    const std::string word =
        option.details.identity != nullptr ? option.details.identity(request) : std::string();
    if (!word.empty()) text += (text.empty() ? "" : " ") + word;
  }
  return text;
}

}  // namespace gemmtune::cli
