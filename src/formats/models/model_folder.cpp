#include "formats/models/model_folder.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "base/file.h"
#include "base/text.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t max_ref_bytes = 4096;

bool has_config(const fs::path& folder) {
  std::error_code error;
  return fs::is_regular_file(folder / "config.json", error);
}

/// "ORG/NAME", and neither part leads out of the cache's folder.
bool is_hub_id(const std::string& model) {
  const auto slash = model.find('/');
  if (slash == std::string::npos || slash == 0 || slash + 1 == model.size()) return false;
  return model.front() != '.' && model[slash + 1] != '.' && model.find('/', slash + 1) == std::string::npos;
}

/// The snapshot's folder; empty where the cache has none with a config.json.
std::string cached_snapshot(const std::string& id, const std::string& hub) {
  if (hub.empty() || !is_hub_id(id)) return {};
  const auto slash = id.find('/');
  const fs::path repository =
      fs::path(hub) / fmt::format("models--{}--{}", id.substr(0, slash), id.substr(slash + 1));
  if (const auto revision = read_file((repository / "refs" / "main").string(), max_ref_bytes);
      revision.ok()) {
    const std::string_view name = trim(*revision);
    if (!name.empty() && name.find('/') == std::string_view::npos) {
      const fs::path snapshot = repository / "snapshots" / name;
      if (has_config(snapshot)) return snapshot.string();
    }
  }
  std::error_code error;
  fs::path last;
  fs::file_time_type last_time{};
  for (fs::directory_iterator entry(repository / "snapshots", error), end; !error && entry != end;
       entry.increment(error)) {
    if (!has_config(entry->path())) continue;
    std::error_code unknown;
    const auto time = fs::last_write_time(entry->path() / "config.json", unknown);
    if (unknown || (!last.empty() && time <= last_time)) continue;
    last = entry->path();
    last_time = time;
  }
  return last.string();
}

Status not_found(const std::string& model, const ModelFolders& folders) {
  const auto names = shipped_models(folders);
  const std::string shipped =
      names.empty() ? std::string("none here") : fmt::format("{}", fmt::join(names, ", "));
  const std::string place =
      folders.hub.empty() ? std::string("which has no folder here; set HF_HUB_CACHE") : folders.hub;
  const std::string id = is_hub_id(model) ? model : std::string("ORG/NAME");
  return Status::not_found(
      "{}: no folder, no shipped model and no id in Hugging Face's cache ({}); expected a folder with "
      "config.json, one of the shipped models ({}), or an id that `hf download {} config.json` has fetched",
      model, place, shipped, id);
}

}  // namespace

std::vector<std::string> shipped_models(const ModelFolders& folders) {
  std::vector<std::string> names;
  if (folders.shipped.empty()) return names;
  std::error_code error;
  for (fs::directory_iterator entry(folders.shipped, error), end; !error && entry != end;
       entry.increment(error)) {
    if (has_config(entry->path())) names.push_back(entry->path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

Result<std::string> find_model_folder(const std::string& model, const ModelFolders& folders) {
  std::error_code error;
  if (fs::is_directory(model, error)) return model;
  const auto names = shipped_models(folders);
  if (const auto name = std::find(names.begin(), names.end(), to_lower(model)); name != names.end())
    return join_path(folders.shipped, *name);
  if (std::string snapshot = cached_snapshot(model, folders.hub); !snapshot.empty()) return snapshot;
  return not_found(model, folders);
}

}  // namespace gemmtune
