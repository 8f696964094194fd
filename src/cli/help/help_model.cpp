#include "cli/help/help_model.h"

#include <algorithm>

#include <CLI/CLI.hpp>

namespace gemmtune::cli {
namespace {

/// CLI11's "TEXT:{off,allow}" as "off|allow", "INT:INT in [1 - 2]" as "INT".
std::string value_of(const std::string& type) {
  constexpr std::size_t longest = 24;
  const std::size_t colon = type.find(':');
  std::string value = type.substr(0, colon);
  if (colon == std::string::npos) return value;
  const std::string set = type.substr(colon + 1);
  if (set.size() == 1) return type;  // A:B
  if (!set.starts_with("{") || !set.ends_with("}") || set.size() > longest) return value;
  value = set.substr(1, set.size() - 2);
  std::ranges::replace(value, ',', '|');
  return value;
}

HelpOption option_of(const CLI::Option& given) {
  HelpOption option;
  for (const std::string& name : given.get_snames()) option.names.push_back("-" + name);
  for (const std::string& name : given.get_lnames()) option.names.push_back("--" + name);
  for (const std::string& name : given.get_fnames())
    option.names.push_back((name.size() > 1 ? "--" : "-") + name);
  std::vector<std::string> unique;  // names that negate stand among the others too
  for (std::string& name : option.names)
    if (std::ranges::find(unique, name) == unique.end()) unique.push_back(std::move(name));
  option.names = std::move(unique);
  if (given.get_positional()) option.positional = given.get_name(true);
  option.text = given.get_description();
  option.group = given.get_group();
  option.is_required = given.get_required();
  option.is_list = given.get_items_expected_max() > 1;
  if (given.get_type_size() == 0 || given.get_expected_max() == 0) return option;  // a flag
  option.value = value_of(given.get_type_name());
  option.default_text = given.get_default_str();
  return option;
}

}  // namespace

std::string HelpOption::main_name() const {
  const auto is_long = [](const std::string& name) { return name.starts_with("--"); };
  const auto found = std::ranges::find_if(names, is_long);
  if (found != names.end()) return *found;
  return names.empty() ? positional : names.front();
}

HelpCommand help_model(const CLI::App& command) {
  HelpCommand model{command.get_name(), command.get_description(), command.get_footer(), {}};
  for (const CLI::Option* option : command.get_options()) {
    if (option == command.get_help_ptr() || option == command.get_help_all_ptr()) continue;
    model.options.push_back(option_of(*option));
  }
  return model;
}

std::vector<HelpCommand> help_models(const CLI::App& program) {
  std::vector<HelpCommand> models;
  for (const CLI::App* command : program.get_subcommands({})) models.push_back(help_model(*command));
  return models;
}

}  // namespace gemmtune::cli
