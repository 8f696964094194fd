#include "cli/tune/tune_options.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <utility>

#include "backends/traits.h"
#include "base/file.h"
#include "base/text.h"
#include "cli/shared/family_names.h"
#include "cli/shared/output_path.h"
#include "cli/tune/m_range_options.h"
#include "formats/aiter/schema.h"
#include "formats/capture/capture_file.h"
#include "search/strategy.h"

namespace gemmtune::cli {
namespace {

bool is_amd(const DeviceInfo& device) { return device.gfx.rfind("gfx", 0) == 0; }

/// The rows of a tuned file that belong to this device, as shapes: `--all` with the output as input.
Result<ShapeList> own_rows_of(const std::string& path, const DeviceInfo& device, bool strict) {
  auto file = read_tuned_csv(path, {.strict = strict});
  if (!file.ok()) return file.status();
  ShapeList list;
  list.source = path;
  list.diagnostics = file->diagnostics;
  for (const TunedEntry& entry : file->entries) {
    const bool same_gfx = entry.gfx == device.gfx || (entry.gfx.empty() && is_amd(device));
    if (!same_gfx || entry.cu_num != device.cu_num) continue;
    ShapeRow row;
    row.problem = entry.problem;
    row.line = entry.line;
    list.rows.push_back(std::move(row));
  }
  if (list.rows.empty()) {
    return Status::not_found("{}: no row of this device ({}, cu_num {})", path, device.gfx, device.cu_num);
  }
  return list;
}

Result<ShapeList> shapes_of_file(const TuneOptions& options, const Environment& environment,
                                 const DeviceInfo& device) {
  std::string path = options.input;
  if (path.empty()) {
    const auto operation = operation_of(options.size);
    if (!operation.ok()) return operation.status();
    path = environment.config_folder + "/" + untuned_file_name(operation->value_or(Operation::a16w16));
    if (!file_exists(path)) {
      return Status::not_found("no shapes: give -i FILE, --model_dir DIR or -m -n -k ({} does not exist)",
                               path);
    }
  }
  const auto outputs = path_list(options.output);
  if (options.all && !outputs.empty() && outputs.front() == path && file_exists(path)) {
    return own_rows_of(path, device, options.strict);
  }
  ShapeListOptions list;
  const auto operation = operation_of(options.size);
  const auto x_type = x_type_of(options.size);
  const auto y_type = y_type_of(options.size);
  for (const Status& status : {operation.status(), x_type.status(), y_type.status()}) {
    if (!status.ok()) return status;
  }
  list.operation = *operation;
  list.x_type = *x_type;
  list.y_type = *y_type;
  list.strict = options.strict;
  auto shapes = read_shape_list(path, list);
  if (shapes.ok() && options.input.empty()) take_captured_calls(path, *shapes);
  return shapes;
}

Result<ShapeList> all_shapes(const TuneOptions& options, const Environment& environment,
                             const DeviceInfo& device) {
  if (options.size.any()) {
    const auto problem = problem_of(options.size);
    if (!problem.ok()) return problem.status();
    ShapeList list;
    list.source = "-m -n -k";
    list.rows.push_back({*problem, 1, {}, 0});
    return list;
  }
  if (options.input.empty() && !model_folder(options.model, environment).empty()) {
    GEMMTUNE_RETURN_IF_ERROR(operation_of(options.size).status());
    return tunable_shapes_of_model(options.model, options.size, environment);
  }
  return shapes_of_file(options, environment, device);
}

/// A known word or a list of those that are.
Status check_words(const TuneOptions& options) {
  if (options.schema != "aiter" && options.schema != "seed") {
    return Status::invalid("--csv-schema {}: expected aiter or seed", options.schema);
  }
  if (!options.sort.empty() && options.sort != "true" && options.sort != "false") {
    return Status::invalid("--sort {}: expected True or False", options.sort);
  }
  if (!parse_cache_mode(options.cache)) {
    return Status::invalid("--cache {}: expected warm, weights-cold or cold", options.cache);
  }
  if (options.pdl != "off" && options.pdl != "allow") {
    return Status::invalid("--pdl {}: expected off or allow", options.pdl);
  }
  if (options.confirmations > 1 && !options.m_range.empty()) {
    return Status::invalid("--confirmations {}: rows of --m-range have no confirmation pass, expected 1",
                           options.confirmations);
  }
  if (options.pdl == "allow" && !options.m_range.empty()) {
    return Status::invalid("--pdl allow: rows of --m-range have no dependent launches");
  }
  std::string known;
  for (const StrategyInfo& strategy : all_strategies()) {
    if (strategy.name == options.search) return {};
    known += fmt::format("{}{}", known.empty() ? "" : ", ", strategy.name);
  }
  return Status::invalid("--search {}: unknown strategy (known: {})", options.search, known);
}

Status check_numbers(const TuneOptions& options) {
  const auto at_least = [](std::string_view name, double value, double least) {
    return std::isfinite(value) && value >= least
               ? Status()
               : Status::invalid("{} {}: expected a number of at least {}", name, value, least);
  };
  GEMMTUNE_RETURN_IF_ERROR(at_least("--limit", static_cast<double>(options.limit), 0));
  GEMMTUNE_RETURN_IF_ERROR(at_least("--batch", options.batch, 1));
  GEMMTUNE_RETURN_IF_ERROR(at_least("--warmup", options.warmup, 0));
  GEMMTUNE_RETURN_IF_ERROR(at_least("--iters", options.iterations, 1));
  GEMMTUNE_RETURN_IF_ERROR(at_least("--budget", options.budget_seconds, 0));
  GEMMTUNE_RETURN_IF_ERROR(at_least("--mp", options.workers, 0));
  GEMMTUNE_RETURN_IF_ERROR(timeout_of(options).status());
  GEMMTUNE_RETURN_IF_ERROR(at_least("--min_improvement_pct", options.least_improvement, 0));
  if (!(options.max_err_ratio >= 0 && options.max_err_ratio <= 1)) {
    return Status::invalid("--errRatio {}: expected a share from 0 to 1", options.max_err_ratio);
  }
  if (!(options.prefer_ratio > 0 && options.prefer_ratio <= 1)) {
    return Status::invalid("--prefer-ratio {}: expected a ratio above 0, up to 1", options.prefer_ratio);
  }
  return {};
}

/// The journal and recordings are of plain tuning; a replay measures nothing that could be written down.
Status check_journal(const TuneOptions& options) {
  const std::string_view flag = !options.record.empty()   ? "--record"
                                : !options.replay.empty() ? "--replay"
                                : !options.events.empty() ? "--events"
                                : options.retry_failed    ? "--retry-failed"
                                                          : "";
  if (!flag.empty() && (options.compare || options.run_config)) {
    return Status::invalid("{}: not with {}", flag, options.compare ? "--compare" : "--run_config");
  }
  if (options.replay.empty()) return {};
  if (!options.record.empty()) return Status::invalid("--record and --replay: give one of them, not both");
  if (options.device.backend != "auto" || !options.device.device.empty() || options.device.threads != 0) {
    return Status::invalid("--replay: the device is the recording's; drop --backend, --device and --threads");
  }
  return {};
}

/// Rows of a device that is not AMD's never go into a file without gfx: its readers would take them for
/// AMD's.
Status check_schema(const TuneOptions& options, const std::string& path, const DeviceInfo& device) {
  if (is_amd(device)) return {};
  if (file_exists(path)) {
    const auto file = read_tuned_csv(path);
    if (!file.ok()) return Status(file.code(), fmt::format("-o {}", file.message()));
    if (!file->has_gfx && !file->entries.empty()) {
      return Status::invalid("-o {}: has no gfx column, and rows of {} need one; choose another file", path,
                             device.gfx);
    }
    return {};
  }
  if (options.schema == "seed") {
    return Status::invalid("--csv-schema seed has no gfx column, and rows of {} need one; use aiter",
                           device.gfx);
  }
  return {};
}

}  // namespace

Status check_options(const TuneOptions& options) {
  const bool has_model = !options.model.folder.empty();
  if (options.size.any() + !options.input.empty() + has_model > 1) {
    return Status::invalid("-i, -m -n -k and --model_dir: give one of them, not several");
  }
  if (options.size.any()) GEMMTUNE_RETURN_IF_ERROR(problem_of(options.size).status());
  GEMMTUNE_RETURN_IF_ERROR(operation_of(options.size).status());
  if (options.update_improved && !options.compare) {
    return Status::invalid("--update_improved needs --compare");
  }
  if (options.in_process && options.workers > 1) {
    return Status::invalid("--in-process and --mp {}: one process measures on one device", options.workers);
  }
  if (options.run_config && options.compare) {
    return Status::invalid("--run_config and --compare: give one of them, not both");
  }
  GEMMTUNE_RETURN_IF_ERROR(check_journal(options));
  GEMMTUNE_RETURN_IF_ERROR(check_words(options));
  return check_numbers(options);
}

Result<ShapeList> shapes_of(const TuneOptions& options, const Environment& environment,
                            const DeviceInfo& device) {
  auto list = all_shapes(options, environment, device);
  if (!list.ok()) return list;
  if (options.limit > 0 && static_cast<std::size_t>(options.limit) < list->rows.size()) {
    list->rows.resize(static_cast<std::size_t>(options.limit));
  }
  return list;
}

Result<Outputs> outputs_of(const TuneOptions& options, const Environment& environment,
                           const DeviceInfo& device, const ShapeList& shapes) {
  Outputs outputs;
  outputs.also_read = path_list(options.output);
  if (outputs.also_read.empty()) {
    if (!options.output.empty()) return Status::invalid("-o '{}': no file name in it", options.output);
    GEMMTUNE_RETURN_IF_ERROR(make_folders(environment.config_folder));
    const Operation operation =
        shapes.rows.empty() ? shapes.operation : shapes.rows.front().problem.operation;
    outputs.also_read.push_back(environment.config_folder + "/" + tuned_file_name(operation));
    outputs.is_config_file = true;
  }
  outputs.tuned = outputs.also_read.front();
  outputs.also_read.erase(outputs.also_read.begin());
  outputs.profile = options.profile;
  GEMMTUNE_RETURN_IF_ERROR(check_writable("-o", outputs.tuned));
  GEMMTUNE_RETURN_IF_ERROR(check_schema(options, outputs.tuned, device));
  for (const std::string& path : outputs.also_read) {
    if (file_exists(path))
      GEMMTUNE_RETURN_IF_ERROR(read_tuned_csv(path, {.strict = options.strict}).status());
  }
  if (!outputs.profile.empty()) {
    GEMMTUNE_RETURN_IF_ERROR(check_writable("-o2", outputs.profile));
    if (resolve_links(outputs.profile) == resolve_links(outputs.tuned)) {
      return Status::invalid("-o2 {}: is the tuned file", outputs.profile);
    }
  }
  return outputs;
}

Result<double> timeout_of(const TuneOptions& options) {
  if (options.timeout == "none") return std::numeric_limits<double>::infinity();
  const auto seconds = parse_number(options.timeout);
  if (seconds && std::isfinite(*seconds) && *seconds > 0) return *seconds;
  return Status::invalid("--timeout {}: expected seconds above 0, or none", options.timeout);
}

Policy policy_of(const TuneOptions& options, const DeviceInfo& device) {
  Policy policy = default_policy(device);
  policy.cache = parse_cache_mode(options.cache).value_or(CacheMode::weights_cold);
  policy.warmup = options.warmup;
  policy.iterations = options.iterations;
  policy.prefer_ratio = options.prefer_ratio;
  return policy;
}

Result<TuneRequest> request_of(const TuneOptions& options, const ShapeList& shapes, const Outputs& outputs,
                               const Device& device) {
  auto families = resolve_families(options.families, device);
  if (!families.ok()) return families.status();
  TuneRequest request;
  request.shapes = shapes.rows;
  request.output = outputs.tuned;
  request.also_read = outputs.also_read;
  request.publish.schema = options.schema == "seed" ? CsvSchema::seed : CsvSchema::aiter;
  request.publish.sort = options.sort == "true";
  request.libtypes = std::move(families).value();
  request.split_k = options.split_k;
  request.pdl = options.pdl == "allow";
  if (request.pdl && !traits_of(device.info()).dependent_launches)
    return Status::invalid("--pdl allow: {} has no dependent launches; a GPU has", device.info().name);
  request.max_err_ratio = options.max_err_ratio;
  request.policy = policy_of(options, device.info());
  request.strategy = options.search;
  request.budget_seconds = options.budget_seconds;
  request.all = options.all;
  request.stale = options.stale;
  request.confirmations =
      options.confirmations > 0 ? options.confirmations : default_confirmations(device.info());
  request.shapes_at_once = options.batch;
  if (!options.m_range.empty()) {
    auto range = m_range_of(options);
    if (!range.ok()) return range.status();
    request.m_range = std::move(*range);
  }
  return request;
}

}  // namespace gemmtune::cli
