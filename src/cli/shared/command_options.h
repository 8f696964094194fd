// The options of one command. CLI11 is a library of templates that takes five seconds of every file that includes
// it: command_options.cpp and main.cpp do, the commands include this header.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gemmtune::cli {

struct ShortHelp;

/// One option of a command, to be refined: each function returns the option.
class CommandOption {
 public:
  explicit CommandOption(CLI::Option* option) : option_(option) {}

  CommandOption required();
  /// --help shows the value that the variable has now.
  CommandOption capture_default_str();
  /// The heading of --help below which the option stands.
  CommandOption group(const char* heading);
  /// What --help calls the value.
  CommandOption type_name(const char* name);

  /// The value is a finite number from `min` to `max`.
  CommandOption number_range(double min, double max);
  /// The value is an integer from `min` to `max`; --help names both.
  CommandOption integer_range(int min, int max);
  CommandOption positive();
  CommandOption not_negative();
  CommandOption not_empty();
  /// Of a list: one value each time that the option stands.
  CommandOption one_at_a_time();
  CommandOption one_of(std::vector<std::string> words);

  /// How often the command line has it; once it is parsed.
  std::size_t count() const;

 private:
  CLI::Option* option_;
};

/// Declares options on a command.
class CommandOptions {
 public:
  explicit CommandOptions(CLI::App& app) : app_(app) {}

  /// An option with a value, which goes to `value` (that lives until the command line is parsed). Defined for the
  /// types that command_options.cpp lists.
  template <typename Value>
  CommandOption add_option(const std::string& names, Value& value, const std::string& help);
  /// An option with a value or bare; `value` is then the empty text.
  CommandOption add_bare_option(const std::string& names, std::optional<std::string>& value,
                                const std::string& help);
  /// Without a value; names with a leading '!' set `value` to false.
  CommandOption add_flag(const std::string& names, bool& value, const std::string& help);
  /// The text below the options in --help.
  void footer(const std::string& text);
  /// What --help shows of a command with many options; it lives until the program ends.
  void short_help(const ShortHelp& help) { short_help_ = &help; }
  /// Null: --help shows all options.
  const ShortHelp* short_help() const { return short_help_; }

 private:
  CLI::App& app_;
  const ShortHelp* short_help_ = nullptr;
};

}  // namespace gemmtune::cli
