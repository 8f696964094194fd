#include "formats/models/model_modules.h"

#include <fnmatch.h>

#include <array>

namespace gemmtune {
namespace {

/// What stands before "layers." in the names of a language model, alone or within a multimodal one.
constexpr std::array<std::string_view, 4> wrappers{"model.", "language_model.", "thinker.", "text_model."};
constexpr std::array<std::string_view, 4> full_prefixes{"model.", "", "model.language_model.",
                                                        "language_model.model."};

std::string_view without_wrappers(std::string_view name) {
  for (bool again = true; again;) {
    again = false;
    for (const std::string_view wrapper : wrappers) {
      if (!name.starts_with(wrapper)) continue;
      name.remove_prefix(wrapper.size());
      again = true;
    }
  }
  return name;
}

bool picks_by_expression(const std::regex& expression, std::string_view module) {
  for (const std::string_view prefix : full_prefixes) {
    const std::string name = std::string(prefix) + std::string(module);
    if (std::regex_search(name, expression, std::regex_constants::match_continuous)) return true;
  }
  return false;
}

/// The glob fits the module or the beginning of its path.
bool picks_by_glob(const std::string& glob, std::string_view module) {
  for (std::size_t end = module.find('.');; end = module.find('.', end + 1)) {
    const std::string path(module.substr(0, end));
    if (fnmatch(glob.c_str(), path.c_str(), 0) == 0) return true;
    if (end == std::string_view::npos) return false;
  }
}

/// The name is a run of whole words of the module's path.
bool picks_by_name(const std::string& name, std::string_view module) {
  return ("." + std::string(module) + ".").find("." + name + ".") != std::string::npos;
}

}  // namespace

Result<ModulePattern> ModulePattern::parse(std::string_view text) {
  ModulePattern pattern;
  pattern.text_ = text;
  pattern.name_ = without_wrappers(text);
  if (pattern.name_.empty()) return Status::invalid("'{}' names no module", text);
  if (!text.starts_with("re:")) return pattern;
  try {
    pattern.expression_ = std::make_shared<const std::regex>(std::string(text.substr(3)));
  } catch (const std::regex_error& error) {
    return Status::invalid("'{}' is no regular expression: {}", text, error.what());
  }
  return pattern;
}

bool ModulePattern::picks(std::string_view module) const {
  if (expression_) return picks_by_expression(*expression_, module);
  if (name_.find('*') != std::string::npos) return picks_by_glob(name_, module);
  return picks_by_name(name_, module);
}

}  // namespace gemmtune
