#include "formats/models/quantization_methods.h"

#include <algorithm>
#include <utility>

#include "formats/models/model_fields.h"
#include "problem/operation.h"

namespace gemmtune {
namespace {

using Groups = std::vector<QuantizedGroup>;

constexpr std::int64_t mxfp4_block = 32;     // of a4w4_blockscale, along K
constexpr std::int64_t mxfp4_padding = 256;  // of gpt-oss's experts in AITER's tables: 2880 becomes 3072

constexpr WeightFormat fp8_block{Operation::a8w8_blockscale, DataType::f8_e4m3fn, QuantType::per_1x128};
constexpr WeightFormat fp8_token{Operation::a8w8, DataType::f8_e4m3fn, QuantType::per_token};
constexpr WeightFormat fp8_tensor{Operation::a8w8, DataType::f8_e4m3fn, QuantType::per_tensor};
constexpr WeightFormat int8_token{Operation::a8w8, DataType::i8, QuantType::per_token};
constexpr WeightFormat int8_tensor{Operation::a8w8, DataType::i8, QuantType::per_tensor};
constexpr WeightFormat mxfp4{Operation::a4w4_blockscale, DataType::f4_e2m1, QuantType::per_1x32};

std::int64_t number(const Json& object, const char* key, std::int64_t otherwise) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_number_integer() ? value->get<std::int64_t>() : otherwise;
}

bool flag(const Json& object, const char* key, bool otherwise) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : otherwise;
}

/// Empty where absent or no text.
std::string word(const Json& object, const char* key) {
  const Json* value = member(object, key);
  return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
}

QuantizedGroup linear_group(const WeightFormat& format) {
  QuantizedGroup group;
  group.linear = true;
  group.format = format;
  return group;
}

Groups all_linear(const WeightFormat& format) { return {linear_group(format)}; }

Status check_block(const char* key, const Json& block) {
  if (block == Json::array({scale_block, scale_block})) return {};
  return Status::unsupported("{} = {}, expected [128, 128]: a8w8_blockscale has no other blocks", key,
                             json_line(block));
}

/// Transformers' and vLLM's fp8: block scales where weight_block_size is given, else a scale a tensor;
/// dynamic activations get a scale a token.
Result<Groups> fp8_groups(const Json& config) {
  if (const std::string kind = word(config, "fmt");
      !kind.empty() && kind != "e4m3" && kind != "float8_e4m3fn") {
    return Status::unsupported("fmt = {}, expected e4m3", kind);
  }
  if (const Json* block = member(config, "weight_block_size")) {
    GEMMTUNE_RETURN_IF_ERROR(check_block("weight_block_size", *block));
    return all_linear(fp8_block);
  }
  return all_linear(word(config, "activation_scheme") == "static" ? fp8_tensor : fp8_token);
}

/// gpt-oss quantizes its experts and nothing else, whatever its list of exceptions says.
Result<Groups> mxfp4_groups(const std::string& model_type) {
  QuantizedGroup group;
  group.experts = true;
  group.linear = model_type != "gpt_oss";
  group.format = mxfp4;
  group.format->expert_multiple = mxfp4_padding;
  return Groups{std::move(group)};
}

/// Experts have these weights beside tokens of 16 bits, also where the linear layers quantize both.
constexpr WeightFormat four_bits(Operation operation, DataType type) {
  const bool eight_bit_tokens = operation == Operation::a8w4_nvfp4 || operation == Operation::a8w4_int4;
  return {.operation = operation,
          .type = type,
          .expert_quant = type == DataType::i4 ? QuantType::per_group : QuantType::per_1x16,
          .experts = !eight_bit_tokens};
}

WeightFormat int4_format(Operation operation, std::int64_t group, bool zero_points) {
  WeightFormat format = four_bits(operation, DataType::i4);
  format.group = static_cast<std::int32_t>(std::clamp<std::int64_t>(group, 0, max_dimension));
  format.zero_points = zero_points;
  return format;
}

/// Of one side, weights or activations, in the words that compressed-tensors and Quark share here.
struct Scheme {
  bool present = false;
  bool is_float = false;
  std::int64_t bits = 0;
  std::string granularity;  // tensor, channel, token, group, block
  std::int64_t group = 0;
  bool symmetric = true;
};

