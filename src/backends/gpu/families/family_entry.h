// One kernel family of a GPU's backend: its name, its place in lists, and how it is made for a device. Each
// family defines `const FamilyEntry& NAME_entry()` in the file NAME.cpp of its folder NAME; the build lists them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "backends/family_info.h"
#include "backends/gpu/runtime.h"

namespace gemmtune::gpu {

/// What a family is made for. All of it outlives the family and its kernels, but for library_folder.
struct FamilyContext {
  Runtime& runtime;
  Driver& driver;  // of the backend that lists the family
  const std::string& library_folder;
};

struct FamilyEntry {
  FamilyInfo info;
  bool compiled = true;  // at run time: not made where the runtime has no compiler
  /// nullptr where the device cannot run it or its library is missing.
  std::unique_ptr<KernelFamily> (*make)(const FamilyContext& context) = nullptr;
};

/// What DeviceTraits::families holds of them.
inline std::vector<const FamilyInfo*> family_infos(std::span<const FamilyEntry* const> entries) {
  std::vector<const FamilyInfo*> infos;
  for (const FamilyEntry* entry : entries) infos.push_back(&entry->info);
  return infos;
}

}  // namespace gemmtune::gpu
