#include "base/shared_library.h"

#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <cinttypes>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <new>
#include <string_view>
#include <system_error>

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

std::string own_folder() {
  return parent_folder(SharedLibrary::file_of(reinterpret_cast<const void*>(&own_folder)));
}

Result<SharedLibrary> SharedLibrary::open(const std::vector<std::string>& paths) {
  std::string why = "no path to look at";
  std::vector<std::string> absent;  // names that the system knows no library of
  bool is_known = false;            // `why` is of a path that is there, or should be
  std::string absent_reason;        // the loader's, behind the name
  for (const std::string& path : paths) {
    // A relative path is of the working folder, where others may have put a library.
    if (path.find('/') != std::string::npos && !path.starts_with('/')) {
      why = path + ": expected a path from the root on";
      is_known = true;
      continue;
    }
    // A file that is not there would hide the reason of one that is, but does not load.
    if (path.find('/') != std::string::npos && !file_exists(path)) {
      if (&path != &paths.front()) continue;
      why = path + ": no such file";
      is_known = true;
      continue;
    }
    if (void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return SharedLibrary(handle);
    const char* const text = dlerror();
    const std::string reason = text != nullptr ? text : path + ": cannot be loaded";
    const std::string beginning = path + ": ";
    if (path.find('/') == std::string::npos && reason.starts_with(beginning)) {
      absent.push_back(path);
      if (absent_reason.empty()) absent_reason = reason.substr(beginning.size());
    } else {
      why = reason;
      is_known = true;
    }
  }
  // What is there but does not load says more than that other names are not there.
  if (!is_known && !absent.empty()) why = fmt::format("{}: {}", fmt::join(absent, ", "), absent_reason);
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
  const std::string folder = own_folder();
  if (folder.empty()) return {};
  std::vector<std::string> paths;
  for (const char* beside :
       {"", "lib/gemmtune", "gemmtune", "../lib/gemmtune", "../" GEMMTUNE_LIBDIR "/gemmtune"}) {
    paths.push_back(join_path(*beside == '\0' ? folder : join_path(folder, beside), file_name));
  }
  return paths;
}

std::string data_folder(const std::string& name) {
  const std::string folder = own_folder();
  if (folder.empty()) return {};
  // Of bin/ and lib/, of lib/<architecture>/, and of the Python package.
  for (const char* data :
       {"../" GEMMTUNE_DATADIR "/gemmtune", "../../" GEMMTUNE_DATADIR "/gemmtune", "../data"}) {
    std::error_code error;
    auto path = std::filesystem::path(join_path(join_path(folder, data), name)).lexically_normal();
    if (std::filesystem::is_directory(path, error)) return path.string();
  }
  return {};
}

std::string python_prefix() {
  // PREFIX/lib/python3.x/site-packages/gemmtune/lib, or bin.
  const std::filesystem::path packages = std::filesystem::path(own_folder()).parent_path().parent_path();
  const std::filesystem::path python = packages.parent_path();
  const bool is_package = packages.filename() == "site-packages" &&
                          python.filename().string().starts_with("python3.") &&
                          python.parent_path().filename() == "lib";
  return is_package ? python.parent_path().parent_path().string() : std::string();
}

std::vector<std::string> program_paths() {
  const std::string folder = own_folder();
  if (folder.empty()) return {};
  // GEMMTUNE_LIBDIR may have several parts (lib/x86_64-linux-gnu); the program is beside the first.
  constexpr std::string_view libraries = GEMMTUNE_LIBDIR;
  std::string up = "..";
  for (const char letter : libraries)
    if (letter == '/') up += "/..";
  std::vector<std::string> paths;
  for (const std::string& beside : {std::string("gemmtune"), std::string("../bin/gemmtune"),
                                    std::string("../gemmtune"), up + "/bin/gemmtune"}) {
    const std::string path = join_path(folder, beside);
    if (std::find(paths.begin(), paths.end(), path) == paths.end()) paths.push_back(path);
  }
  return paths;
}

}  // namespace gemmtune