/// NVFP4 and int4 weights, by the activations.
std::optional<WeightFormat> four_bit_format(const Scheme& weight, const Scheme& activation) {
  if (weight.bits != 4) return std::nullopt;
  const bool eight = activation.present && activation.bits == 8 && activation.is_float == weight.is_float;
  if (weight.is_float) {
    if (weight.group != nv_block) return std::nullopt;
    if (!activation.present) return four_bits(Operation::a16w4_nvfp4, DataType::f4_e2m1);
    if (eight) return four_bits(Operation::a8w4_nvfp4, DataType::f4_e2m1);
    if (activation.bits != 4 || !activation.is_float || activation.group != nv_block) return std::nullopt;
    return four_bits(Operation::a4w4_nvfp4, DataType::f4_e2m1);
  }
  const bool grouped = weight.granularity == "group" && weight.group > 0;
  if (!(grouped || weight.granularity == "channel") || (activation.present && !eight)) return std::nullopt;
  return int4_format(eight ? Operation::a8w4_int4 : Operation::a16w4_int4, grouped ? weight.group : 0,
                     !weight.symmetric);
}

/// The format of a GEMM whose sides have these schemes; errors name what no operation takes.
Result<std::optional<WeightFormat>> weight_format_of(const Scheme& weight, const Scheme& activation) {
  if (!weight.present) return std::optional<WeightFormat>();
  const auto kind = [](const Scheme& scheme) {
    return scheme.present ? fmt::format("{}{} per {}", scheme.is_float ? "float" : "int", scheme.bits,
                                        scheme.granularity.empty() ? "?" : scheme.granularity)
                          : std::string("none");
  };
  const bool same =
      activation.present && weight.bits == activation.bits && weight.is_float == activation.is_float;
  if (same && weight.bits == 4 && weight.is_float && weight.group == mxfp4_block) {
    return std::optional<WeightFormat>(mxfp4);
  }
  if (same && weight.bits == 8 && weight.is_float && weight.granularity == "block") {
    return std::optional<WeightFormat>(fp8_block);
  }
  if (auto format = four_bit_format(weight, activation)) return format;
  const bool plain = (weight.granularity == "tensor" || weight.granularity == "channel") &&
                     activation.granularity != "group" && activation.granularity != "block";
  if (same && weight.bits == 8 && plain) {
    const bool tensor = weight.granularity == "tensor" && activation.granularity == "tensor";
    if (weight.is_float) return std::optional<WeightFormat>(tensor ? fp8_tensor : fp8_token);
    return std::optional<WeightFormat>(tensor ? int8_tensor : int8_token);
  }
  return Status::unsupported(
      "weights {} with activations {}: no operation has these (known: int8 or fp8 on both sides by tensor, "
      "channel or token; fp8 by blocks of 128 x 128; fp4 by groups of 32; fp4 weights by groups of 16; int4 "
      "weights by groups or channel)",
      kind(weight), kind(activation));
}

Result<Scheme> compressed_scheme(const Json* args) {
  Scheme scheme;
  if (args == nullptr) return scheme;
  const Json* bits = member(*args, "num_bits");
  if (bits == nullptr || !bits->is_number_integer()) {
    return Status::invalid("config_groups: {} has no num_bits", json_line(*args));
  }
  scheme.present = true;
  scheme.bits = bits->get<std::int64_t>();
  scheme.is_float = word(*args, "type") == "float";
  scheme.granularity = word(*args, "strategy");
  scheme.group = number(*args, "group_size", 0);
  scheme.symmetric = flag(*args, "symmetric", true);
  if (const Json* block = member(*args, "block_structure")) {
    GEMMTUNE_RETURN_IF_ERROR(check_block("block_structure", *block));
  }
  return scheme;
}

/// Names of classes ("Linear") and of modules.
Status read_targets(const Json& group, QuantizedGroup& target) {
  GEMMTUNE_TRY(auto patterns, module_patterns(group, "targets"));
  for (ModulePattern& pattern : patterns) {
    if (pattern.text() == "Linear") {
      target.linear = true;
    } else if (pattern.text() == "FusedMoE") {
      target.experts = true;
    } else {
      target.modules.push_back(std::move(pattern));
    }
  }
  return {};
}

