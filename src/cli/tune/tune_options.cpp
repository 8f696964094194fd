#include "cli/tune/tune_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "backends/traits.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/interrupt.h"
#include "base/path_list.h"
#include "base/text.h"
#include "cli/shared/console.h"
#include "cli/shared/family_names.h"
#include "cli/shared/output_path.h"
#include "cli/shared/routing_options.h"
#include "cli/tune/keep_log.h"
#include "cli/tune/option_exclusions.h"
#include "cli/tune/option_table.h"
#include "cli/tune/shape_choice.h"
#include "cli/tune/tune_buckets.h"
#include "evaluate/journal/journal.h"
#include "evaluate/journal/journal_schema.h"
#include "formats/aiter/environment_json.h"
#include "formats/aiter/schema.h"
#include "formats/capture/capture_file.h"
#include "formats/search_space/search_space_yaml.h"
#include "formats/triton/triton_families.h"
#include "formats/tune_gemm/gemm_result_file.h"
#include "resolve/bind.h"
#include "resolve/candidate_list.h"
#include "resolve/source_use.h"
#include "tuning/problem_tuner.h"

namespace gemmtune::cli {
namespace {

constexpr const char* no_config_folder =
    "there is no config folder: HOME, XDG_CONFIG_HOME and GEMMTUNE_CONFIG_DIR are not set";

constexpr double min_energy_timeout = 5;

bool is_amd(const DeviceInfo& device) { return device.gfx.rfind("gfx", 0) == 0; }

/// The rows of a tuned file that belong to this device, as shapes: `--all` with the output as input.
Result<ShapeList> own_rows_of(const std::string& path, std::optional<OperationForm> operation,
                              const DeviceInfo& device, bool strict) {
  GEMMTUNE_TRY(auto file, read_tuned_csv(path, {.operation = operation, .strict = strict}));
  ShapeList list;
  list.source = path;
  list.diagnostics = file.diagnostics;
  for (const TunedEntry& entry : file.entries) {
    const bool same_gfx = entry.gfx == device.gfx || (entry.gfx.empty() && is_amd(device));
    if (!same_gfx || entry.cu_num != device.cu_num) continue;
    list.rows.push_back({entry.problem, 1, {}, entry.line});
  }
  if (list.rows.empty()) {
    return Status::not_found("{}: no row of this device ({}, cu_num {})", path, device.gfx, device.cu_num);
  }
  return list;
}

Result<ShapeList> shapes_of_file(const TuneOptions& options, const Environment& environment,
                                 const DeviceInfo& device) {
  GEMMTUNE_TRY(const auto operation, operation_of(options.size));
  std::string path = options.input;
  if (path.empty()) {
    const std::string folder = environment.config_folder;
    path = folder + "/" + untuned_file_name(operation.value_or(OperationForm()));
    if (folder.empty() || !file_exists(path)) {
      return Status::not_found("no shapes: give -i FILE, --model_dir DIR or -m -n -k ({})",
                               folder.empty() ? no_config_folder : path + " does not exist");
    }
  }
  const auto outputs = path_list(options.output);
  if (options.request.all && !outputs.empty() && outputs.front() == path && file_exists(path) &&
      !is_yaml_path(path)) {
    return own_rows_of(path, operation, device, options.strict);
  }
  ShapeListOptions list;
  GEMMTUNE_TRY(list.x_type, x_type_of(options.size, device.gfx));
  GEMMTUNE_TRY(list.y_type, y_type_of(options.size, device.gfx));
  list.operation = operation;
  list.strict = options.strict;
  list.architecture = device.gfx;
  list.output = outputs.empty() ? std::string() : outputs.front();
  auto shapes = read_shape_list(path, list);
  if (shapes.ok() && options.input.empty()) take_captured_calls(path, *shapes);
  return shapes;
}

Result<ShapeList> given_shapes(const TuneOptions& options, const Environment& environment,
                               const DeviceInfo& device) {
  if (options.size.any()) {
    GEMMTUNE_TRY(auto problems, problems_of(options.size, device.gfx));
    ShapeList list;
    list.source = "-m -n -k";
    for (const Problem& problem : problems) list.rows.push_back({problem, 1, {}, 0});
    return list;
  }
  const bool of_model = options.input.empty() && !model_folder(options.model, environment).empty();
  GEMMTUNE_RETURN_IF_ERROR(refuse_single_size_options(options.size, of_model));
  if (of_model) {
    GEMMTUNE_RETURN_IF_ERROR(operation_of(options.size).status());
    return tunable_shapes_of_model(options.model, options.size, environment, device.gfx);
  }
  if (options.buckets && options.input.empty()) {
    GEMMTUNE_TRY(const auto operation, operation_of(options.size));
    if (operation == OperationForm(Operation::a8w8_blockscale)) return block_scale_seed_shapes(device.gfx);
    return Status::invalid(
        "--buckets: give shapes (-i FILE); only --op a8w8_blockscale has a list of its own");
  }
  return shapes_of_file(options, environment, device);
}

Result<ShapeList> all_shapes(const TuneOptions& options, const Environment& environment,
                             const DeviceInfo& device) {
  GEMMTUNE_TRY(auto shapes, given_shapes(options, environment, device));
  for (ShapeRow& row : shapes.rows) GEMMTUNE_RETURN_IF_ERROR(apply_scale_format(options.size, row.problem));
  return shapes;
}

/// A replay measures nothing on a device.
Status check_replay(const TuneOptions& options) {
  if (options.replay.empty()) return {};
  if (options.device.backend != "auto" || !options.device.device.empty() || options.device.threads != 0)
    return Status::invalid("--replay: the device is the recording's; drop --backend, --device and --threads");
  return {};
}

/// --m-range.
Status check_m_range(TuneOptions& options) {
  if (options.m_range.empty()) {
    return options.m_regret == TuneOptions().m_regret ? Status()
                                                      : Status::invalid("--m-regret needs --m-range");
  }
  GEMMTUNE_TRY(const auto asked, m_range_of(options));
  if (!options.size.any()) return {};
  if (!options.size.m.empty()) {
    return Status::invalid("-m {} and --m-range {}: give one of them; a range needs -n and -k",
                           options.size.m, options.m_range);
  }
  options.size.m = std::to_string(asked.range.last);
  return {};
}

Status check_buckets(const TuneOptions& options) {
  if (!options.buckets || !options.output.empty()) return {};
  return Status::invalid("--buckets: give -o FOLDER ({})", no_config_folder);
}

/// Joules are counted over seconds.
Status check_energy_options(const TuneOptions& options) {
  const bool chooses = options.objective != to_string(Objective::time);
  if (!chooses && !options.request.energy) return {};
  const auto timeout = timeout_of(options);
  if (timeout.ok() && *timeout < min_energy_timeout)
    return Status::invalid("--timeout {}: {} takes steps of some seconds, expected at least {} or none",
                           options.timeout, chooses ? "--objective " + options.objective : "--energy",
                           min_energy_timeout);
  return {};
}

Status check_shard(const TuneOptions& options) {
  if (options.shard.empty() && options.list)
    return Status::invalid("--list needs --shard; `gemmtune shapes` lists shapes");
  return {};
}

/// Rows of a device that is not AMD's never go into a file without gfx: its readers would take them for
/// AMD's.
Status check_schema(const TuneOptions& options, const std::string& path, OperationForm operation,
                    const DeviceInfo& device) {
  if (is_amd(device) || is_yaml_path(path)) return {};
  if (file_exists(path)) {
    const auto file = read_tuned_csv(path, {.operation = operation});
    if (!file.ok()) return Status(file.code(), fmt::format("-o {}", file.message()));
    const bool has_header = file->header < file->document.lines.size();
    if (file->has_gfx || !has_header) return {};
    const Status refusal = no_gfx_column(path, device.gfx);
    return Status(refusal.code(), fmt::format("-o {}", refusal.message()));
  }
  if (options.schema == "seed") {
    return Status::invalid("--csv-schema seed has no gfx column, and rows of {} need one; use aiter",
                           device.gfx);
  }
  return {};
}

/// A table of other devices is hardly meant for what happens to be the default device here.
Status check_devices_of_rows(const TuneOptions& options, const std::string& path, OperationForm operation,
                             const DeviceInfo& device) {
  const bool asks = options.add_device || options.device.names_device() || !options.replay.empty();
  if (asks || is_yaml_path(path) || !file_exists(path)) return {};
  const auto file = read_tuned_csv(path, {.operation = operation});
  if (!file.ok() || file->entries.empty()) return {};  // who reads it says why
  std::map<std::string, std::size_t> devices;
  for (const TunedEntry& row : file->entries) {
    if (row_is_of(row, device)) return {};
    ++devices[device_of_row(row)];
  }
  return Status::invalid(
      "-o {}: {}, none of this device, {} ({}): give --add-device to add rows of it, --backend or --device "
      "for another one, or another output",
      path, rows_of_devices(devices), device_of_rows(device), device.name);
}

/// --search-space, checked against the shapes of the request (of ranges: with their largest M).
Status take_search_space(const TuneOptions& options, const Device& device, TuneRequest& request) {
  const auto rules = parse_rule_set(options.rules);
  if (!rules.ok()) return Status(rules.code(), fmt::format("--rules {}", rules.message()));
  request.search_space.rules = *rules;
  if (options.search_space.empty()) return {};
  auto space = read_search_space(options.search_space);
  if (!space.ok()) return Status(space.code(), fmt::format("--search-space {}", space.message()));
  for (FamilySpace& family : space->families) {
    if (options.replay.empty()) break;
    // A recording has configs, no rules: what the file adds to the families' spaces was recorded with them.
    family.rules.clear();
    family.replace = false;
  }
  space->rules = *rules;
  std::vector<Problem> problems;
  for (const ShapeRow& shape : request.shapes) {
    problems.push_back(shape.problem);
    if (request.m_range) problems.back().m = request.m_range->range.last;
  }
  const Status status = check_search_space(device, *space, problems, candidate_filter(request).exhaustive);
  if (!status.ok()) return Status(status.code(), fmt::format("--search-space {}", status.message()));
  request.search_space = std::move(*space);
  return {};
}

/// What is written beside the tuned file is none of the files that the run reads or writes anyway.
Status check_side_files(const TuneOptions& options, const Outputs& outputs) {
  const std::string& tuned = outputs.tuned;
  std::vector<NamedFile> others = {{"-o", tuned},
                                   {"the journal of -o", outputs.journal},
                                   {"the journal of --journal", outputs.working_journal},
                                   {"the environments of -o", environment_path(tuned)},
                                   {"the lock of -o", resolve_links(tuned) + ".lock"},
                                   {"the locks of the journal of -o", run_lock_path(outputs.journal)},
                                   {"-i", options.input},
                                   {"--search-space", options.search_space},
                                   {"--replay", options.replay}};
  for (const std::string& path : outputs.also_read) others.push_back({"of the files of -o", path});
  return check_apart({{"-o2", outputs.profile}, {"--record", options.record}, {"--events", options.events}},
                     others);
}

/// What a YAML as the output asks for: one file of tune_gemm's form, of GEMMs that it can hold. Ok for others.
Status check_yaml_output(const TuneOptions& options, const Outputs& outputs, const ShapeList& shapes) {
  if (!is_yaml_path(outputs.tuned)) return {};
  for (const ShapeRow& row : shapes.rows) {
    if (is_tune_gemm_problem(row.problem)) continue;
    return Status::unsupported("-o {}: tune_gemm's results hold plain GEMMs, not {}; expected a .csv",
                               options.output, print(row.problem));
  }
  const Status status = check_gemm_result_file(outputs.tuned);
  return status.ok() ? status : Status(status.code(), fmt::format("-o {}", status.message()));
}

}  // namespace

Status check_options(TuneOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_exclusions(options));
  GEMMTUNE_RETURN_IF_ERROR(check_m_range(options));
  GEMMTUNE_RETURN_IF_ERROR(check_buckets(options));
  GEMMTUNE_RETURN_IF_ERROR(check_energy_options(options));
  GEMMTUNE_RETURN_IF_ERROR(check_shard(options));
  const bool has_model = !options.model.folder.empty();
  if (options.size.any() + !options.input.empty() + has_model > 1) {
    return Status::invalid("-i, -m -n -k and --model_dir: give one of them, not several");
  }
  if (options.size.any()) GEMMTUNE_RETURN_IF_ERROR(problems_of(options.size, {}).status());
  GEMMTUNE_RETURN_IF_ERROR(check_words(options.size));
  GEMMTUNE_RETURN_IF_ERROR(check_words(options.model));
  if (options.update_improved && !options.compare) {
    return Status::invalid("--update_improved needs --compare");
  }
  if (options.in_process && options.workers > 1) {
    return Status::invalid("--in-process and --mp {}: one process measures on one device", options.workers);
  }
  GEMMTUNE_RETURN_IF_ERROR(check_replay(options));
  TuneRequest request = options.request;
  GEMMTUNE_RETURN_IF_ERROR(apply_options(options, request));
  if (request.policy.processor_time && options.in_process)
    return Status::invalid(
        "--clock processor and --in-process: only a worker's threads sleep while they wait");
  options.device.team = parse_team(options.team).value_or(Team::automatic);
  return check_bounds(options);
}

