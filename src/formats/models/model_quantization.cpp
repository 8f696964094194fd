#include "formats/models/model_quantization.h"

#include <fnmatch.h>

#include <algorithm>
#include <array>
#include <utility>

#include "formats/models/quantization_methods.h"

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

// What fp8, mxfp4, fbgemm_fp8 and awq (Transformers, vLLM), compressed-tensors, Quark and ModelOpt call the same list.
constexpr std::array<const char*, 5> left_out_keys{"modules_to_not_convert", "ignored_layers", "ignore",
                                                   "exclude", "exclude_modules"};

bool picks(const std::vector<ModulePattern>& patterns, const std::string& module) {
  return std::ranges::any_of(patterns, [&](const ModulePattern& pattern) { return pattern.picks(module); });
}

Status in_config(const ModelFields& fields, const Status& status) {
  return {status.code(), fmt::format("{}: quantization_config: {}", fields.path(), status.message())};
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

Result<Quantization> Quantization::read(ModelFields& fields) {
  Quantization quantization;
  const Json* config = fields.find_anywhere("quantization_config");
  if (config == nullptr) config = fields.find_anywhere("compression_config");
  if (config == nullptr) return quantization;
  if (!config->is_object()) return in_config(fields, Status::invalid("expected an object"));
  auto groups = quantized_groups(*config, fields.text("model_type"));
  if (!groups.ok()) return in_config(fields, groups.status());
  quantization.groups_ = std::move(groups).value();
  for (const char* key : left_out_keys) {
    auto patterns = module_patterns(*config, key);
    if (!patterns.ok()) return in_config(fields, patterns.status());
    for (ModulePattern& pattern : *patterns) quantization.left_out_.push_back(std::move(pattern));
  }
  return quantization;
}

std::optional<WeightFormat> Quantization::format_of_module(const ModelLayer& layer,
                                                           const std::string& module) const {
  if (picks(left_out_, module)) return std::nullopt;
  for (const QuantizedGroup& group : groups_) {
    if (picks(group.modules, module)) return group.format;
  }
  if (layer.by_name_only) return std::nullopt;
  for (const QuantizedGroup& group : groups_) {
    if (group.linear || (group.experts && layer.moe)) return group.format;
  }
  return std::nullopt;
}

Result<std::optional<WeightFormat>> Quantization::format_of(const ModelLayer& layer,
                                                            std::int64_t index) const {
  std::optional<WeightFormat> format;
  for (const std::string& part : layer.modules) {
    const std::string module = layer.at.empty() ? part : fmt::format("layers.{}.{}", index, part);
    const auto of_part = format_of_module(layer, module);
    if (&part == &layer.modules.front()) {
      format = of_part;
    } else if (format != of_part) {
      return Status::invalid("quantization_config: {} and {} differ, but engines run them as one GEMM, {}",
                             layer.modules.front(), module, layer.name);
    }
  }
  return format;
}

}  // namespace gemmtune
