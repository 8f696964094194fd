#include "cli/compat/tune_gemm_mode.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/backend.h"
#include "base/path_list.h"
#include "base/text.h"
#include "cli/tune/option_table.h"
#include "formats/tune_gemm/gemm_result_file.h"

namespace gemmtune::cli {
namespace {

bool names_yaml(const std::string& paths) {
  const auto list = path_list(paths);
  return std::ranges::any_of(list, [](const std::string& path) { return is_yaml_path(path); });
}

bool is_of_zeros(const TuneOptions& options) { return options.init_type == to_string(InitType::zeros); }

bool has_no_type(const SizeOptions& size) {
  return size.x_type.empty() && size.type_a.empty() && size.type_b.empty() && size.w_type.empty() &&
         !size.scale_ab;
}

Result<bool> is_dense(const SizeOptions& size) {
  GEMMTUNE_TRY(const auto operation, operation_of(size));
  return operation.value_or(OperationForm()) == Operation::a16w16;
}

/// The backend of --backend; with auto the first one of GPUs that is available.
Result<std::string> gpu_backend(const TuneOptions& options, const std::string& flag) {
  std::string why;
  for (const Backend* backend : all_backends()) {
    const bool is_named = options.device.backend == backend->name();
    if (is_named && backend->traits().runs_on_host) break;
    if (is_named) return std::string(backend->name());
    if (options.device.backend != "auto" || backend->traits().runs_on_host) continue;
    const Status available = backend->available();
    if (available.ok()) return std::string(backend->name());
    why += fmt::format("{}{}", why.empty() ? "" : "; ", available.message());
  }
  if (options.device.backend != "auto")
    return Status::invalid("{}: --backend {} has no GPUs", flag, options.device.backend);
  return Status::unsupported("{}: there is no GPU here{}{}", flag, why.empty() ? "" : ": ", why);
}

Result<std::vector<std::string>> gpu_numbers(const TuneOptions& options) {
  std::vector<std::string> numbers;
  for (int gpu = 0; gpu < options.gpus; ++gpu) numbers.push_back(std::to_string(gpu));
  if (options.gpu_ids.empty()) return numbers;
  for (const std::string_view word : split(options.gpu_ids, ',')) {
    const auto number = parse_integer(trim(word));
    if (!number || *number < 0)
      return Status::invalid("--gpu_ids {}: expected numbers of GPUs such as 0,1", options.gpu_ids);
    numbers.push_back(std::to_string(*number));
  }
  return numbers;
}

/// --ngpus and --gpu_ids as --device.
Status apply_gpus(TuneOptions& options) {
  if (options.gpus == 0 && options.gpu_ids.empty()) return {};
  if (options.gpus > 0 && !options.gpu_ids.empty()) {
    return Status::invalid("--ngpus {} and --gpu_ids {}: give one of them, not both", options.gpus,
                           options.gpu_ids);
  }
  const std::string flag = options.gpus > 0 ? fmt::format("--ngpus {}", options.gpus)
                                            : fmt::format("--gpu_ids {}", options.gpu_ids);
  if (!options.device.device.empty())
    return Status::invalid("{} and --device {}: give one of them, not both", flag, options.device.device);
  GEMMTUNE_TRY(const auto numbers, gpu_numbers(options));
  GEMMTUNE_TRY(const auto backend, gpu_backend(options, flag));
  for (const std::string& number : numbers)
    options.device.device +=
        fmt::format("{}{}:{}", options.device.device.empty() ? "" : ",", backend, number);
  return {};
}

/// --compare_wo_tuning and --benchmark read results.
Status check_results_mode(const TuneOptions& options) {
  const std::string_view mode = options.compare_wo_tuning ? "--compare_wo_tuning" : "--benchmark";
  if (options.input.empty())
    return Status::invalid("{} needs --gemm_size_file FILE: the results of an earlier run", mode);
  if (options.benchmark && is_yaml_path(options.output)) {
    return Status::invalid("--benchmark -o {}: the table is a CSV; expected another ending than a YAML's",
                           options.output);
  }
  return {};
}

/// The option whose results a YAML has no place for; empty for none.
std::string_view needs_a_csv(const TuneOptions& options) {
  return !options.m_range.empty()  ? "--m-range"
         : options.buckets         ? "--buckets"
         : options.pdl != "off"    ? "--pdl"
         : options.update_improved ? "--update_improved"
                                   : "";
}

Status check_yaml_options(const TuneOptions& options) {
  if (!names_yaml(options.output)) return {};
  const std::string_view other = needs_a_csv(options);
  if (!other.empty())
    return Status::invalid("-o {}: tune_gemm's results have no place for {}; expected a .csv", options.output,
                           other);
  if (path_list(options.output).size() > 1)
    return Status::invalid("-o {}: expected one YAML of results, or a list of CSVs", options.output);
  return {};
}

/// One of tune_gemm's options was given, or a YAML of sizes or of results is named.
bool is_tune_gemm(const TuneOptions& options) {
  const SizeOptions& size = options.size;
  const bool has_words =
      !size.type_a.empty() || !size.type_b.empty() || !size.type_c.empty() || size.column_a || size.column_b;
  return has_words || names_yaml(options.input) || names_yaml(options.output) ||
         uses_section(options, OptionSection::tune_gemm);
}

}  // namespace

bool has_yaml_default(const TuneOptions& options) {
  const auto dense = is_dense(options.size);
  if (!dense.ok() || !*dense || options.size.scale_ab || !needs_a_csv(options).empty()) return false;
  return names_yaml(options.input) || (options.size.any() && is_tune_gemm(options));
}

Status apply_tune_gemm(TuneOptions& options) {
  if (!is_tune_gemm(options)) return {};
  GEMMTUNE_RETURN_IF_ERROR(apply_gpus(options));
  if (options.compare_wo_tuning || options.benchmark) GEMMTUNE_RETURN_IF_ERROR(check_results_mode(options));
  GEMMTUNE_RETURN_IF_ERROR(check_yaml_options(options));
  if (has_yaml_default(options)) options.default_output = "tuning_results.yaml";
  GEMMTUNE_TRY(const auto dense, is_dense(options.size));
  if (!dense && (options.init_type != TuneOptions().init_type || options.bias_vector)) {
    return Status::invalid("{}: only of a16w16, not of --op {}",
                           options.bias_vector ? "--bias_vector" : "--init_type", options.size.operation);
  }
  if (is_of_zeros(options) && (options.update_improved || options.buckets)) {
    return Status::invalid("--init_type zeros: not with {}, which writes what was found",
                           options.buckets ? "--buckets" : "--update_improved");
  }
  if (options.size.scale_ab && options.init_type != TuneOptions().init_type)
    return Status::invalid("--init_type {}: not with --scaleAB, whose operands have scales",
                           options.init_type);
  if (options.size.any() && dense && has_no_type(options.size))
    options.size.x_type = to_string(DataType::f16);
  if (options.bias_vector && options.size.any()) options.size.bias = true;
  // A CSV of shapes into a CSV is AITER's: its report of times before and after stays.
  const bool is_own = options.size.any() || names_yaml(options.input) || names_yaml(options.output);
  if (options.compare && is_own && !options.update_improved && !options.run_config) {
    if (!options.replay.empty()) return Status::invalid("--compare: not with --replay, which runs no kernel");
    options.compare = false;
    options.checks_winners = true;
  }
  return {};
}

std::vector<std::string> tune_gemm_notes(const TuneOptions& options) {
  std::vector<std::string> notes;
  if (options.jobs != TuneOptions().jobs)
    notes.push_back(
        fmt::format("--jobs {}: one worker a device measures; --ngpus says how many devices", options.jobs));
  if (options.icache_flush)
    notes.emplace_back("--icache_flush: no device here has a way to empty its instruction cache; ignored");
  if (options.hack_triton_compiler)
    notes.emplace_back("--hack_triton_compiler: no Triton compiler is involved; ignored");
  if (is_of_zeros(options))
    notes.emplace_back(
        "--init_type zeros: devices multiply zeros faster than other numbers; these times are not written");
  return notes;
}

}  // namespace gemmtune::cli
