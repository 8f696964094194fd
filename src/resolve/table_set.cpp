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
#include "formats/aiter/tuned_csv.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

bool is_model_table(const fs::path& file, std::string_view base_name) {
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return false;
  const std::string name = file.filename().string();
  return name.ends_with(".csv") && name.find(base_name) != std::string::npos &&
         name.find("untuned") == std::string::npos;
}

/// Moves the file's rows to the end of `entries`; `source` gets what else the file says.
void add_file(TableSource& source, std::uint32_t index, TunedFile&& file, std::vector<TunedEntry>& entries) {
  source.rows = file.entries.size();
  source.diagnostics = std::move(file.diagnostics);
  for (TunedEntry& entry : file.entries) entry.source = index;
  std::move(file.entries.begin(), file.entries.end(), std::back_inserter(entries));
  auto notes = EnvironmentNotes::read(source.path);
  if (notes.ok()) {
    source.environments = std::move(notes).value();
  } else {
    source.diagnostics.push_back(notes.message());
  }
}

/// Appends the file's rows to `entries`; `source` says if that failed, and why.
void read_source(TableSource& source, std::uint32_t index, std::vector<TunedEntry>& entries) {
  if (!file_exists(source.path)) {
    source.state = Status::not_found("{}: no such file", source.path);
    return;
  }
  auto file = read_tuned_csv(source.path, {.operation = source.operation});
  if (!file.ok()) {
    source.state = file.status();
    return;
  }
  add_file(source, index, std::move(*file), entries);
}

std::vector<TablePath> default_table_paths(const std::string& config_folder, Operation operation) {
  if (config_folder.empty()) return {};  // not the working folder
  std::vector<TablePath> paths{{operation, join_path(config_folder, tuned_file_name(operation))}};
  for (const std::string& path : paths_in(join_path(config_folder, "model_configs"))) {
    if (is_model_table(path, schema_of(operation).tuned_name)) paths.push_back({operation, path});
  }
  return paths;
}

}  // namespace

std::vector<LookupHit> TableSet::lookup(const LookupKey& key) const {
  std::vector<LookupHit> hits = table.lookup(key);
  if (exact_only) std::erase_if(hits, [](const LookupHit& hit) { return hit.match != Match::exact; });
  return hits;
}

std::string TableSet::describe(std::optional<Operation> operation) const {
  std::string text;
  for (const TableSource& source : sources) {
    if (operation && source.operation != *operation) continue;
    if (!text.empty()) text += '\n';
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

std::vector<TablePath> table_paths_of(Operation operation, std::string_view list) {
  std::vector<TablePath> paths;
  for (std::string& path : path_list(list)) paths.push_back({operation, std::move(path)});
  return paths;
}

TunedFileLists tuned_files_of(const Environment& environment) {
  TunedFileLists lists;
  for (const Operation operation : all_operations()) {
    std::string own = "GEMMTUNE_CONFIG_" + std::string(to_string(operation));
    std::transform(own.begin(), own.end(), own.begin(), [](unsigned char c) { return std::toupper(c); });
    for (const std::string_view name : {std::string_view(own), traits(operation).aiter_variable}) {
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
  for (const Operation operation : all_operations()) {
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

TableSet load_table_set(const std::vector<TablePath>& paths) {
  TableSet set;
  set.sources.resize(paths.size());
  std::vector<TunedEntry> entries;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    set.sources[i].path = paths[i].path;
    set.sources[i].operation = paths[i].operation;
    read_source(set.sources[i], static_cast<std::uint32_t>(i), entries);
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
  return load_table_set(all_table_paths({}, tuned_files_of(environment), environment.config_folder));
}

}  // namespace gemmtune
