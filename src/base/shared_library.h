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
  /// The first of `paths` that opens (a name without '/' is searched as the system does, a relative path is never
  /// opened). `not_found` with the loader's words: for the last one that is there, else for all names.
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

/// The folder of the program or library that this code is in; empty where that is not known.
std::string own_folder();

/// Where a loadable module of ours may lie: `module_folder` alone where it is not empty; else around the
/// program or library that this code is in (beside it, as in a build folder and as installed).
std::vector<std::string> module_paths(const std::string& file_name, const std::string& module_folder);

/// The folder `name` of our data (model_configs), found from the program or library that this code is in: in share/gemmtune
/// of an installed or a build tree, in data/ of the Python package. Empty if there is none.
std::string data_folder(const std::string& name);

/// The environment of the Python whose package this code is in: PREFIX of PREFIX/lib/python3.x/site-packages/gemmtune.
/// Empty elsewhere.
std::string python_prefix();

/// Where the gemmtune program may lie, the likeliest first: around the program or library that this code is
/// in, as in a build folder, as installed, and as in the Python package.
std::vector<std::string> program_paths();

}  // namespace gemmtune
