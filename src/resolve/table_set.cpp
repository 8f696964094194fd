#include "resolve/table_set.h"

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/folder.h"
#include "base/path_list.h"
#include "formats/triton/bucket_rows.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_folder.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

/// Beside the variables of operations (tuned_files_of()).
constexpr std::string_view triton_variable = "GEMMTUNE_CONFIG_TRITON";

bool is_model_table(const fs::path& file, std::string_view base_name) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  const std::string name = file.filename().string();
  return name.ends_with(".csv") && name.find(base_name) != std::string::npos &&
         name.find("untuned") == std::string::npos;
}

/// Of the first file the memory, too: a table of a million rows would be there twice.
void append_rows(std::vector<TunedEntry>&& rows, std::vector<TunedEntry>& entries) {
  if (entries.empty()) {
    entries = std::move(rows);
  } else {
    std::move(rows.begin(), rows.end(), std::back_inserter(entries));
  }
}

/// Moves the file's rows to the end of `entries`; `source` gets what else the file says.
void add_file(TableSource& source, std::uint32_t index, TunedFile&& file, std::vector<TunedEntry>& entries) {
  source.rows = file.entries.size();
  source.diagnostics = std::move(file.diagnostics);
  for (TunedEntry& entry : file.entries) entry.source = index;
  append_rows(std::move(file.entries), entries);
  auto notes = EnvironmentNotes::read(source.path);
  if (notes.ok()) {
    source.environments = std::move(notes).value();
  } else {
    source.diagnostics.push_back(notes.message());
  }
}

void read_triton_source(TableSource& source, std::uint32_t index, std::vector<TunedEntry>& entries) {
  auto file = read_triton_json(source.path);
  auto rows =
      file.ok() ? bucket_rows(*file, source.operation) : Result<std::vector<TunedEntry>>(file.status());
  if (!rows.ok()) {
    source.state = rows.status();
    return;
  }
  source.diagnostics = std::move(file->diagnostics);
  source.rows = file->buckets.size();
  if (!rows->empty()) source.operation = form_of(rows->front().problem);
  for (TunedEntry& row : *rows) {
    row.source = index;
    entries.push_back(std::move(row));
  }
}

/// False for a Triton config of a family that gemmtune has no operation for.
bool is_of_operation(const std::string& config) {
  return problem_of_triton_family(parse_triton_file_name(config)->family).has_value();
}

/// A path that was named, as the files to read.
std::vector<TableSource> sources_of(const TablePath& path) {
  std::vector<TableSource> sources;
  std::error_code error;
  if (!fs::is_directory(path.path, error)) {
    TableSource& source = sources.emplace_back();
    source.path = path.path;
    source.operation = path.operation.value_or(source.operation);
    source.triton = path.path.ends_with(".json");
    source.unknown = !path.operation && !source.triton;
    if (!path.operation && file_exists(path.path) && !is_triton_name(path.path)) {
      source.state = Status::invalid(
          "{}: expected a Triton config, <arch>-GEMM-A16W16-N=n-K=k.json, or a folder", path.path);
    }
    return sources;
  }
  for (std::string& file : triton_files_in(path.path)) {
    if (!is_of_operation(file)) continue;
    TableSource& source = sources.emplace_back();
    source.path = std::move(file);
    source.triton = true;
  }
  if (sources.empty()) {
    TableSource& source = sources.emplace_back();
    source.path = path.path;
    source.operation = path.operation.value_or(source.operation);
    source.unknown = !path.operation;
    source.state = Status::not_found("{}: no Triton config in this folder", path.path);
  }
  return sources;
}

/// Appends the file's rows to `entries`; `source` says if that failed, and why.
void read_source(TableSource& source, std::uint32_t index, std::vector<TunedEntry>& entries) {
  if (!file_exists(source.path)) {
    source.state = Status::not_found("{}: no such file", source.path);
    return;
  }
  if (source.triton) {
    read_triton_source(source, index, entries);
    return;
  }
  auto file = read_tuned_csv(source.path, {.operation = source.operation});
  if (!file.ok()) {
    source.state = file.status();
    return;
  }
  add_file(source, index, std::move(*file), entries);
}

std::vector<TablePath> default_table_paths(const std::string& config_folder, OperationForm operation) {
  if (config_folder.empty()) return {};  // not the working folder
  std::vector<TablePath> paths{{operation, join_path(config_folder, tuned_file_name(operation))}};
  auto of_models = model_table_paths(join_path(config_folder, "model_configs"), operation);
  std::move(of_models.begin(), of_models.end(), std::back_inserter(paths));
  return paths;
}

std::string counted(std::size_t count, const char* noun) {
  return fmt::format("{} {}{}", count, noun, count == 1 ? "" : "s");
}

}  // namespace

LookupHits TableSet::lookup(const LookupKey& key) const {
  LookupHits hits = table.lookup(key);
  if (!exact_only) return hits;
  LookupHits exact;
  for (const LookupHit& hit : hits) {
    if (hit.match == Match::exact) exact.push_back(hit);
  }
  return exact;
}

