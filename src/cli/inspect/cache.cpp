// gemmtune cache: the kernels that were compiled at run time and kept on disk.
#include <fmt/format.h>

#include <atomic>
#include <cstdio>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "backends/compiled_kernels.h"
#include "base/environment.h"
#include "base/file.h"
#include "base/path_list.h"
#include "base/threads.h"
#include "cli/command.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "cli/shared/device_options.h"
#include "cli/shared/size_options.h"
#include "cli/tables/table_files.h"
#include "formats/aiter/tuned_csv.h"
#include "formats/json.h"
#include "formats/triton/bucket_rows.h"
#include "resolve/bind.h"
#include "resolve/table_set.h"

namespace gemmtune::cli {
namespace {

using Json = OrderedJson;

constexpr const char* cache_footer = R"(
GPU kernels are compiled for the device at hand the first time they are needed and kept in a folder
(GEMMTUNE_CACHE_DIR, else ~/.cache/gemmtune/kernels) that processes share. `warm` compiles those that the rows of a tuned
file name, on all cores, so that a program that uses the file compiles nothing; without a file, those of all files
that programs use here (GEMMTUNE_CONFIG_…, else the config folder). GEMMTUNE_REBUILD=1 compiles again what is there.

Exit codes: 0 done, 1 a row's kernel cannot be built here, 2 usage or input.

Examples:
  gemmtune cache list
  gemmtune cache warm tuned.csv --backend cuda
  gemmtune cache warm
  gemmtune cache clear)";

struct CacheOptions {
  std::string action;
  std::string table;
  std::string operation;
  DeviceOptions device;
  bool json = false;
};

Result<int> list_kernels(const std::string& folder, bool as_json) {
  const auto kernels = list_compiled_kernels(folder);
  Json json = {{"command", "cache"}, {"action", "list"}, {"folder", folder}, {"kernels", Json::array()}};
  std::uint64_t bytes = 0;
  std::string text;
  for (const CompiledKernel& kernel : kernels) {
    bytes += kernel.bytes;
    json["kernels"].push_back({{"file", kernel.file}, {"title", kernel.title}, {"bytes", kernel.bytes}});
    text += fmt::format("{:>9}  {}\n", kernel.bytes, kernel.title);
  }
  print_answer(as_json,
               as_json ? json_document(json)
                       : fmt::format("{}{} kernels, {} bytes in {}\n", text, kernels.size(), bytes, folder));
  return exit_done;
}

Result<int> clear(const std::string& folder, bool as_json) {
  GEMMTUNE_TRY(const auto removed, clear_compiled_kernels(folder));
  const Json json = {{"command", "cache"}, {"action", "clear"}, {"folder", folder}, {"removed", removed}};
  print_answer(as_json,
               as_json ? json_document(json) : fmt::format("{} kernels removed from {}\n", removed, folder));
  return exit_done;
}

struct Row {
  std::string path;
  TunedEntry entry;
};

/// Builds the kernels of every row, on all cores; what could not be built, a line each.
std::vector<std::string> build_all(const Device& device, const std::vector<Row>& rows) {
  std::atomic<std::size_t> next{0};
  std::mutex lock;
  std::vector<std::string> failures;
  const auto build = [&](const Row& row, const std::string& name, bool dependent) {
    const Problem& problem = row.entry.problem;
    const Status status = bind_name(device, name, problem, dependent).status;
    if (status.ok()) return true;
    const std::lock_guard held(lock);
    failures.push_back(
        fmt::format("{}: line {}: {}: {}", row.path, row.entry.line, short_name(problem), status.message()));
    return false;
  };
  const auto work = [&] {
    for (std::size_t i = next++; i < rows.size(); i = next++) {
      const TunedEntry& entry = rows[i].entry;
      if (build(rows[i], entry.kernel_name, false) && !entry.pdl_kernel_name.empty())
        build(rows[i], entry.pdl_kernel_name, true);
    }
  };
  run_on_threads(std::max(1, static_cast<int>(std::thread::hardware_concurrency())), [&](int) { work(); });
  return failures;
}

/// Of this device: the rows of the file that was named, else those of every file that dispatch would read.
Result<std::vector<Row>> rows_for(const CacheOptions& options, const Environment& environment,
                                  const DeviceInfo& device) {
  std::vector<Row> rows;
  const auto add_config = [&](const std::string& path, std::optional<OperationForm> operation) -> Status {
    GEMMTUNE_TRY(const auto configs, read_triton_files({path}));
    for (const TritonFile& config : configs) {
      if (!config.name.arch.empty() && config.name.arch != device.gfx) continue;
      const auto buckets = rows_to_run(config, operation);
      if (!buckets.ok()) {  // of all sizes: what to compile is not known
        print_note(buckets.message());
        continue;
      }
      for (const TunedEntry& entry : *buckets)
        if (check_has_kernel(entry).ok()) rows.push_back({config.path, entry});
    }
    return {};
  };
  const auto add = [&](const std::string& path, std::optional<OperationForm> operation) -> Status {
    GEMMTUNE_TRY(const auto triton, are_triton_files({path}));
    if (triton) return add_config(path, operation);
    GEMMTUNE_TRY(const auto file, read_tuned_csv(path, {.operation = operation}));
    for (const TunedEntry& entry : file.entries)
      if (row_is_of(entry, device)) rows.push_back({path, entry});
    return {};
  };
  if (!options.table.empty()) {
    GEMMTUNE_TRY(const auto operation, operation_word(options.operation));
    for (const std::string& path : path_list(options.table)) GEMMTUNE_RETURN_IF_ERROR(add(path, operation));
    return rows;
  }
  for (const TablePath& table : all_table_paths(tuned_files_of(environment), {}, environment.config_folder))
    if (file_exists(table.path)) GEMMTUNE_RETURN_IF_ERROR(add(table.path, table.operation));
  for (const TablePath& config : triton_table_paths(environment, environment.config_folder))
    GEMMTUNE_RETURN_IF_ERROR(add(config.path, config.operation));
  return rows;
}

Result<int> warm(const CacheOptions& options, const Environment& environment) {
  GEMMTUNE_TRY(auto device, open_device(options.device, environment, false));
  GEMMTUNE_TRY(const auto rows, rows_for(options, environment, device->info()));
  const std::vector<std::string> failures = build_all(*device, rows);
  Json json = {{"command", "cache"},
               {"action", "warm"},
               {"folder", environment.kernel_cache_folder},
               {"rows", rows.size()},
               {"failures", failures}};
  std::string text;
  for (const std::string& failure : failures) text += failure + "\n";
  text += fmt::format("{} rows of {}: {} built, {} not\n", rows.size(), device->info().name,
                      rows.size() - failures.size(), failures.size());
  print_answer(options.json, options.json ? json_document(json) : text);
  return failures.empty() ? exit_done : exit_findings;
}

Result<int> run_cache(const CacheOptions& options) {
  const Environment environment = read_environment();
  const std::string& folder = environment.kernel_cache_folder;
  if (options.action != "warm" && !options.table.empty())
    return Status::invalid("{}: only warm takes a tuned file", options.table);
  GEMMTUNE_RETURN_IF_ERROR(check_kernel_folder(folder));
  if (options.action == "list") return list_kernels(folder, options.json);
  if (options.action == "clear") return clear(folder, options.json);
  if (options.action != "warm") return Status::invalid("'{}': expected list, warm or clear", options.action);
  return warm(options, environment);
}

}  // namespace

std::function<Result<int>()> declare_cache(CommandOptions& app) {
  auto options = std::make_shared<CacheOptions>();
  app.add_option("ACTION", options->action, "list, warm or clear").required();
  app.add_option("TABLE", options->table,
                 "warm: tuned files, Triton configs and folders of these, colon-separated (default: all that "
                 "programs use here)");
  declare_file_operation(app, options->operation);
  declare_device_options(app, options->device);
  app.add_flag("--json", options->json, "One JSON document on stdout");
  app.footer(cache_footer);
  return [options] { return run_cache(*options); };
}

}  // namespace gemmtune::cli
