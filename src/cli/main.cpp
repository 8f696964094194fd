// gemmtune COMMAND [options]
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include "base/interrupt.h"
#include "base/text.h"
#include "cli/command.h"
#include "cli/help/completions.h"
#include "cli/help/help_text.h"
#include "cli/shared/argv_words.h"
#include "cli/shared/command_options.h"
#include "cli/shared/console.h"
#include "evaluate/external/external_device.h"
#include "evaluate/worker/worker_main.h"

namespace gemmtune::cli {
namespace {

/// A word of other tools, and what it is here.
struct Synonym {
  std::string_view word;
  std::string_view here;
};

constexpr Synonym command_words[] = {
    {"autotune", "tune"},  {"benchmark", "bench"}, {"gpu", "devices"},
    {"info", "devices"},   {"list", "devices"},    {"profile", "bench"},
    {"validate", "check"}, {"verify", "check"},    {"vllm", "tune, and docs/vllm.md for its plug-in"},
};

/// The first word of `here` is an option of the command.
constexpr Synonym option_words[] = {
    {"--cpu", "--backend cpu"},  {"--cuda", "--backend cuda"},   {"--data-type", "--indtype"},
    {"--dtype", "--indtype"},    {"--gpu", "--device cuda:0"},   {"--gpus", "--device cuda:0,cuda:1"},
    {"--hip", "--backend hip"},  {"--nvidia", "--backend cuda"}, {"--output-file", "--output"},
    {"--rocm", "--backend hip"}, {"--seconds", "--budget"},      {"--time", "--budget"},
    {"--type", "--indtype"},     {"--vllm", "--model_dir"},
};

std::string_view meant(std::span<const Synonym> synonyms, std::string_view word) {
  const auto found = std::ranges::find(synonyms, word, &Synonym::word);
  return found == synonyms.end() ? std::string_view() : found->here;
}

std::string question(std::string_view name) {
  return name.empty() ? std::string() : fmt::format("; did you mean {}?", name);
}

/// "; did you mean tune?", for a word in the place of a command; empty where none is near.
std::string command_suggestion(std::string_view word) {
  if (const std::string_view here = meant(command_words, to_lower(word)); !here.empty())
    return question(here);
  std::vector<std::string_view> known;
  for (const Command& command : all_commands()) known.push_back(command.name);
  return question(nearest_word(word, known));
}

/// "; did you mean --budget?", for a long option of a command that has the options `known` ("--budget", "-o"): a word of other tools
/// for one of them, else the nearest name; empty where none is near.
std::string option_suggestion(std::string_view option, std::span<const std::string_view> known) {
  const std::string_view here = meant(option_words, to_lower(option));
  const std::string_view target = here.substr(0, here.find(' '));
  const auto is_target = [&](std::string_view name) {
    return std::ranges::equal(
        name, target, {}, [](char c) { return c == '_' ? '-' : c; },
        [](char c) { return c == '_' ? '-' : c; });
  };
  if (!here.empty() && std::ranges::any_of(known, is_target)) return question(here);
  // The dashes are no letters that tell names apart.
  std::vector<std::string_view> names;
  for (const std::string_view name : known)
    if (name.starts_with("--")) names.push_back(name.substr(2));
  const std::string_view nearest =
      nearest_word(option.substr(std::min(option.find_first_not_of('-'), option.size())), names);
  return question(nearest.empty() ? std::string() : fmt::format("--{}", nearest));
}

constexpr std::string_view description =
    "Finds the fastest verified kernel for every GEMM of a model on this machine, and says which one runs.";

constexpr std::string_view footer = R"(
In option names '-' and '_' are equal. Exit codes: 0 done, 1 finished with findings (failed shapes, wrong rows), 2 usage or input. Each command has its own help: gemmtune help COMMAND, or gemmtune COMMAND --help

--parent-pipe FD before the command is for programs that start this one: it ends, as by SIGTERM, when the other end of that pipe is closed or the parent ends.

Examples:
  gemmtune tune shapes/llama-3.2-1b.csv -o tuned.csv --budget 110
  gemmtune lookup tuned.csv -m 3 -n 2048 -k 2048
  gemmtune report tuned.csv)";

std::size_t help_columns() {
  constexpr std::size_t piped = 100;
  return stdout_is_terminal() ? stdout_columns() : piped;
}

/// Of each command: null where --help shows all options.
using ShortHelps = std::map<const CLI::App*, const ShortHelp*>;

int print_help(const CLI::App& app, const ShortHelps& short_helps, bool all) {
  const auto subs = app.get_subcommands();
  if (subs.empty()) {
    print_text(program_help_text(description, help_models(app), footer, help_columns()));
    return exit_done;
  }
  const HelpCommand command = help_model(*subs.front());
  const ShortHelp* const short_help = short_helps.at(subs.front());
  print_text(short_help == nullptr || all ? help_text(command, help_columns())
                                          : short_help_text(command, *short_help, help_columns()));
  return exit_done;
}

/// `completion SHELL`, `man`, `help TOPIC`: what is made from the options of all commands. nullopt: the words are none of these.
std::optional<int> print_generated(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty()) return std::nullopt;
  if (words[0] == "completion") {
    const auto script = completion_script(words.size() == 2 ? words[1] : std::string(), help_models(app));
    if (!script.ok()) return usage_error("", script.message());
    print_document(*script);
    return exit_done;
  }
  if (words == std::vector<std::string>{"man"}) {
    print_document(manual_page(description, help_models(app)));
    return exit_done;
  }
  if (words[0] != "help" || words.size() != 2) return std::nullopt;
  const std::string text = topic_text(words[1], help_columns());
  if (text.empty()) return std::nullopt;
  print_text(text);
  return exit_done;
}

