// Help for people: wrapped to a number of columns.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "cli/help/help_model.h"

namespace gemmtune::cli {

/// Lines of at most `columns` where words allow it; further lines begin with `indent` blanks. Line breaks of the text stay.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns);

/// Every option of the command, by its groups, with all spellings.
std::string help_text(const HelpCommand& command, std::size_t columns);
/// The options that `short_help` names. Requires that the command has each of them.
std::string short_help_text(const HelpCommand& command, const ShortHelp& short_help, std::size_t columns);
/// "gemmtune --help": the commands.
std::string program_help_text(std::string_view description, std::span<const HelpCommand> commands,
                              std::string_view footer, std::size_t columns);

/// `gemmtune help TOPIC` of what is no command: "verdicts". Empty where there is no such topic.
std::string topic_text(std::string_view topic, std::size_t columns);

}  // namespace gemmtune::cli