Result<Groups> compressed_groups(const Json& config) {
  const Json* all = member(config, "config_groups");
  if (all == nullptr || !all->is_object())
    return Status::invalid("config_groups: expected an object of groups");
  Groups groups;
  for (const auto& [name, json] : all->items()) {
    QuantizedGroup group;
    GEMMTUNE_RETURN_IF_ERROR(read_targets(json, group));
    GEMMTUNE_TRY(const auto weight, compressed_scheme(member(json, "weights")));
    GEMMTUNE_TRY(const auto activation, compressed_scheme(member(json, "input_activations")));
    const auto format = weight_format_of(weight, activation);
    if (!format.ok())
      return Status(format.code(), fmt::format("config_groups.{}: {}", name, format.message()));
    group.format = *format;
    groups.push_back(std::move(group));
  }
  return groups;
}

Result<WeightFormat> grouped_int4(const Json& config, bool zero_points) {
  if (const std::int64_t bits = number(config, "bits", 0); bits != 4) {
    return Status::unsupported("bits = {}, expected 4", bits);
  }
  return int4_format(Operation::a16w4_int4, number(config, "group_size", -1), zero_points);
}

Result<Groups> awq_groups(const Json& config) {
  GEMMTUNE_TRY(const auto format, grouped_int4(config, flag(config, "zero_point", true)));
  return all_linear(format);
}

Result<WeightFormat> gptq_format(const Json& config) {
  return grouped_int4(config, !flag(config, "sym", false));
}

/// `dynamic` has GPTQModel's rules for single layers: "-:" leaves a layer as it is, "+:" has values of its own.
Result<Groups> gptq_groups(const Json& config) {
  Groups groups;
  if (const Json* rules = member(config, "dynamic"); rules != nullptr && rules->is_object()) {
    for (const auto& [rule, own] : rules->items()) {
      const bool prefixed = rule.starts_with("-:") || rule.starts_with("+:");
      GEMMTUNE_TRY(auto pattern, ModulePattern::parse("re:" + (prefixed ? rule.substr(2) : rule)));
      QuantizedGroup group;
      group.modules.push_back(std::move(pattern));
      if (!rule.starts_with("-:")) {
        Json values = config;
        if (own.is_object()) values.update(own);
        const auto format = gptq_format(values);
        if (!format.ok())
          return Status(format.code(), fmt::format("dynamic: {}: {}", rule, format.message()));
        group.format = *format;
      }
      groups.push_back(std::move(group));
    }
  }
  GEMMTUNE_TRY(const auto format, gptq_format(config));
  groups.push_back(linear_group(format));
  return groups;
}

Result<WeightFormat> modelopt_format(const Json& config) {
  const std::string algorithm = word(config, "quant_algo");
  if (algorithm == "NVFP4") return four_bits(Operation::a4w4_nvfp4, DataType::f4_e2m1);
  if (algorithm == "W4A16_NVFP4") return four_bits(Operation::a16w4_nvfp4, DataType::f4_e2m1);
  if (algorithm == "FP8") return fp8_tensor;
  return Status::unsupported("quant_algo = \"{}\", expected NVFP4, W4A16_NVFP4, FP8 or MIXED_PRECISION",
                             algorithm);
}

/// Of MIXED_PRECISION the layers that are named are quantized, each in its way.
Result<Groups> modelopt_groups(const Json& config) {
  if (word(config, "quant_algo") != "MIXED_PRECISION") {
    GEMMTUNE_TRY(const auto format, modelopt_format(config));
    return all_linear(format);
  }
  const Json* layers = member(config, "quantized_layers");
  if (layers == nullptr || !layers->is_object())
    return Status::invalid("quantized_layers: expected an object of layers");
  Groups groups;
  for (const auto& [name, own] : layers->items()) {
    const auto format = modelopt_format(own);
    if (!format.ok())
      return Status(format.code(), fmt::format("quantized_layers: {}: {}", name, format.message()));
    GEMMTUNE_TRY(auto pattern, ModulePattern::parse(name));
    QuantizedGroup group;
    group.modules.push_back(std::move(pattern));
    group.format = *format;
    groups.push_back(std::move(group));
  }
  return groups;
}

