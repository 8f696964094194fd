#include "base/shared_library.h"

#include <dlfcn.h>

#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <new>

#include "base/file.h"

namespace gemmtune {
namespace {

/// The file whose mapping holds the address. The loader's own record of it may be relative to the working
/// folder of that moment (LD_LIBRARY_PATH=lib, argv[0]), which may be another one now.
std::string mapped_file(const void* address) {
  std::ifstream maps("/proc/self/maps");
  const auto wanted = reinterpret_cast<std::uintptr_t>(address);
  for (std::string line; std::getline(maps, line);) {
    // begin-end mode offset device inode path
    std::uintptr_t begin = 0;
    std::uintptr_t end = 0;
    if (std::sscanf(line.c_str(), "%" SCNxPTR "-%" SCNxPTR, &begin, &end) != 2) continue;
    if (wanted < begin || wanted >= end) continue;
    const std::size_t path = line.find('/');
    return path == std::string::npos ? std::string() : line.substr(path);
  }
  if (maps.bad()) throw std::bad_alloc();  // which getline() keeps to itself
  return {};
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
  if (std::string path = mapped_file(address); !path.empty()) return path;
  Dl_info information{};
  if (dladdr(address, &information) == 0 || information.dli_fname == nullptr) return {};
  return information.dli_fname[0] == '/' ? resolve_links(information.dli_fname) : std::string();
}

std::vector<std::string> module_paths(const std::string& file_name, const std::string& module_folder) {
  if (!module_folder.empty()) return {join_path(module_folder, file_name)};
  const auto address = reinterpret_cast<const void*>(&module_paths);
  const std::string folder = parent_folder(SharedLibrary::file_of(address));
  if (folder.empty()) return {};
  std::vector<std::string> paths;
  for (const char* beside :
       {"", "lib/gemmtune", "gemmtune", "../lib/gemmtune", "../" GEMMTUNE_LIBDIR "/gemmtune"}) {
    paths.push_back(join_path(*beside == '\0' ? folder : join_path(folder, beside), file_name));
  }
  return paths;
}

}  // namespace gemmtune
