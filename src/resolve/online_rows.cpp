#include "resolve/online_rows.h"

#include <filesystem>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "formats/hipblaslt/hipblaslt_csv.h"
#include "resolve/row_kernel.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

/// Rows of AITER's own tuning name Tensile's kernels, ours our own; one whose kernel cannot be had here is no row.
std::optional<TunedEntry> entry_of(const HipblasltRow& row, const Problem& problem, const Device& owner) {
  const DeviceInfo& device = owner.info();
  TunedEntry entry;
  entry.libtype = "hipblaslt";
  entry.gfx = device.gfx;
  entry.cu_num = device.cu_num;
  entry.problem = problem;
  entry.solidx = row.algo_index;
  entry.kernel_name = row.kernel_name;
  entry.us = std::numeric_limits<double>::quiet_NaN();
  entry.never_timed = true;  // the first row of a key counts, as in AITER
  entry.line = row.line;
  const auto name = row_kernel_name(owner, entry, problem);
  const auto candidate = name.ok() ? owner.resolve(*name, problem) : Result<Candidate>(name.status());
  if (!candidate.ok()) return std::nullopt;
  entry.libtype = candidate->family;
  return entry;
}

TableSet load_hipblaslt_table(const std::string& path, const Device& device) {
  TableSet set;
  set.exact_only = true;
  TableSource& source = set.sources.emplace_back();
  source.path = path;
  auto file = file_exists(path) ? read_hipblaslt_csv(path)
                                : Result<HipblasltFile>(Status::not_found("{}: no such file", path));
  if (!file.ok()) {
    source.state = file.status();
    return set;
  }
  source.diagnostics = std::move(file->diagnostics);
  std::vector<TunedEntry> entries;
  for (const HipblasltRow& row : file->rows) {
    auto problem = to_problem(row);
    if (!problem.ok()) continue;
    auto entry = entry_of(row, *problem, device);
    if (!entry) continue;
    ++source.rows;
    for (const bool bias : {false, true}) {
      entry->problem.bias = bias;
      entries.push_back(*entry);
    }
  }
  set.table = TunedTable(std::move(entries));
  return set;
}

}  // namespace

OnlineFile default_online_file(OnlineTuning switched_by, const std::string& config_folder) {
  if (switched_by == OnlineTuning::aiter) {
    // The working folder of this moment, whatever the program makes of it later.
    std::error_code error;
    const std::string folder = fs::current_path(error).string();
    return {join_path(folder, "hip_online_tuning_res.csv"), OnlineFormat::hipblaslt_table};
  }
  if (config_folder.empty()) return {};  // not in the working folder
  return {join_path(config_folder, "online_tuning.csv"), OnlineFormat::gemmtune_csv};
}

std::string online_path(const OnlineFile& file, OperationForm operation) {
  if (operation == Operation::a16w16) return file.path;
  if (file.format == OnlineFormat::hipblaslt_table) return {};
  fs::path path(file.path);
  const std::string extension = path.extension().string();
  path.replace_extension(std::string(to_string(operation)) + extension);
  return path.string();
}

std::shared_ptr<const TableSet> load_online_rows(const OnlineFile& file, const Device& device) {
  if (file.format == OnlineFormat::hipblaslt_table) {
    return std::make_shared<const TableSet>(load_hipblaslt_table(file.path, device));
  }
  std::vector<TablePath> paths;
  for (const OperationForm operation : all_operation_forms()) {
    const std::string path = online_path(file, operation);
    // Most operations have none; a missing file of the first is worth a line in `sources`.
    if (operation == Operation::a16w16 || file_exists(path)) paths.push_back({operation, path});
  }
  return std::make_shared<const TableSet>(load_table_set(paths));
}

std::shared_ptr<const TableSet> production_online_rows(const Environment& environment, const Device& device) {
  if (environment.online_tuning == OnlineTuning::off) return nullptr;
  const OnlineFile file = default_online_file(environment.online_tuning, environment.config_folder);
  return file.path.empty() ? nullptr : load_online_rows(file, device);
}

}  // namespace gemmtune
