// Flags of `tune` that need parts which this version does not have: known by name, answered with what they
// need.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace gemmtune::cli {

/// One line about the first such flag among the normalised words; nullopt where there is none.
std::optional<std::string> unavailable_flag(std::span<const std::string> words);

}  // namespace gemmtune::cli
