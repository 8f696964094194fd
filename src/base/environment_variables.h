// What each environment variable means: of the library, the program, the preloaded library, and the Python packages. Help, the
// manual page and docs/variables.md are made from it.
#pragma once

#include <span>
#include <string_view>

namespace gemmtune {

struct EnvironmentVariable {
  std::string_view name;
  std::string_view other_names;  // AITER's and older ones, comma list; gemmtune's name wins
  std::string_view meaning;
};

/// All but those with a list of files of each operation (config_variables of Environment). By name of the part that reads them.
std::span<const EnvironmentVariable> environment_variables();

}  // namespace gemmtune
