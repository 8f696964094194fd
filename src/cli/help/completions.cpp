#include "cli/help/completions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/help/topics.h"
#include "cli/shared/console.h"

namespace gemmtune::cli {
namespace {

/// Up to the first sentence's end, without what shells would read: one line.
std::string short_text(std::string_view text) {
  constexpr std::size_t longest = 70;
  std::string line(text.substr(0, text.find_first_of("\n;")));
  if (const std::size_t end = line.find(". "); end != std::string::npos) line.resize(end);
  for (char& letter : line)
    if (std::string_view("'\"`$\\[]:{}").find(letter) != std::string_view::npos) letter = ' ';
  if (line.size() <= longest) return line;
  std::size_t end = line.rfind(' ', longest);
  if (end == std::string::npos || end == 0) end = longest;
  return line.substr(0, end);
}

std::vector<std::string> option_names(const HelpCommand& command) {
  std::vector<std::string> names = {"--help"};
  for (const HelpOption& option : command.options)
    for (const std::string& name : option.names)
      if (name.starts_with("-")) names.push_back(name);
  std::ranges::sort(names);
  return names;
}

/// All commands with what they do: those of `commands`, and those that main() answers by itself.
std::vector<std::pair<std::string, std::string>> command_words(std::span<const HelpCommand> commands) {
  std::vector<std::pair<std::string, std::string>> words;
  for (const HelpCommand& command : commands) words.emplace_back(command.name, short_text(command.summary));
  words.emplace_back("help", "Help of a command");
  words.emplace_back("completion", "Completions for a shell");
  words.emplace_back("man", "The manual page");
  words.emplace_back("version", "The version");
  return words;
}

/// What `help` takes beside commands.
std::vector<std::string_view> topic_names() {
  std::vector<std::string_view> names;
  for (const HelpTopic& topic : help_topics()) names.push_back(topic.name);
  return names;
}

std::string bash_script(std::span<const HelpCommand> commands) {
  std::string names;
  for (const auto& [name, about] : command_words(commands)) names += name + " ";
  std::string text =
      "# bash completion of gemmtune; made by `gemmtune completion bash`.\n"
      "_gemmtune() {\n"
      "  local current=\"${COMP_WORDS[COMP_CWORD]}\" options=\"\"\n"
      "  COMPREPLY=()\n";
  text += fmt::format(
      "  if [ \"$COMP_CWORD\" -eq 1 ] || {{ [ \"$COMP_CWORD\" -eq 2 ] && [ \"${{COMP_WORDS[1]}}\" = help ]; "
      "}}; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"{}{} --help --version\" -- \"$current\")\n"
      "    return\n"
      "  fi\n"
      "  case \"${{COMP_WORDS[1]}}\" in\n",
      names, fmt::join(topic_names(), " "));
  for (const HelpCommand& command : commands)
    text += fmt::format("    {}) options=\"{}\" ;;\n", command.name, fmt::join(option_names(command), " "));
  text +=
      "    completion) options=\"bash zsh fish\" ;;\n"
      "  esac\n"
      "  case \"$current\" in\n"
      "    -*) mapfile -t COMPREPLY < <(compgen -W \"$options\" -- \"$current\") ;;\n"
      "    *) [ \"${COMP_WORDS[1]}\" = completion ] && mapfile -t COMPREPLY < <(compgen -W \"$options\" -- "
      "\"$current\") ;;\n"
      "  esac\n"
      "}\n"
      "complete -o default -o bashdefault -F _gemmtune gemmtune\n";
  return text;
}

std::string zsh_script(std::span<const HelpCommand> commands) {
  std::string text =
      "#compdef gemmtune\n"
      "# zsh completion of gemmtune; made by `gemmtune completion zsh`.\n"
      "_gemmtune() {\n"
      "  local -a commands\n"
      "  commands=(\n";
  for (const auto& [name, about] : command_words(commands)) text += fmt::format("    '{}:{}'\n", name, about);
  text +=
      "  )\n"
      "  if (( CURRENT == 2 )); then\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  case \"$words[2]\" in\n"
      "    help)\n      _describe command commands\n";
  text += fmt::format("      compadd {}\n    ;;\n", fmt::join(topic_names(), " "));
  text += "    completion) _values shell bash zsh fish ;;\n";
  for (const HelpCommand& command : commands) {
    text += fmt::format("    {})\n      _arguments -S \\\n", command.name);
    for (const HelpOption& option : command.options) {
      for (const std::string& name : option.names) {
        const std::string value =
            option.value.empty() ? "" : fmt::format(":{}:_files", short_text(option.value));
        text += fmt::format("        '{}[{}]{}' \\\n", name, short_text(option.text), value);
      }
    }
    text += "        '--help[Print this help and exit]' \\\n        '*:file:_files'\n      ;;\n";
  }
  return text + "  esac\n}\n_gemmtune \"$@\"\n";
}

std::string fish_script(std::span<const HelpCommand> commands) {
  std::string text =
      "# fish completion of gemmtune; made by `gemmtune completion fish`.\n"
      "complete -c gemmtune -n '__fish_seen_subcommand_from completion' -f -a 'bash zsh fish'\n";
  text += fmt::format("complete -c gemmtune -n '__fish_seen_subcommand_from help' -f -a '{}'\n",
                      fmt::join(topic_names(), " "));
  for (const auto& [name, about] : command_words(commands))
    text += fmt::format("complete -c gemmtune -n __fish_use_subcommand -f -a {} -d '{}'\n", name, about);
  for (const HelpCommand& command : commands) {
    for (const HelpOption& option : command.options) {
      for (const std::string& name : option.names) {
        const bool is_long = name.starts_with("--");
        // -o2 and its kind are words of their own with one dash.
        const std::string_view kind = is_long ? "-l" : name.size() == 2 ? "-s" : "-o";
        text += fmt::format("complete -c gemmtune -n '__fish_seen_subcommand_from {}' {} {}{} -d '{}'\n",
                            command.name, kind, name.substr(is_long ? 2 : 1),
                            option.value.empty() ? "" : " -r", short_text(option.text));
      }
    }
  }
  return text;
}

/// For man(7): backslashes, dashes that are minus signs, and what begins a request.
std::string escaped(std::string_view text) {
  std::string result;
  bool at_begin = true;
  for (const char letter : text) {
    if (at_begin && (letter == '.' || letter == '\'')) result += "\\&";
    if (letter == '\\') {
      result += "\\e";
    } else if (letter == '-') {
      result += "\\-";
    } else {
      result += letter;
    }
    at_begin = letter == '\n';
  }
  return result;
}

/// The sections of the manual page behind those of the commands.
std::string topic_sections() {
  std::string text;
  for (const HelpTopic& topic : help_topics()) {
    text += fmt::format(".SH {}\n{}\n", upper(topic.name), escaped(topic.about));
    for (const HelpTopicGroup& group : topic.groups) {
      text += fmt::format(".SS {}\n", escaped(group.heading));
      for (const HelpTopicEntry& entry : group.entries)
        text += fmt::format(".TP\n.B {}\n{}\n", escaped(entry.name), escaped(entry.text));
    }
  }
  return text;
}

}  // namespace

Result<std::string> completion_script(std::string_view shell, std::span<const HelpCommand> commands) {
  if (shell == "bash") return bash_script(commands);
  if (shell == "zsh") return zsh_script(commands);
  if (shell == "fish") return fish_script(commands);
  return Status::invalid("completion {}: expected bash, zsh or fish", shell);
}

std::string manual_page(std::string_view description, std::span<const HelpCommand> commands) {
  std::string text =
      fmt::format(".TH GEMMTUNE 1 \"\" \"gemmtune {}\" \"User Commands\"\n.SH NAME\ngemmtune \\- {}\n",
                  GEMMTUNE_VERSION, escaped("find the fastest verified kernel for every GEMM of a model"));
  text += ".SH SYNOPSIS\n.B gemmtune\n.I COMMAND\n[OPTIONS]\n.SH DESCRIPTION\n" + escaped(description) + "\n";
  text +=
      ".SH EXIT STATUS\n0 done; 1 finished with findings (failed shapes, wrong rows); 2 usage or input; 130 "
      "interrupted.\n";
  for (const HelpCommand& command : commands) {
    text += fmt::format(".SH \"gemmtune {}\"\n{}\n", command.name, escaped(command.summary));
    for (const HelpOption& option : command.options) {
      if (option.group.empty()) continue;
      std::string names;
      for (const std::string& name : option.names) names += (names.empty() ? "" : ", ") + name;
      if (names.empty()) names = option.positional;
      if (!option.value.empty() && !option.names.empty()) names += " " + option.value;
      std::string body = option.text;
      if (!option.default_text.empty()) body += fmt::format(" [{}]", option.default_text);
      text += fmt::format(".TP\n.B {}\n{}\n", escaped(names), escaped(body));
    }
    if (!command.footer.empty())
      text += ".PP\n.nf\n" + escaped(trim(std::string_view(command.footer))) + "\n.fi\n";
  }
  return text + topic_sections();
}

}  // namespace gemmtune::cli