Scheme quark_scheme(const Json* tensor) {
  Scheme scheme;
  if (tensor != nullptr && tensor->is_array()) tensor = tensor->empty() ? nullptr : &tensor->front();
  if (tensor == nullptr) return scheme;
  const std::string type = word(*tensor, "dtype");
  scheme.present = true;
  scheme.is_float = type.starts_with("fp");
  scheme.bits = type.starts_with("fp4") || type == "int4" ? 4 : type == "fp8_e4m3" || type == "int8" ? 8 : 0;
  const std::string by = word(*tensor, "qscheme");
  scheme.granularity = by.starts_with("per_") ? by.substr(4) : by;
  scheme.group = number(*tensor, "group_size", 0);
  scheme.symmetric = flag(*tensor, "symmetric", true);
  return scheme;
}

/// Activations by channel are Quark's words for a scale a token.
Result<std::optional<WeightFormat>> quark_format(const Json& config) {
  return weight_format_of(quark_scheme(member(config, "weight")),
                          quark_scheme(member(config, "input_tensors")));
}

Status add_quark_group(const std::string& where, const Json& json, QuantizedGroup group, Groups& groups) {
  const auto format = quark_format(json);
  if (!format.ok()) return Status(format.code(), fmt::format("{}: {}", where, format.message()));
  group.format = *format;
  groups.push_back(std::move(group));
  return {};
}

Result<Groups> quark_groups(const Json& config) {
  Groups groups;
  if (const Json* by_layer = member(config, "layer_quant_config");
      by_layer != nullptr && by_layer->is_object()) {
    for (const auto& [pattern, json] : by_layer->items()) {
      QuantizedGroup group;
      GEMMTUNE_TRY(auto parsed, ModulePattern::parse(pattern));
      group.modules.push_back(std::move(parsed));
      GEMMTUNE_RETURN_IF_ERROR(add_quark_group("layer_quant_config", json, std::move(group), groups));
    }
  }
  if (const Json* global = member(config, "global_quant_config")) {
    QuantizedGroup group;
    group.linear = true;
    GEMMTUNE_RETURN_IF_ERROR(add_quark_group("global_quant_config", *global, std::move(group), groups));
  }
  return groups;
}

}  // namespace

Result<Groups> quantized_groups(const Json& config, const std::string& model_type) {
  const std::string method = word(config, "quant_method");
  if (method == "fp8") return fp8_groups(config);
  if (method == "fbgemm_fp8" || method == "w8a8_fp8") return all_linear(fp8_token);
  if (method == "w8a8_int8") return all_linear(int8_token);
  if (method == "mxfp4") return mxfp4_groups(model_type);
  if (method == "compressed-tensors") return compressed_groups(config);
  if (method == "quark") return quark_groups(config);
  if (method == "awq") return awq_groups(config);
  if (method == "gptq") return gptq_groups(config);
  if (method == "modelopt") return modelopt_groups(config);
  return Status::unsupported(
      "quant_method = {}: not known (known: fp8, fbgemm_fp8, w8a8_fp8, w8a8_int8, mxfp4, compressed-tensors, "
      "quark, awq, gptq, modelopt)",
      member(config, "quant_method") != nullptr ? json_line(*member(config, "quant_method")) : "null");
}

Result<std::vector<ModulePattern>> module_patterns(const Json& config, const char* key) {
  std::vector<ModulePattern> patterns;
  const Json* list = member(config, key);
  if (list == nullptr) return patterns;
  if (!list->is_array()) return Status::invalid("{} = {}, expected a list of names", key, json_line(*list));
  for (const Json& name : *list) {
    if (!name.is_string()) return Status::invalid("{}: {}, expected a name", key, json_line(name));
    auto pattern = ModulePattern::parse(name.get_ref<const std::string&>());
    if (!pattern.ok()) return Status::invalid("{}: {}", key, pattern.message());
    patterns.push_back(std::move(pattern).value());
  }
  return patterns;
}

}  // namespace gemmtune
