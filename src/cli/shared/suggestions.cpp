#include "cli/shared/suggestions.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/text.h"
#include "cli/command.h"

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

}  // namespace

std::string command_suggestion(std::string_view word) {
  if (const std::string_view here = meant(command_words, to_lower(word)); !here.empty())
    return question(here);
  std::vector<std::string_view> known;
  for (const Command& command : all_commands()) known.push_back(command.name);
  return question(nearest_word(word, known));
}

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

}  // namespace gemmtune::cli
