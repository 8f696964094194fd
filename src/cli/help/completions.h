// What shells and `man` are given, made from the options of all commands.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "base/status.h"
#include "cli/help/help_model.h"

namespace gemmtune::cli {

/// A completion script for "bash", "zsh" or "fish": commands, options, and files for the rest. An error names the shells.
Result<std::string> completion_script(std::string_view shell, std::span<const HelpCommand> commands);

/// The manual page in man(7) macros.
std::string manual_page(std::string_view description, std::span<const HelpCommand> commands);

}  // namespace gemmtune::cli