std::string TableSet::describe(std::optional<OperationForm> operation) const {
  std::string text;
  const auto is_plain = [&](const TableSource& source) {
    return (source.triton || source.shipped) && source.state.ok() && source.diagnostics.empty();
  };
  for (std::size_t index = 0; index < sources.size(); ++index) {
    const TableSource& source = sources[index];
    if (operation && source.operation != *operation && !source.unknown) continue;
    if (!text.empty()) text += '\n';
    if (is_plain(source)) {
      const std::string folder = parent_folder(source.path);
      std::size_t files = 1;
      std::size_t rows = source.rows;
      std::size_t others = source.other_rows;
      for (; index + 1 < sources.size() && is_plain(sources[index + 1]) &&
             parent_folder(sources[index + 1].path) == folder;
           ++index) {
        if (operation && sources[index + 1].operation != *operation) continue;
        ++files;
        rows += sources[index + 1].rows;
        others += sources[index + 1].other_rows;
      }
      if (source.shipped) {
        text += fmt::format("{}: {} in {}", folder, counted(rows, "row"), counted(files, "shipped table"));
        if (others > 0) text += fmt::format(", {} of other devices", others);
      } else {
        text += files == 1 ? fmt::format("{}: {} buckets", source.path, rows)
                           : fmt::format("{}: {} buckets in {} Triton configs", folder, rows, files);
      }
      continue;
    }
    text += source.state.ok() ? fmt::format("{}: {} rows", source.path, source.rows) : source.state.message();
    if (!source.diagnostics.empty()) {
      text += fmt::format(", {} left out ({})", source.diagnostics.size(), source.diagnostics.front());
    }
  }
  return text;
}

Status TableSet::first_fault() const {
  for (const TableSource& source : sources) {
    if (!source.state.ok() && source.state.code() != StatusCode::not_found) return source.state;
  }
  return {};
}

std::vector<TablePath> table_paths_of(OperationForm operation, std::string_view list) {
  std::vector<TablePath> paths;
  for (std::string& path : path_list(list)) paths.push_back({operation, std::move(path), true});
  return paths;
}

std::string tuned_files_variable(OperationForm operation) {
  std::string name = "GEMMTUNE_CONFIG_" + std::string(to_string(operation));
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::toupper(c); });
  return name;
}

TunedFileLists tuned_files_of(const Environment& environment) {
  TunedFileLists lists;
  for (const OperationForm operation : all_operation_forms()) {
    const std::string own = tuned_files_variable(operation);
    for (const std::string_view name : {std::string_view(own), names_of(operation).aiter_variable}) {
      const auto set = environment.config_variables.find(name);
      if (set == environment.config_variables.end()) continue;
      lists[operation] = set->second;
      break;
    }
  }
  return lists;
}

std::vector<TablePath> all_table_paths(const TunedFileLists& first, const TunedFileLists& second,
                                       const std::string& config_folder) {
  std::vector<TablePath> paths;
  for (const OperationForm operation : all_operation_forms()) {
    const auto list_in = [&](const TunedFileLists& lists) {
      const auto list = lists.find(operation);
      return list == lists.end() ? std::string() : list->second;
    };
    const std::string wanted = list_in(first);
    const std::string list = wanted.empty() ? list_in(second) : wanted;
    auto of_operation =
        list.empty() ? default_table_paths(config_folder, operation) : table_paths_of(operation, list);
    std::move(of_operation.begin(), of_operation.end(), std::back_inserter(paths));
  }
  return paths;
}

std::vector<TablePath> model_table_paths(const std::string& model_configs, OperationForm operation) {
  std::vector<TablePath> paths;
  for (const std::string& path : files_in(model_configs)) {
    if (is_model_table(path, schema_of(operation).tuned_name)) paths.push_back({operation, path});
  }
  return paths;
}

std::vector<TablePath> triton_table_paths(const Environment& environment, const std::string& config_folder) {
  std::vector<TablePath> paths;
  const auto set = environment.config_variables.find(triton_variable);
  if (set != environment.config_variables.end()) {
    for (std::string& path : path_list(set->second)) paths.push_back({std::nullopt, std::move(path), true});
    return paths;
  }
  if (config_folder.empty()) return paths;
  auto files = triton_files_of(config_folder);
  auto of_folder = triton_files_in(join_path(config_folder, "triton"));
  std::move(of_folder.begin(), of_folder.end(), std::back_inserter(files));
  for (std::string& file : files) {
    if (is_of_operation(file)) paths.push_back({std::nullopt, std::move(file)});
  }
  return paths;
}

TableSet load_table_set(const std::vector<TablePath>& paths) {
  TableSet set;
  for (const TablePath& path : paths) {
    auto sources = sources_of(path);
    for (TableSource& source : sources) source.named = path.named;
    std::move(sources.begin(), sources.end(), std::back_inserter(set.sources));
  }
  std::vector<TunedEntry> entries;
  for (std::size_t i = 0; i < set.sources.size(); ++i) {
    if (set.sources[i].state.ok()) read_source(set.sources[i], static_cast<std::uint32_t>(i), entries);
  }
  set.table = TunedTable(std::move(entries));
  return set;
}

TableSet table_set_of(std::vector<TunedFile> files) {
  TableSet set;
  set.sources.resize(files.size());
  std::vector<TunedEntry> entries;
  for (std::size_t i = 0; i < files.size(); ++i) {
    set.sources[i].path = files[i].path;
    set.sources[i].operation = files[i].schema().operation;
    add_file(set.sources[i], static_cast<std::uint32_t>(i), std::move(files[i]), entries);
  }
  set.table = TunedTable(std::move(entries));
  return set;
}

TableSet table_set_of(TunedFile file) {
  std::vector<TunedFile> files;
  files.push_back(std::move(file));
  return table_set_of(std::move(files));
}

TableSet production_tables(const Environment& environment) {
  auto paths = all_table_paths({}, tuned_files_of(environment), environment.config_folder);
  auto triton = triton_table_paths(environment, environment.config_folder);
  std::move(triton.begin(), triton.end(), std::back_inserter(paths));
  TableSet set = load_table_set(paths);
  set.fewer_threads = environment.fewer_threads;
  return set;
}

}  // namespace gemmtune
