#include "cli/shared/family_names.h"

#include <fmt/format.h>

#include <algorithm>

#include "backends/traits.h"
#include "base/text.h"

namespace gemmtune::cli {
namespace {

/// One of AITER's words and the device's families that have it; those that are there are taken, and one must
/// be.
struct Alias {
  std::string_view word;
  std::vector<std::string_view> families;
};

/// In the order in which the families have them.
std::vector<Alias> aliases_of(const Device& device) {
  std::vector<Alias> aliases;
  for (const FamilyInfo* family : traits_of(device.info()).families) {
    if (family->aliases.empty()) continue;
    for (const std::string_view word : split(family->aliases, ',')) {
      auto alias = std::ranges::find_if(aliases, [&](const Alias& known) { return known.word == word; });
      if (alias == aliases.end()) alias = aliases.insert(aliases.end(), Alias{word, {}});
      alias->families.push_back(family->name);
    }
  }
  return aliases;
}

std::string known_names(const Device& device) {
  std::string text = "all";
  for (const KernelFamily* family : device.families()) text += fmt::format(", {}", family->name());
  for (const Alias& alias : aliases_of(device))
    text += fmt::format(", {} (= {})", alias.word, fmt::join(alias.families, ","));
  return text;
}

/// Why a family is not there: its library's reason where one is known.
Status missing_family(std::string_view name, const Device& device) {
  for (const Library& library : device.info().libraries) {
    if (to_lower(library.name) == name && !library.why.empty()) {
      return Status::not_found("--libtype: the family '{}' is not available on {}: {}", name,
                               device.info().name, library.why);
    }
  }
  if (name == "rocblas")
    return Status::not_found(
        "--libtype: gemmtune has no rocBLAS, which AITER's tuners have left out since November 2025; "
        "expected hipblaslt, the word for the vendor's library on {}",
        device.info().name);
  return Status::not_found("--libtype: unknown kernel family '{}' on {}; known: {}", name, device.info().name,
                           known_names(device));
}

}  // namespace

Result<std::vector<std::string>> resolve_families(std::string_view text, const Device& device) {
  const std::vector<Alias> aliases = aliases_of(device);
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const std::string_view part : split(text, ',')) {
    std::string word = to_lower(trim(part));
    if (word.empty()) continue;
    if (word == "all") return std::vector<std::string>();
    if (word == "both") word = "ck";  // and cktile, which names the same families
    const auto alias =
        std::ranges::find_if(aliases, [&](const Alias& candidate) { return candidate.word == word; });
    if (alias == aliases.end()) {
      if (device.find_family(word) == nullptr) return missing_family(word, device);
      add(word);
      continue;
    }
    bool found = false;
    for (const std::string_view family : alias->families) {
      if (device.find_family(family) == nullptr) continue;
      add(family);
      found = true;
    }
    if (!found) return missing_family(alias->families.front(), device);
  }
  return names;
}

}  // namespace gemmtune::cli
