#include "cli/tables/table_files.h"

#include <fmt/format.h>

#include <utility>

#include "base/file.h"
#include "base/file_lock.h"
#include "base/path_list.h"
#include "cli/shared/console.h"
#include "cli/shared/output_path.h"
#include "formats/aiter/environment_json.h"
#include "formats/all_formats.h"
#include "formats/json.h"

namespace gemmtune::cli {

Result<std::vector<TunedFile>> read_tables(const std::vector<std::string>& words,
                                           std::optional<Operation> operation) {
  std::vector<TunedFile> files;
  for (const std::string& word : words) {
    for (const std::string& path : path_list(word)) {
      auto file = read_tuned_csv(path, {.operation = operation});
      if (!file.ok()) return file.status();
      files.push_back(std::move(*file));
    }
  }
  if (files.empty()) return Status::invalid("no files: give at least one tuned file");
  return files;
}

Result<bool> are_tuned_files(const std::string& paths) {
  std::string tuned;
  std::string other;
  for (const std::string& path : path_list(paths)) {
    const auto content = read_file(path);
    if (!content.ok()) return content.status();
    (is_tuned_format(detect_format(path, *content)) ? tuned : other) = path;
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
                   const std::vector<TunedFile>& inputs) {
  if (path.empty() || path == "-") {
    print_document(text);
    return {};
  }
  GEMMTUNE_RETURN_IF_ERROR(check_writable(option, path));
  const std::string target = resolve_links(path);
  const auto lock = FileLock::acquire(target + ".lock");
  if (!lock.ok()) return lock.status();
  // First, so that no row ever names an environment that cannot be looked up.
  for (const TunedFile& input : inputs) {
    const auto environments = read_environment_json(input.path);
    if (!environments.ok()) return environments.status();
    if (!environments->objects.empty()) {
      GEMMTUNE_RETURN_IF_ERROR(merge_environment_json(target, environments->objects));
    }
  }
  return write_file_atomically(target, text);
}

}  // namespace gemmtune::cli
