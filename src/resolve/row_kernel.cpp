#include "resolve/row_kernel.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "backends/traits.h"
#include "base/text.h"

namespace gemmtune {
namespace {

struct ForeignLibrary {
  std::string_view libtype;
  std::string_view what;
};

/// AITER's libtypes whose kernels are its own.
constexpr std::array<ForeignLibrary, 8> foreign_libraries{{
    {"asm", "an assembly kernel of AITER"},
    {"ck", "a Composable Kernel of AITER"},
    {"cktile", "a CK Tile kernel of AITER"},
    {"triton", "a Triton kernel of AITER"},
    {"gluon", "a Gluon kernel of AITER"},
    {"flydsl", "a FlyDSL kernel of AITER"},
    {"opus", "an Opus kernel of AITER"},
    {"rocblas", "a rocBLAS solution, whose index only AITER's old tuner knew"},
}};

const FamilyInfo* family_of(const Device& device, std::string_view libtype) {
  for (const FamilyInfo* family : traits_of(device.info()).families) {
    const auto aliases = split(family->aliases, ',');
    if (family->name == libtype || std::find(aliases.begin(), aliases.end(), libtype) != aliases.end())
      return family;
  }
  return nullptr;
}

}  // namespace

std::string_view libtype_of(const TunedEntry& row) {
  if (!row.libtype.empty()) return row.libtype;
  if (const auto family = family_of_kernel_name(row.kernel_name))
    return std::string_view(row.kernel_name).substr(0, family->size());
  return row.kernel_name.starts_with("_ZN") ? "asm" : "ck";
}

std::string_view missing_library(const TunedEntry& row) {
  if (!is_foreign(row)) return {};
  const std::string_view libtype = libtype_of(row);
  const auto found = std::find_if(foreign_libraries.begin(), foreign_libraries.end(),
                                  [&](const ForeignLibrary& library) { return library.libtype == libtype; });
  return found == foreign_libraries.end() ? std::string_view() : found->what;
}

bool is_foreign(const TunedEntry& row) { return !family_of_kernel_name(row.kernel_name); }

Result<std::string> row_kernel_name(const Device& device, const TunedEntry& row, const Problem& problem) {
  if (!is_foreign(row) || !amd_architecture(device.info().gfx)) return row.kernel_name;
  const std::string_view libtype = libtype_of(row);
  if (const std::string_view what = missing_library(row); !what.empty())
    return Status::unsupported("libtype {}: {}, which gemmtune does not have", libtype, what);
  const FamilyInfo* info = family_of(device, libtype);
  if (info == nullptr) return row.kernel_name;
  if (info->name_of_row != nullptr) return info->name_of_row(libtype, row.solidx, row.kernel_name);
  const KernelFamily* family = device.find_family(info->name);
  if (family == nullptr) return device.missing_family(info->name);
  if (const Status accepted = family->accepts(problem); !accepted.ok())
    return Status(accepted.code(), fmt::format("{}: {}", info->name, accepted.message()));
  return Candidate{std::string(info->name), family->revision(), family->default_config(problem)}
      .kernel_name();
}

}  // namespace gemmtune