bool is_within(const TuneOptions& options, const Problem& problem) {
  return std::max({problem.m, problem.n, problem.k}) <= options.max_dim;
}

bool names_shapes(const TuneOptions& options) {
  return !options.input.empty() || options.size.any() || !options.model.folder.empty();
}

Result<ShapeList> shapes_of(const TuneOptions& options, const Environment& environment,
                            const DeviceInfo& device) {
  GEMMTUNE_TRY(auto list, all_shapes(options, environment, device));
  const std::size_t left_out =
      std::erase_if(list.rows, [&](const ShapeRow& row) { return !is_within(options, row.problem); });
  if (left_out > 0)
    print_note(fmt::format("--max-dim {}: {} left out", options.max_dim, counted(left_out, "larger shape")));
  if (left_out > 0 && list.rows.empty())
    return Status::invalid("--max-dim {}: no shape is left", options.max_dim);
  GEMMTUNE_RETURN_IF_ERROR(choose_shapes(options, list));
  if (static_cast<std::size_t>(options.limit) < list.rows.size()) {
    list.rows.resize(static_cast<std::size_t>(options.limit));
  }
  return list;
}

Result<Outputs> outputs_of(const TuneOptions& options, const Environment& environment,
                           const DeviceInfo& device, const ShapeList& shapes,
                           const std::optional<Shard>& shard) {
  Outputs outputs;
  const OperationForm operation =
      shapes.rows.empty() ? shapes.operation : form_of(shapes.rows.front().problem);
  std::string tables_folder;  // where the file has its operation's name
  if (options.buckets) {
    if (!has_triton_family(operation))
      return Status::unsupported("--buckets: there are no Triton configs of {}", to_string(operation));
    GEMMTUNE_RETURN_IF_ERROR(make_folders(options.output));
    outputs.also_read = {join_path(options.output, tuned_file_name(operation))};
  } else if (names_folder(options.output)) {
    tables_folder = options.output;
    if (!shard) outputs.folder = tables_folder;
  } else {
    outputs.also_read = path_list(options.output);
  }
  if (options.output.empty() && !shard && !options.default_output.empty())
    outputs.also_read = {options.default_output};
  if (outputs.also_read.empty()) {
    if (tables_folder.empty()) {
      if (!options.output.empty()) return Status::invalid("-o '{}': no file name in it", options.output);
      if (environment.config_folder.empty()) return Status::invalid("give -o FILE ({})", no_config_folder);
      tables_folder = environment.config_folder;
      // Programs read it under the whole name only.
      outputs.is_config_file = !shard;
    }
    if (!options.dry_run) GEMMTUNE_RETURN_IF_ERROR(make_folders(tables_folder));
    outputs.also_read.push_back(join_path(tables_folder, tuned_file_name(operation)));
    if (shard) outputs.also_read.front() = shard_path(outputs.also_read.front(), *shard);
  }
  outputs.tuned = outputs.also_read.front();
  outputs.journal = outputs.working_journal = journal_path(outputs.tuned);
  if (!options.journal_folder.empty()) {
    if (!file_exists(options.journal_folder)) outputs.made_journal_folder = options.journal_folder;
    GEMMTUNE_RETURN_IF_ERROR(make_folders(options.journal_folder));
    // Tables of one name in several folders have journals of their own here.
    const std::string folder = short_hash(parent_folder(absolute_path(outputs.tuned)), 8);
    const std::string name = outputs.tuned.substr(outputs.tuned.find_last_of('/') + 1);
    outputs.working_journal = join_path(options.journal_folder, journal_path(name + "." + folder));
    GEMMTUNE_RETURN_IF_ERROR(check_side_file_writable("--journal", outputs.working_journal));
  }
  outputs.also_read.erase(outputs.also_read.begin());
  outputs.profile = options.profile;
  // The config folder may not be there yet, and a dry run makes nothing.
  const bool may_be_written = !options.dry_run || file_exists(parent_folder(absolute_path(outputs.tuned)));
  if (may_be_written) GEMMTUNE_RETURN_IF_ERROR(check_writable("-o", outputs.tuned));
  GEMMTUNE_RETURN_IF_ERROR(check_schema(options, outputs.tuned, operation, device));
  GEMMTUNE_RETURN_IF_ERROR(check_devices_of_rows(options, outputs.tuned, operation, device));
  GEMMTUNE_RETURN_IF_ERROR(check_yaml_output(options, outputs, shapes));
  outputs.is_written = options.init_type != to_string(InitType::zeros);
  GEMMTUNE_RETURN_IF_ERROR(make_keep_folder(options, outputs));
  for (const std::string& path : outputs.also_read) {
    if (file_exists(path)) {
      GEMMTUNE_RETURN_IF_ERROR(
          read_tuned_csv(path, {.operation = operation, .strict = options.strict}).status());
    }
  }
  if (!outputs.profile.empty()) {
    GEMMTUNE_RETURN_IF_ERROR(check_writable("-o2", outputs.profile));
  }
  if (!options.record.empty()) GEMMTUNE_RETURN_IF_ERROR(check_writable("--record", options.record));
  if (options.events == "-")
    return Status::invalid("--events -: expected a file or pipe (/dev/stdout is one)");
  GEMMTUNE_RETURN_IF_ERROR(check_no_side_file("--events", options.events));
  GEMMTUNE_RETURN_IF_ERROR(check_side_files(options, outputs));
  return outputs;
}

