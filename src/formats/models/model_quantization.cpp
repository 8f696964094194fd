#include "formats/models/model_quantization.h"

#include <algorithm>
#include <utility>

#include "formats/models/quantization_methods.h"

namespace gemmtune {
namespace {

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
