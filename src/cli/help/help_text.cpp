#include "cli/help/help_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "base/text.h"
#include "cli/shared/console.h"

namespace gemmtune::cli {
namespace {

constexpr std::size_t names_columns = 26;

/// Words in the place of a verdict, in the order of their number.
constexpr std::array<std::pair<std::string_view, std::string_view>, 9> verdict_meanings{{
    {"win",
     "The kernel is faster than the default: a paired test on fresh rounds passed, with an error of at most "
     "1 %."},
    {"default", "Nothing was faster: the row keeps the default kernel, and its speed-up is 1."},
    {"undecided",
     "The rounds ended before a gain was proven. The row keeps the default kernel, unless its weight layout "
     "needs another one."},
    {"only", "There is nothing to compare with: no library kernel takes the problem."},
    {"default_wrong", "The default kernel's result is wrong, or it crashes; the row has no speed-up."},
    {"default_untimed",
     "The default kernel could not be timed; the row has no speed-up. Tune it again (--all)."},
    {"energy", "Chosen by --objective energy or edp, and not proven faster."},
    {"slower", "Of bench: the first side is slower than the second by more than the noise."},
    {"same kernel", "Of bench: both sides run one kernel."},
}};

constexpr std::string_view verdicts_head =
    "The verdict of a row (columns of a tuned file; tune, lookup, bench and report use the same words):\n\n";
constexpr std::string_view verdicts_tail =
    "\nspeed-up    The default's time over the kernel's: the median of the ratios, round by round.\n"
    "95 %        The interval that holds the true median with 95 % confidence.\n"
    "ties        How many other kernels cannot be told apart from this one (1 %, or the noise floor). They "
    "take nothing "
    "from a win; a fixed order decides among them.\n"
    "default     What a program runs without tuning: the vendor's library with its own choice.\n"
    "noise floor How far one kernel differs from itself, timed twice a round.\n"
    "busy        Many rounds were disturbed by other programs. Repeat the row on a quiet machine.\n\n"
    "The tests behind these words: docs/statistics.md. One row measured anew:\n"
    "  gemmtune tune --problem 'a16w16 m=16 n=2048 k=8192 …' --all -o tuned.csv\n";

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
    std::string name = option.positional;
    for (char& letter : name)
      if (letter >= 'a' && letter <= 'z') letter = static_cast<char>(letter - 'a' + 'A');
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
  text += entry("help [COMMAND]", "Help of a command; help verdicts: the words of results", columns);
  text += entry("completion SHELL", "Completions for bash, zsh or fish, on stdout", columns);
  text += entry("man", "The manual page (gemmtune man > gemmtune.1)", columns);
  text += entry("version", "The version (also --version)", columns);
  return text + wrapped(footer, 0, columns) + "\n";
}

std::string topic_text(std::string_view topic, std::size_t columns) {
  if (topic != "verdicts" && topic != "verdict" && topic != "ties") return {};
  std::string text = wrapped(verdicts_head, 0, columns);
  for (const auto& [word, meaning] : verdict_meanings) {
    const std::string body = wrapped(meaning, 18, columns);
    text += fmt::format("  {:<16}", word) + body.substr(std::min<std::size_t>(18, body.size())) + "\n";
  }
  for (const std::string_view line : split(verdicts_tail, '\n')) {
    const bool is_entry = line.size() > 12 && line[0] != ' ' && line[11] == ' ' && line[12] != ' ';
    const std::string body = wrapped(line, is_entry ? 12 : 0, columns);
    text += (is_entry ? body.substr(12) : body) + "\n";
  }
  return text;
}

}  // namespace gemmtune::cli
