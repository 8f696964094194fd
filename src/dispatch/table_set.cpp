#include "dispatch/table_set.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/tuned_csv.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view base_name = "bf16_tuned_gemm";

bool is_model_table(const fs::directory_entry& file) {
  std::error_code error;
  if (!file.is_regular_file(error)) return false;
  const std::string name = file.path().filename().string();
  return name.ends_with(".csv") && name.find(base_name) != std::string::npos &&
         name.find("untuned") == std::string::npos;
}

/// Appends the file's rows to `entries` and says in `source` how it went.
void read_source(TableSource& source, std::uint32_t index, std::vector<TunedEntry>& entries) {
  if (!file_exists(source.path)) {
    source.state = Status::not_found("{}: no such file", source.path);
    return;
  }
  auto file = read_tuned_csv(source.path);
  if (!file.ok()) {
    source.state = file.status();
    return;
  }
  source.rows = file->entries.size();
  source.complaints = std::move(file->complaints);
  for (TunedEntry& entry : file->entries) entry.source = index;
  std::move(file->entries.begin(), file->entries.end(), std::back_inserter(entries));
  auto notes = EnvironmentNotes::read(source.path);
  if (notes.ok()) {
    source.environments = std::move(notes).value();
  } else {
    source.complaints.push_back(notes.message());
  }
}

}  // namespace

std::string TableSet::describe() const {
  std::string text;
  for (const TableSource& source : sources) {
    if (!text.empty()) text += '\n';
    text += source.state.ok() ? fmt::format("{}: {} rows", source.path, source.rows) : source.state.message();
    if (!source.complaints.empty()) {
      text += fmt::format(", {} left out ({})", source.complaints.size(), source.complaints.front());
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

std::vector<std::string> split_paths(std::string_view list) {
  std::vector<std::string> paths;
  for (const std::string_view path : split(list, ':')) {
    if (!path.empty()) paths.emplace_back(path);
  }
  return paths;
}

std::vector<std::string> default_table_paths(const std::string& config_folder) {
  std::vector<std::string> models;
  std::error_code error;
  fs::directory_iterator file(fs::path(config_folder) / "model_configs", error);
  for (; !error && file != fs::directory_iterator(); file.increment(error)) {
    if (is_model_table(*file)) models.push_back(file->path().string());
  }
  std::sort(models.begin(), models.end());
  std::vector<std::string> paths{(fs::path(config_folder) / (std::string(base_name) + ".csv")).string()};
  std::move(models.begin(), models.end(), std::back_inserter(paths));
  return paths;
}

TableSet load_table_set(const std::vector<std::string>& paths) {
  TableSet set;
  set.sources.resize(paths.size());
  std::vector<TunedEntry> entries;
  for (std::size_t i = 0; i < paths.size(); ++i) {
    set.sources[i].path = paths[i];
    read_source(set.sources[i], static_cast<std::uint32_t>(i), entries);
  }
  set.table = TunedTable(std::move(entries));
  return set;
}

}  // namespace gemmtune
