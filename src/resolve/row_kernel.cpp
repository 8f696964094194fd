#include "resolve/row_kernel.h"

#include <algorithm>
#include <array>

#include "backends/traits.h"
#include "base/text.h"
#include "candidates/space.h"

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
  if (libtype.empty()) return nullptr;  // a family without aliases has an empty one
  for (const FamilyInfo* family : traits_of(device.info()).families) {
    const auto aliases = split(family->aliases, ',');
    if (family->name == libtype || std::find(aliases.begin(), aliases.end(), libtype) != aliases.end())
      return family;
  }
  return nullptr;
}

/// The family if it is here and takes the problem.
Result<const KernelFamily*> accepting_family(const Device& device, std::string_view name,
                                             const Problem& problem) {
  const KernelFamily* family = device.find_family(name);
  if (family == nullptr) return device.missing_family(name);
  if (const Status accepted = family->accepts(problem); !accepted.ok())
    return Status(accepted.code(), fmt::format("{}: {}", name, accepted.message()));
  return family;
}

std::string name_of(const KernelFamily& family, Config config) {
  return Candidate{std::string(family.name()), family.revision(), std::move(config)}.kernel_name();
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
  const auto found = std::ranges::find_if(
      foreign_libraries, [&](const ForeignLibrary& library) { return library.libtype == libtype; });
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
  GEMMTUNE_TRY(const auto family, accepting_family(device, info->name, problem));
  return name_of(*family, family->default_config(problem));
}

Result<std::string> named_kernel_name(const Device& device, std::string_view text, const Problem& problem) {
  if (family_of_kernel_name(text)) return std::string(text);
  const std::size_t colon = text.find(':');
  const std::string_view word = text.substr(0, colon);
  const FamilyInfo* info = family_of(device, word);
  if (info == nullptr) {
    return Status::not_found(
        "kernel '{}', expected a kernelName, a family or family:index; families of {}: {}", text,
        device.info().backend, joined(traits_of(device.info()).families, ", ", &FamilyInfo::name));
  }
  std::optional<std::int64_t> index;
  if (colon != std::string_view::npos) {
    index = parse_integer(text.substr(colon + 1));
    if (!index || *index < 0)
      return Status::invalid("kernel '{}': index '{}', expected a number from 0", text,
                             text.substr(colon + 1));
    if (info->name_of_row != nullptr) return info->name_of_row(word, *index, {});
  }
  GEMMTUNE_TRY(const auto family, accepting_family(device, info->name, problem));
  if (!index) return name_of(*family, family->default_config(problem));
  auto configs = family->space(problem).enumerate(static_cast<std::size_t>(*index) + 1);
  if (static_cast<std::size_t>(*index) >= configs.size()) {
    return Status::not_found("kernel '{}': {} has {} configs for {}", text, info->name, configs.size(),
                             print(problem));
  }
  return name_of(*family, std::move(configs.back()));
}

}  // namespace gemmtune
