// What a word that no command and no option has was probably meant to be.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace gemmtune::cli {

/// "; did you mean tune?", for a word in the place of a command; empty where none is near.
std::string command_suggestion(std::string_view word);
/// "; did you mean --budget?", for a long option of a command that has the options `known` ("--budget", "-o"): a word of other tools
/// for one of them, else the nearest name; empty where none is near.
std::string option_suggestion(std::string_view option, std::span<const std::string_view> known);

}  // namespace gemmtune::cli