Result<double> timeout_of(const TuneOptions& options) {
  if (to_lower(options.timeout) == "none") return std::numeric_limits<double>::infinity();
  const auto seconds = parse_number(options.timeout);
  if (seconds && std::isfinite(*seconds) && *seconds > 0) return *seconds;
  return Status::invalid("--timeout {}: expected seconds above 0, or none", options.timeout);
}

Policy policy_of(const TuneOptions& options, const DeviceInfo& device) {
  TuneRequest request;
  request.policy = default_policy(device);
  copy_policy_options(options.request.policy, request.policy);
  (void)apply_options(options, request);
  return request.policy;
}

Result<MRangeRequest> m_range_of(const TuneOptions& options) {
  const std::string& text = options.m_range;
  const auto colon = text.find(':');
  const auto bound = [&](std::string_view part) {
    const auto value =
        part.empty() || part.find('.') != std::string_view::npos ? std::nullopt : parse_integer(part);
    return value && *value >= 1 && *value <= max_dimension ? value : std::nullopt;
  };
  const auto first =
      colon == std::string::npos ? std::nullopt : bound(std::string_view(text).substr(0, colon));
  const auto last =
      colon == std::string::npos ? std::nullopt : bound(std::string_view(text).substr(colon + 1));
  if (!first || !last) {
    return Status::invalid("--m-range {}: expected A:B, two whole numbers from 1 to {}", text, max_dimension);
  }
  if (*first > *last) {
    return Status::invalid("--m-range {}: begins above its end; expected {}:{}", text, *last, *first);
  }
  return MRangeRequest{{*first, *last}, options.m_regret / 100};
}

