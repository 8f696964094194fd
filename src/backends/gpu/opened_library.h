// A vendor's library opened at run time: its functions, or the reason why there are none.
#pragma once

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "base/shared_library.h"
#include "base/status.h"

namespace gemmtune::gpu {

/// `found` is the reason where the library or one of its functions is missing.
template <typename Functions>
struct Opened {
  Status found;
  Functions functions{};
  Library description;

  bool ok() const { return found.ok(); }
};

/// Finds symbols and keeps the name of the first that is missing.
class SymbolFinder {
 public:
  explicit SymbolFinder(const SharedLibrary& library) : library_(library) {}
  template <typename Function>
  SymbolFinder& operator()(Function*& function, const char* name) {
    if (!library_.find(name, function) && missing_.empty()) missing_ = name;
    return *this;
  }
  const std::string& missing() const { return missing_; }

 private:
  const SharedLibrary& library_;
  std::string missing_;
};

/// Opens the first of `paths` and lets `bind` find the functions. `advice`: how to get the library.
template <typename Functions>
Opened<Functions> open_library(const char* name, const std::vector<std::string>& paths,
                               std::string_view advice, void (*bind)(SymbolFinder&, Functions&)) {
  Opened<Functions> opened;
  opened.description.name = name;
  const auto refuse = [&](std::string why) {
    opened.description.why = fmt::format("{}; {}", why, advice);
    opened.found = Status::not_found("{}: {}", name, opened.description.why);
    return opened;
  };
  const auto library = SharedLibrary::open(paths);
  if (!library.ok()) return refuse(library.message());
  SymbolFinder find(*library);
  bind(find, opened.functions);
  if (!find.missing().empty()) return refuse(fmt::format("it has no {}: too old", find.missing()));
  const auto* any = *reinterpret_cast<void* const*>(&opened.functions);  // a table of functions
  opened.description.path = SharedLibrary::file_of(any);
  return opened;
}

/// Where a library of one of `names` may lie: `folder` if there is one, the loader's own places, `others` in this order.
inline std::vector<std::string> library_paths(const std::string& folder,
                                              const std::vector<std::string>& names,
                                              const std::vector<std::filesystem::path>& others) {
  std::vector<std::string> paths;
  const auto add = [&](const std::filesystem::path& where) {
    for (const std::string& name : names) paths.push_back((where / name).string());
  };
  if (!folder.empty()) add(folder);
  paths.insert(paths.end(), names.begin(), names.end());
  for (const std::filesystem::path& other : others) add(other);
  return paths;
}

/// "13.0" of NVRTC or hipRTC; empty if it does not say.
template <typename Functions>
std::string compiler_version(const Functions& functions) {
  int major = 0;
  int minor = 0;
  return functions.version(&major, &minor) == 0 ? fmt::format("{}.{}", major, minor) : std::string();
}

/// What `open_it` opened for each folder, for the life of the process.
template <typename Functions, Opened<Functions> (*open_it)(const std::string&)>
const Opened<Functions>& opened_once(const std::string& folder) {
  static std::mutex lock;
  static std::map<std::string, Opened<Functions>> opened;
  const std::lock_guard held(lock);
  const auto found = opened.find(folder);
  return found != opened.end() ? found->second : opened.emplace(folder, open_it(folder)).first->second;
}

}  // namespace gemmtune::gpu
