#include "cli/shared/command_options.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>

#include <CLI/CLI.hpp>

#include "base/number_text.h"
#include "base/text.h"

namespace gemmtune::cli {
namespace {

/// CLI11's own validators print the largest double, and its conversion takes -1 as an unsigned number.
CLI::Validator whole_number_from(std::int64_t min, const char* description) {
  return {[min](std::string& text) {
            const auto value = parse_integer(text);
            if (value && *value >= min) return std::string();
            return fmt::format("value {}: expected a whole number of at least {}", text, min);
          },
          description};
}

}  // namespace

CommandOption CommandOption::required() {
  option_->required();
  return *this;
}
CommandOption CommandOption::capture_default_str() {
  option_->capture_default_str();
  return *this;
}
CommandOption CommandOption::group(const char* heading) {
  option_->group(heading);
  return *this;
}
CommandOption CommandOption::type_name(const char* name) {
  option_->type_name(name);
  return *this;
}
CommandOption CommandOption::number_range(double min, double max) {
  // CLI::Range takes NaN.
  option_->check(CLI::Validator(
      [min, max](std::string& text) { return finite_number("value", text, min, max).message(); }, "NUMBER"));
  return *this;
}
CommandOption CommandOption::integer_range(int min, int max) {
  option_->check(CLI::Range(min, max));
  return *this;
}
CommandOption CommandOption::positive() {
  option_->check(whole_number_from(1, "POSITIVE"));
  return *this;
}
CommandOption CommandOption::not_negative() {
  option_->check(whole_number_from(0, "NONNEGATIVE"));
  return *this;
}
CommandOption CommandOption::not_empty() {
  option_->check(
      [](const std::string& value) { return std::string(value.empty() ? "expected a text" : ""); });
  return *this;
}
CommandOption CommandOption::one_at_a_time() {
  option_->allow_extra_args(false);
  return *this;
}
CommandOption CommandOption::one_of(std::vector<std::string> words) {
  option_->check(CLI::IsMember(std::move(words)));
  return *this;
}
std::size_t CommandOption::count() const { return option_->count(); }

template <typename Value>
CommandOption CommandOptions::add_option(const std::string& names, Value& value, const std::string& help) {
  return CommandOption(app_.add_option(names, value, help));
}
CommandOption CommandOptions::add_bare_option(const std::string& names, std::optional<std::string>& value,
                                              const std::string& help) {
  CLI::Option* const option = app_.add_option_function<std::string>(
      names, [&value](const std::string& text) { value = text; }, help);
  return CommandOption(option->expected(0, 1));
}
CommandOption CommandOptions::add_flag(const std::string& names, bool& value, const std::string& help) {
  return CommandOption(app_.add_flag(names, value, help));
}
void CommandOptions::footer(const std::string& text) { app_.footer(text); }

// The types of the values that commands have.
#define GEMMTUNE_OPTION_VALUE(...) \
  template CommandOption CommandOptions::add_option(const std::string&, __VA_ARGS__&, const std::string&)
GEMMTUNE_OPTION_VALUE(std::string);
GEMMTUNE_OPTION_VALUE(std::vector<std::string>);
GEMMTUNE_OPTION_VALUE(std::optional<std::string>);
GEMMTUNE_OPTION_VALUE(int);
GEMMTUNE_OPTION_VALUE(std::int64_t);
GEMMTUNE_OPTION_VALUE(std::size_t);
GEMMTUNE_OPTION_VALUE(double);
GEMMTUNE_OPTION_VALUE(std::optional<int>);
GEMMTUNE_OPTION_VALUE(std::optional<std::int64_t>);
GEMMTUNE_OPTION_VALUE(std::optional<double>);
#undef GEMMTUNE_OPTION_VALUE

}  // namespace gemmtune::cli