Result<TuneRequest> request_of(const TuneOptions& options, const ShapeList& shapes, const Outputs& outputs,
                               const Device& device) {
  GEMMTUNE_TRY(auto families, resolve_families(options.families, device));
  TuneRequest request = options.request;
  request.policy = policy_of(options, device.info());
  GEMMTUNE_RETURN_IF_ERROR(check_routings(request.policy, shapes.rows));
  GEMMTUNE_RETURN_IF_ERROR(apply_options(options, request));
  request.shapes = shapes.rows;
  request.output = outputs.tuned;
  request.also_read = outputs.also_read;
  request.libtypes = std::move(families);
  GEMMTUNE_RETURN_IF_ERROR(take_search_space(options, device, request));
  if (request.pdl && !traits_of(device.info()).dependent_launches)
    return Status::invalid("--pdl allow: {} has no dependent launches; a GPU has", device.info().name);
  if (!options.team.empty() && device.info().team.empty())
    return Status::invalid("--team {}: {} is no CPU", options.team, device.info().name);
  if (request.policy.parallel_pass && device.info().team.empty())
    return Status::invalid("--between parallel: {} is no CPU", device.info().name);
  if (request.policy.processor_time && device.info().team.empty())
    return Status::invalid("--clock processor: {} is no CPU", device.info().name);
  if (request.policy.launch == LaunchMode::eager && traits_of(device.info()).runs_on_host)
    return Status::invalid("--launch eager: {} has no launches; a GPU has", device.info().name);
  choose_confirmations(request, device.info(), options.confirmations);
  request.stop = interrupted;
  // A recording holds the shapes of the list alone, and an evaluator's kernels say nothing of this machine.
  request.measures_compute_roof =
      options.record.empty() && options.replay.empty() && options.device.evaluators.empty();
  return request;
}

}  // namespace gemmtune::cli