/// The command that the words begin with, or an empty text.
std::string command_of(const std::vector<std::string>& words) {
  for (const Command& command : all_commands()) {
    if (!words.empty() && words[0] == command.name) return words[0];
  }
  return {};
}

/// Takes --parent-pipe FD from the front of the words.
Status take_parent_pipe(std::vector<std::string>& words) {
  if (words.empty() || words[0] != "--parent-pipe") return {};
  const auto pipe = words.size() < 2 ? std::nullopt : parse_integer(words[1]);
  if (!pipe || *pipe < 0 || *pipe > std::numeric_limits<int>::max())
    return Status::invalid("--parent-pipe {}: expected a descriptor", words.size() < 2 ? "" : words[1]);
  words.erase(words.begin(), words.begin() + 2);
  const Status status = end_with_parent(static_cast<int>(*pipe));
  return status.ok() ? status : Status::invalid("--parent-pipe: {}", status.message());
}

/// Of words that the command does not take: the first option among them, else the first word.
std::string unknown_word(const CLI::App& app) {
  const auto subs = app.get_subcommands();
  const CLI::App& command = subs.empty() ? app : *subs.front();
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  const std::vector<std::string> rest = app.remaining(true);
  const auto option =
      std::ranges::find_if(rest, [](const std::string& word) { return word.starts_with("-"); });
  if (option == rest.end()) return fmt::format("unexpected word '{}'", printable_word(rest.front()));
  const std::string name = option->substr(0, option->find('='));
  return fmt::format("unknown option {}{}", printable_word(name),
                     option_suggestion(name, std::vector<std::string_view>(names.begin(), names.end())));
}

/// One line and exit code 2; help and version are no errors.
int parse_error(const CLI::App& app, const CLI::ParseError& error, const std::string& command,
                const ShortHelps& short_helps) {
  if (dynamic_cast<const CLI::CallForHelp*>(&error) != nullptr) return print_help(app, short_helps, false);
  if (dynamic_cast<const CLI::CallForAllHelp*>(&error) != nullptr) return print_help(app, short_helps, true);
  if (error.get_exit_code() == static_cast<int>(CLI::ExitCodes::Success)) return app.exit(error);
  const bool is_unknown =
      dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr && !app.remaining(true).empty();
  std::string text = is_unknown ? unknown_word(app) : error.what();
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at))
    text.replace(at, 1, " ");
  const std::string name = command.empty() ? "gemmtune" : "gemmtune " + command;
  return usage_error(command, fmt::format("{} (see {} --help)", text, name));
}

/// The hidden command: the worker process of `tune` and of online tuning, not for people. Takes no options.
int run_worker_command() {
  if (!has_worker_descriptors()) {
    std::fputs("gemmtune worker: is started by gemmtune tune and by online tuning; it has no use by itself\n",
               stderr);
    return exit_usage;
  }
  return run_worker([](const std::string& backend, const DeviceRequest& request) {
    return open_device_of(backend, request);
  });
}

