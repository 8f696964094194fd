// One kernel family of the cpu backend: its name, its place in lists, and how it is made. Each family defines
// `const FamilyEntry& NAME_entry()` in a file NAME_entry.cpp of its folder; the build lists them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "backends/backend.h"
#include "backends/cpu/families/all_families.h"
#include "backends/family_info.h"

namespace gemmtune::cpu {

struct MadeFamily {
  std::unique_ptr<KernelFamily> family = nullptr;
  // Of a vendor's library:
  std::string version = {};
  int year = 0;
  std::string path = {};
  std::string passed_over = {};
  const OnednnServices* onednn = nullptr;
};

struct FamilyEntry {
  FamilyInfo info;
  std::string_view library = {};  // a vendor's, as Library::name; empty for families of ours
  /// Never fails for a family of ours. It runs its kernels on the stream's executor (bound_family.h).
  Result<MadeFamily> (*make)(const FamilyRequest& request) = nullptr;
};

/// FamilyEntry::make of a family of ours: `make` takes the instruction set and the number of threads.
template <std::unique_ptr<KernelFamily> (*make)(Isa level, int threads)>
Result<MadeFamily> own_family(const FamilyRequest& request) {
  return MadeFamily{make(request.isa, static_cast<int>(request.cores.size()))};
}

/// In the order of their ranks; the build writes the list (families.cmake).
std::span<const FamilyEntry* const> family_entries();

}  // namespace gemmtune::cpu
