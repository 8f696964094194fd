#include "formats/triton/triton_folder.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <system_error>
#include <utility>

#include "base/file.h"
#include "base/folder.h"
#include "formats/triton/triton_families.h"
#include "formats/triton/triton_lookup.h"

namespace gemmtune {
namespace {

using Paths = std::vector<std::string>;

bool is_folder(const std::string& path) {
  std::error_code error;
  return std::filesystem::is_directory(path, error);
}

void append(Paths& paths, Paths&& more) { std::move(more.begin(), more.end(), std::back_inserter(paths)); }

/// Of the folders in a folder.
void append_below(Paths& paths, const std::string& folder) {
  for (const std::string& path : paths_in(folder))
    if (is_folder(path)) append(paths, triton_files_of(path));
}

}  // namespace

bool is_triton_name(const std::string& path) {
  const auto name = parse_triton_file_name(path);
  if (!name) return false;
  const std::string_view family = name->family;
  return family.starts_with("GEMM-") || family.starts_with("BATCHED_GEMM-") || family.starts_with("MOE-");
}

std::vector<std::string> triton_files_of(const std::string& folder) {
  Paths files = files_in(folder);
  std::erase_if(files, [](const std::string& path) { return !is_triton_name(path); });
  return files;
}

namespace {

Paths all_triton_files_in(const std::string& root) {
  Paths files = triton_files_of(root);
  const Paths inside = paths_in(root);
  for (const char* backend : {"triton", "gluon"}) {
    for (const std::string& arch : inside) append_below(files, join_path(join_path(arch, backend), "gemm"));
  }
  append(files, triton_files_of(join_path(root, "gemm")));
  append_below(files, join_path(root, "gemm"));
  append(files, triton_files_of(join_path(root, "moe")));
  return files;
}

/// The folder, below `root`, of the place where the family's kernel finds its default file; empty: nowhere.
std::string place_of_family(const std::string& root, const TritonFileName& name) {
  TritonQuery query;
  query.arch = name.arch;
  query.family = name.family;
  query.backend = triton_backend(name.arch, name.family);
  const auto paths = find_triton_files(root, query);
  return paths.ok() ? parent_folder(paths->default_file) : std::string();
}

}  // namespace

std::vector<std::string> config_files_in(const std::string& root) {
  Paths files = all_triton_files_in(root);
  const auto add_nearest = [&files](const std::string& folder) {
    Paths inside = files_in(folder);
    std::erase_if(inside, [](const std::string& path) {
      const auto name = parse_triton_file_name(path);
      return !name || !is_nearest_family(name->family);
    });
    append(files, std::move(inside));
  };
  add_nearest(root);
  for (const std::string& path : paths_in(root))
    if (is_folder(path)) add_nearest(path);
  return files;
}

std::vector<std::string> triton_files_in(const std::string& folder) {
  std::string root = folder;
  while (root.size() > 1 && root.ends_with('/')) root.pop_back();
  Paths files = all_triton_files_in(root);
  // Of AITER's places of a family the first with a default file counts, with all that lies there.
  std::map<std::pair<std::string, std::string>, std::string> places;
  std::erase_if(files, [&](const std::string& path) {
    const auto name = parse_triton_file_name(path);
    if (!name || parent_folder(path) == root || name->family.starts_with("MOE-")) return false;
    const auto [place, is_new] = places.try_emplace({name->arch, name->family});
    if (is_new) place->second = place_of_family(root, *name);
    return !place->second.empty() && parent_folder(path) != place->second;
  });
  return files;
}

}  // namespace gemmtune
