#include "base/shared_library.h"

#include <dlfcn.h>
#include <link.h>

#include <filesystem>

#include "base/file.h"

namespace gemmtune {
namespace {

namespace fs = std::filesystem;

/// The program or library that holds this function.
std::string own_file() {
  Dl_info information{};
  link_map* map = nullptr;
  const auto address = reinterpret_cast<const void*>(&own_file);
  if (dladdr1(address, &information, reinterpret_cast<void**>(&map), RTLD_DL_LINKMAP) == 0) return {};
  // The program itself has an empty name here; argv[0], which dladdr gives, may be relative to an older
  // folder.
  const bool program = map == nullptr || map->l_name == nullptr || map->l_name[0] == '\0';
  return resolve_links(program ? "/proc/self/exe" : information.dli_fname);
}

}  // namespace

Result<SharedLibrary> SharedLibrary::open(const std::vector<std::string>& paths) {
  std::string why = "no path to look at";
  for (const std::string& path : paths) {
    // A file that is not there would hide the reason of one that is, but does not load.
    if (path.find('/') != std::string::npos && !file_exists(path)) {
      if (&path == &paths.front()) why = path + ": no such file";
      continue;
    }
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return SharedLibrary(handle);
    const char* reason = dlerror();
    why = reason != nullptr ? reason : path + ": cannot be loaded";
  }
  return Status::not_found("{}", why);
}

void* SharedLibrary::symbol(const char* name) const { return dlsym(handle_, name); }

std::string SharedLibrary::file_of(const void* address) {
  Dl_info information{};
  if (dladdr(address, &information) == 0 || information.dli_fname == nullptr) return {};
  return resolve_links(information.dli_fname);
}

std::vector<std::string> module_paths(const std::string& file_name, const std::string& module_folder) {
  if (!module_folder.empty()) return {(fs::path(module_folder) / file_name).string()};
  const fs::path folder = fs::path(own_file()).parent_path();
  std::vector<std::string> paths;
  for (const char* beside :
       {"", "lib/gemmtune", "gemmtune", "../lib/gemmtune", "../" GEMMTUNE_LIBDIR "/gemmtune"}) {
    paths.push_back((folder / beside / file_name).lexically_normal().string());
  }
  return paths;
}

}  // namespace gemmtune
