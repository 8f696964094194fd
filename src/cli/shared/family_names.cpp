#include "cli/shared/family_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "base/text.h"

namespace gemmtune::cli {
namespace {

struct Alias {
  std::string_view backend;
  std::string_view word;
  std::string_view families;  // comma list; those that are there are taken, and one must be
};

constexpr std::string_view own = "tiled,skinny,quantized,streaming,batched,moe";

constexpr std::array aliases = {
    Alias{"cpu", "hipblaslt", "onednn"},
    Alias{"cpu", "hipblast", "onednn"},
    Alias{"cpu", "triton", own},
    Alias{"cpu", "ck", own},
    Alias{"cpu", "cktile", own},
    Alias{"cpu", "asm", own},
    // The baseline is the vendor library's own choice; both libraries are needed to cover every type.
    Alias{"cpu", "torch", "onednn,openblas"},
};

std::string known_names(const Device& device) {
  std::string text = "all";
  for (const KernelFamily* family : device.families()) text += fmt::format(", {}", family->name());
  for (const Alias& alias : aliases) {
    if (alias.backend == device.info().backend)
      text += fmt::format(", {} (= {})", alias.word, alias.families);
  }
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
  return Status::not_found("--libtype: unknown kernel family '{}' on {}; known: {}", name, device.info().name,
                           known_names(device));
}

}  // namespace

Result<std::vector<std::string>> resolve_families(std::string_view text, const Device& device) {
  std::vector<std::string> names;
  const auto add = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const std::string_view part : split(text, ',')) {
    const std::string word = to_lower(trim(part));
    if (word.empty()) continue;
    if (word == "all") return std::vector<std::string>();
    const auto alias = std::find_if(aliases.begin(), aliases.end(), [&](const Alias& candidate) {
      return candidate.word == word && candidate.backend == device.info().backend;
    });
    if (alias == aliases.end()) {
      if (device.find_family(word) == nullptr) return missing_family(word, device);
      add(word);
      continue;
    }
    bool found = false;
    for (const std::string_view family : split(alias->families, ',')) {
      if (device.find_family(family) == nullptr) continue;
      add(family);
      found = true;
    }
    if (!found) return missing_family(split(alias->families, ',').front(), device);
  }
  return names;
}

}  // namespace gemmtune::cli
