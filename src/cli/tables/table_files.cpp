#include "cli/tables/table_files.h"

#include <fmt/format.h>
#include <glob.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/path_list.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "formats/all_formats.h"
#include "formats/json.h"
#include "formats/shards/shard_file.h"
#include "formats/triton/triton_folder.h"

namespace gemmtune::cli {
namespace {

/// The files that a pattern means, by name.
Result<std::vector<std::string>> files_of_pattern(const std::string& pattern) {
  glob_t found{};
  const int result = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> paths;
  if (result == 0) paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  globfree(&found);
  if (result == GLOB_NOSPACE)
    return Status(StatusCode::out_of_memory, fmt::format("{}: too many files", pattern));
  if (paths.empty()) return Status::not_found("{}: no file of this pattern", pattern);
  return paths;
}

Result<std::vector<std::string>> paths_of(const std::string& word) {
  std::vector<std::string> paths;
  for (const std::string& path : path_list(word)) {
    if (path.find_first_of("*?[") == std::string::npos || file_exists(path)) {
      paths.push_back(path);
      continue;
    }
    GEMMTUNE_TRY(auto found, files_of_pattern(path));
    paths.insert(paths.end(), found.begin(), found.end());
  }
  return paths;
}

/// The operation of a shard's output; none where the file is no shard's.
Result<std::optional<OperationForm>> operation_of_shard(const std::string& path) {
  const auto shard = read_shard_file(path);
  if (shard.ok()) return std::optional(shard->operation);
  if (shard.code() == StatusCode::not_found) return std::optional<OperationForm>();
  return shard.status();
}

}  // namespace

Result<std::vector<TunedFile>> read_tables(const std::vector<std::string>& words,
                                           std::optional<OperationForm> operation, bool strict) {
  std::vector<TunedFile> files;
  for (const std::string& word : words) {
    GEMMTUNE_TRY(auto paths, paths_of(word));
    for (const std::string& path : paths) {
      std::optional<OperationForm> known = operation;
      if (!known) {
        GEMMTUNE_TRY(known, operation_of_shard(path));
      }
      GEMMTUNE_TRY(auto file, read_tuned_csv(path, {.operation = known, .strict = strict}));
      files.push_back(std::move(file));
    }
  }
  if (files.empty()) return Status::invalid("no files: give at least one tuned file");
  return files;
}

Result<bool> are_triton_files(const std::vector<std::string>& words) {
  std::string config;
  std::string other;
  for (const std::string& word : words) {
    for (const std::string& path : path_list(word)) {
      std::error_code error;
      const bool is_config = path.ends_with(".json") || std::filesystem::is_directory(path, error);
      (is_config ? config : other) = path;
    }
  }
  if (!config.empty() && !other.empty()) {
    return Status::invalid("{}: a Triton config, but {} is none; expected one kind", config, other);
  }
  return !config.empty();
}

Result<std::vector<TritonFile>> read_triton_files(const std::vector<std::string>& words) {
  std::vector<TritonFile> files;
  for (const std::string& word : words) {
    for (const std::string& path : path_list(word)) {
      std::error_code error;
      const bool is_folder = std::filesystem::is_directory(path, error);
      const std::vector<std::string> paths = is_folder ? config_files_in(path) : std::vector{path};
      if (paths.empty()) return Status::invalid("{}: no Triton config in this folder", path);
      for (const std::string& one : paths) {
        GEMMTUNE_TRY(auto file, read_triton_json(one));
        files.push_back(std::move(file));
      }
    }
  }
  return files;
}

Result<TableSet> read_table_set(const std::string& paths, std::optional<OperationForm> operation) {
  GEMMTUNE_TRY(const auto triton, are_triton_files({paths}));
  if (!triton) {
    GEMMTUNE_TRY(auto files, read_tables({paths}, operation));
    return table_set_of(std::move(files));
  }
  std::vector<TablePath> list;
  for (std::string& path : path_list(paths)) list.push_back({operation, std::move(path)});
  TableSet set = load_table_set(list);
  for (const TableSource& source : set.sources) GEMMTUNE_RETURN_IF_ERROR(source.state);
  return set;
}

Result<bool> are_tuned_files(const std::string& paths) {
  std::string tuned;
  std::string other;
  for (const std::string& path : path_list(paths)) {
    GEMMTUNE_TRY(const auto content, read_file(path));
    (is_tuned_format(detect_format(path, content)) ? tuned : other) = path;
  }
  if (!tuned.empty() && !other.empty()) {
    return Status::invalid("{}: a tuned file, but {} is none; expected one kind", tuned, other);
  }
  return !tuned.empty();
}

OrderedJson left_out_json(const std::vector<LeftOut>& items) {
  auto json = OrderedJson::array();
  for (const LeftOut& item : items) {
    json.push_back({{"kind", to_string(item.kind)},
                    {"name", item.name},
                    {"line", item.line},
                    {"count", item.count},
                    {"why", item.why}});
    if (!item.source.empty()) json.back()["file"] = item.source;
  }
  return json;
}

bool is_tuned_file(const std::string& path, const std::string& content) {
  return is_tuned_format(detect_format(path, content));
}

Status check_no_input(const std::string& option, const std::string& output,
                      const std::vector<TunedFile>& inputs) {
  if (output.empty() || output == "-") return {};
  const std::string target = resolve_links(output);
  for (const TunedFile& input : inputs) {
    if (resolve_links(input.path) != target) continue;
    return Status::invalid("{} {}: is an input, which is never changed; write to another file", option,
                           output);
  }
  return {};
}

Status write_table(const std::string& option, const std::string& path, const std::string& text,
                   const std::vector<TunedFile>& inputs, const EnvironmentObjects& notes) {
  if (path.empty() || path == "-") {
    print_document(text);
    return {};
  }
  GEMMTUNE_RETURN_IF_ERROR(check_writable(option, path));
  GEMMTUNE_RETURN_IF_ERROR(check_replaces_only(option, path, "a tuned file", is_tuned_file));
  const std::string target = resolve_links(path);
  GEMMTUNE_TRY(const auto lock, FileLock::acquire(target + ".lock"));
  // First, so that no row ever names an environment that cannot be looked up.
  for (const TunedFile& input : inputs) {
    GEMMTUNE_TRY(const auto environments, read_environment_json(input.path));
    if (!environments.objects.empty()) {
      GEMMTUNE_RETURN_IF_ERROR(merge_environment_json(target, environments.objects));
    }
  }
  if (!notes.empty()) GEMMTUNE_RETURN_IF_ERROR(merge_environment_json(target, notes));
  return write_file_atomically(target, text);
}

}  // namespace gemmtune::cli
