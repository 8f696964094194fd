#include "cli/help/help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/help/topics.h"
#include "cli/shared/console.h"

namespace gemmtune::cli {
namespace {

constexpr std::size_t names_columns = 26;

std::string entry(std::string names, std::string_view text, std::size_t columns) {
  std::string line = "  " + names;
  if (text.empty()) return line + "\n";
  const std::size_t at = names_columns;
  if (width(line) + 2 > at) {
    line += "\n" + std::string(at, ' ');
  } else {
    line += std::string(at - width(line), ' ');
  }
  const std::string body = wrapped(text, at, columns);
  return line + body.substr(std::min(at, body.size())) + "\n";
}

/// "-o, --output, --tune-file FILE".
std::string all_names(const HelpOption& option) {
  std::string text;
  for (const std::string& name : option.names) text += (text.empty() ? "" : ", ") + name;
  if (text.empty()) return option.positional + (option.is_list ? " …" : "");
  if (!option.positional.empty()) text = option.positional + ", " + text;
  return option.value.empty() ? text : text + " " + option.value;
}

/// "-o, --output FILE": a short name, and `shown` or, where that is the short one, the first long one.
std::string main_names(const HelpOption& option, std::string_view shown) {
  std::string text;
  const auto is_short = [](const std::string& name) { return !name.starts_with("--"); };
  if (const auto found = std::ranges::find_if(option.names, is_short); found != option.names.end())
    text = *found;
  const std::string name = shown.starts_with("--") ? std::string(shown) : option.main_name();
  if (name != text) text += (text.empty() ? "" : ", ") + name;
  return option.value.empty() ? text : text + " " + option.value;
}

std::string described(const HelpOption& option) {
  std::string text = option.text;
  if (!option.default_text.empty() && text.find("(default") == std::string::npos)
    text += fmt::format(" [{}]", option.default_text);
  if (option.is_required) text += " (required)";
  return text;
}

std::string usage_line(const HelpCommand& command, std::size_t columns) {
  std::string usage = fmt::format("Usage: gemmtune {} [OPTIONS]", command.name);
  for (const HelpOption& option : command.options) {
    if (option.positional.empty()) continue;
    std::string name = upper(option.positional);
    if (option.is_list) name += "…";
    usage += option.is_required ? " " + name : " [" + name + "]";
  }
  return fmt::format("{}\n{}\n", wrapped(command.summary, 0, columns), usage);
}

/// Lines of a paragraph as one; lines that begin with a blank stay, and so do empty ones.
std::string paragraphs(std::string_view text) {
  std::string result;
  bool joins = false;
  bool is_first = true;
  for (const std::string_view line : split(text, '\n')) {
    const bool is_prose = !line.empty() && line[0] != ' ';
    if (!std::exchange(is_first, false)) result += joins && is_prose ? ' ' : '\n';
    result += line;
    joins = is_prose && !line.ends_with(':');
  }
  return result;
}

bool has_name(const HelpOption& option, std::string_view name) {
  return std::ranges::find(option.names, name) != option.names.end();
}

}  // namespace

std::string wrapped(std::string_view text, std::size_t indent, std::size_t columns) {
  const std::string blanks(indent, ' ');
  std::string result;
  bool is_first = true;
  for (const std::string_view line : split(text, '\n')) {
    if (!std::exchange(is_first, false)) result += "\n";
    // A line of its own that begins with blanks is laid out already.
    if (line.starts_with(" ") && width(line) + indent <= columns) {
      result += blanks + std::string(line);
      continue;
    }
    std::string current = blanks;
    bool is_empty = true;
    for (const std::string_view word : split(line, ' ')) {
      if (!is_empty && width(current) + 1 + width(word) > columns) {
        result += current + "\n";
        current = blanks;
        is_empty = true;
      }
      current += (is_empty ? "" : " ") + std::string(word);
      is_empty = false;
    }
    result += is_empty || trim(current).empty() ? std::string() : current;
  }
  return result;
}

std::string help_text(const HelpCommand& command, std::size_t columns) {
  std::string text = usage_line(command, columns);
  std::vector<std::string> groups;
  for (const HelpOption& option : command.options)
    if (std::ranges::find(groups, option.group) == groups.end()) groups.push_back(option.group);
  for (const std::string& group : groups) {
    if (group.empty()) continue;  // hidden
    const bool is_plain = group == "Options" || group == "OPTIONS";
    text += "\n" + wrapped(is_plain ? "Options:" : group + ":", 0, columns) + "\n";
    for (const HelpOption& option : command.options) {
      if (option.group == group) text += entry(all_names(option), described(option), columns);
    }
    if (is_plain) text += entry("-h, --help", "Print this help and exit", columns);
  }
  if (!command.footer.empty()) text += wrapped(paragraphs(command.footer), 0, columns) + "\n";
  return text;
}

std::string short_help_text(const HelpCommand& command, const ShortHelp& short_help, std::size_t columns) {
  std::string text = usage_line(command, columns);
  for (const ShortHelpGroup& group : short_help.groups) {
    text += fmt::format("\n{}:\n", group.heading);
    for (const ShortHelpOption& shown : group.options) {
      const auto option = std::ranges::find_if(
          command.options, [&](const HelpOption& each) { return has_name(each, shown.name); });
      if (option != command.options.end())
        text += entry(main_names(*option, shown.name), shown.text, columns);
    }
  }
  return text + std::string(short_help.footer);
}

std::string program_help_text(std::string_view description, std::span<const HelpCommand> commands,
                              std::string_view footer, std::size_t columns) {
  std::string text = wrapped(description, 0, columns) + "\nUsage: gemmtune COMMAND [OPTIONS]\n\nCommands:\n";
  for (const HelpCommand& command : commands) text += entry(command.name, command.summary, columns);
  text += entry("help [COMMAND]", "Help of a command; help verdicts, columns, variables: lists", columns);
  text += entry("completion SHELL", "Completions for bash, zsh or fish, on stdout", columns);
  text += entry("man", "The manual page (gemmtune man > gemmtune.1)", columns);
  text += entry("version", "The version (also --version)", columns);
  return text + wrapped(footer, 0, columns) + "\n";
}

std::string topic_text(std::string_view name, std::size_t columns) {
  // "verdict" and "ties" are what people type.
  const std::string_view wanted = name == "ties" ? "verdicts" : name;
  const std::vector<HelpTopic> topics = help_topics();
  const auto topic = std::ranges::find_if(topics, [&](const HelpTopic& each) {
    return wanted == each.name || wanted == each.name.substr(0, each.name.size() - 1);
  });
  if (topic == topics.end()) return {};
  std::string text = wrapped(topic->about, 0, columns) + "\n";
  for (const HelpTopicGroup& group : topic->groups) {
    text += fmt::format("\n{}:\n", group.heading);
    for (const HelpTopicEntry& each : group.entries) text += entry(each.name, each.text, columns);
  }
  return topic->footer.empty() ? text : text + "\n" + wrapped(topic->footer, 0, columns);
}

}  // namespace gemmtune::cli