int run(int argc, char** argv) {
  CLI::App app(std::string(description), "gemmtune");
  app.set_version_flag("--version", "gemmtune " GEMMTUNE_VERSION);
  app.require_subcommand(1);
  app.set_help_flag("-h,--help", "Print this help and exit");
  std::map<const CLI::App*, std::function<Result<int>()>> actions;
  ShortHelps short_helps;
  for (const Command& command : all_commands()) {
    CLI::App* sub = app.add_subcommand(std::string(command.name), std::string(command.summary));
    sub->set_help_flag("-h,--help", "Print this help and exit");
    sub->set_help_all_flag("--help-all", "Print the help of all options and exit");
    CommandOptions options(*sub);
    actions[sub] = command.declare(options);
    short_helps[sub] = options.short_help();
  }
  std::vector<std::string> raw(argv + 1, argv + argc);
  if (const Status status = take_parent_pipe(raw); !status.ok()) {
    print_note(fmt::format("gemmtune: {}", status.message()));
    return exit_usage;
  }
  if (raw == std::vector<std::string>{"worker"}) return run_worker_command();
  if (std::ranges::find(raw, "--json") != raw.end()) answer_errors_in_json();
  if (const auto code = print_generated(app, raw)) return *code;
  // `help [COMMAND]` and `version`, as other programs have them.
  if (!raw.empty() && raw[0] == "help")
    raw = raw.size() > 1 ? std::vector{raw[1], std::string("--help")} : std::vector{std::string("--help")};
  if (raw == std::vector<std::string>{"version"}) raw = {"--version"};
  std::vector<std::string> words = argv_words(raw);
  const std::string command = command_of(words);
  if (command.empty() && !words.empty() && words[0].substr(0, 1) != "-") {
    const std::string known = joined(all_commands(), ", ", &Command::name);
    return usage_error(
        "", fmt::format("unknown command '{}'{} (known: {})", words[0], command_suggestion(words[0]), known));
  }
  if (words.empty()) {
    print_help(app, short_helps, false);
    return exit_usage;
  }
  try {
    app.parse(std::vector<std::string>(words.rbegin(), words.rend()));  // CLI11 takes its words last first
  } catch (const CLI::ParseError& error) {
    return parse_error(app, error, command, short_helps);
  }
  const CLI::App* const chosen = app.get_subcommands().front();
  const Result<int> code = actions.at(chosen)();
  return code.ok() ? *code : usage_error(chosen->get_name(), code.message());
}

/// Memory that is given back when there is no other: the first part lets small allocations go on, for not all
/// code can answer to a failure (oneDNN ends the process); the second is for the way out and the
/// last words.
void* reserves[2] = {};

void give_back_reserve() {
  void*& reserve = reserves[0] != nullptr ? reserves[0] : reserves[1];
  const bool is_last = &reserve == &reserves[1];
  std::free(std::exchange(reserve, nullptr));
  if (!is_last) return;
  std::set_new_handler(nullptr);
  throw std::bad_alloc();
}

void reserve_memory() {
  constexpr std::size_t bytes = std::size_t{256}
                                << 10;  // above malloc's limit for mapping: back to the system
  for (void*& reserve : reserves) reserve = std::malloc(bytes);
  std::set_new_handler(give_back_reserve);
}

}  // namespace
}  // namespace gemmtune::cli

int main(int argc, char** argv) {
  // A full disk or a file size limit is an error of write(), not the end of the process.
  std::signal(SIGXFSZ, SIG_IGN);
  gemmtune::cli::reserve_memory();
  gemmtune::cli::log_to_stderr();
  try {
    const int code = gemmtune::cli::run(argc, argv);
    if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0) {
      std::fputs("gemmtune: standard output: cannot be written\n", stderr);
      return gemmtune::cli::exit_usage;
    }
    return code;
  } catch (const std::bad_alloc&) {
    std::fputs("gemmtune: out of memory\n", stderr);
    return gemmtune::cli::exit_usage;
  } catch (const std::exception& error) {
    std::fputs("gemmtune: ", stderr);
    std::fputs(error.what(), stderr);
    std::fputs("\n", stderr);
    return gemmtune::cli::exit_usage;
  }
}
