// The options of a command as data: what help, the man page and the completions of shells are made from.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace CLI {
class App;
}

namespace gemmtune::cli {

struct HelpOption {
  std::vector<std::string> names;  // with dashes: "-o", "--output", in the order of the declaration
  std::string positional;          // the name of a positional argument; empty: none
  std::string value;               // "FILE"; empty: takes none
  std::string text;
  std::string default_text;  // of its value; empty: none is shown
  std::string group;
  bool is_required = false;
  bool is_list = false;  // takes several values

  /// The first long name, else the first one; "FILE" of an argument without dashes.
  std::string main_name() const;
};

struct HelpCommand {
  std::string name;
  std::string summary;
  std::string footer;
  std::vector<HelpOption> options;
};

/// Without --help and --help-all, which every command has.
HelpCommand help_model(const CLI::App& command);
/// Of all commands.
std::vector<HelpCommand> help_models(const CLI::App& program);

/// An option of a short help: its text there.
struct ShortHelpOption {
  std::string_view name;  // one of its names, with dashes; "-m" …
  std::string_view text;
};
struct ShortHelpGroup {
  std::string_view heading;
  std::span<const ShortHelpOption> options;
};
/// What --help of a command with many options shows; --help-all shows all of them.
struct ShortHelp {
  std::span<const ShortHelpGroup> groups;
  std::string_view footer;
};

}  // namespace gemmtune::cli
