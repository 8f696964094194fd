#include "cli/tune/unavailable_flags.h"

#include <fmt/format.h>

#include <array>

#include "cli/shared/argv_words.h"

namespace gemmtune::cli {
namespace {

struct UnavailableFlag {
  std::string_view name;
  std::string_view needs;
};

constexpr std::array<UnavailableFlag, 1> flags = {{
    {"--launch", "a GPU (graph or eager launches); a CPU's calls are timed as they are"},
}};

}  // namespace

std::optional<std::string> unavailable_flag(std::span<const std::string> words) {
  for (const LongOption& option : long_options(words)) {
    for (const UnavailableFlag& flag : flags) {
      if (option.name != flag.name) continue;
      return fmt::format("{} needs {}", flag.name, flag.needs);
    }
  }
  return std::nullopt;
}

}  // namespace gemmtune::cli
