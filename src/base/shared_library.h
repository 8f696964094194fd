// Shared libraries opened at run time: a missing one is a missing kernel family, with the reason.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"

namespace gemmtune {

/// An open library. Copies share it; it is never closed, because vendor libraries leave threads behind that
/// run their code.
class SharedLibrary {
 public:
  /// The first of `paths` that opens (a name without '/' is searched as the system does). `not_found` with
  /// the loader's words for the last one.
  static Result<SharedLibrary> open(const std::vector<std::string>& paths);

  /// nullptr where the library has no such symbol.
  void* symbol(const char* name) const;
  template <typename Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(symbol(name));
    return function != nullptr;
  }
  /// The file that holds the code at `address`, from the root on; empty where that is not known.
  static std::string file_of(const void* address);

 private:
  explicit SharedLibrary(void* handle) : handle_(handle) {}
  void* handle_;
};

/// Where a loadable module of ours may lie: `module_folder` alone where it is not empty; else around the
/// program or library that this code is in (beside it, as in a build folder and as installed).
std::vector<std::string> module_paths(const std::string& file_name, const std::string& module_folder);

}  // namespace gemmtune
