#include "formats/models/model_gemms.h"

#include <algorithm>
#include <optional>

#include "base/rounding.h"
#include "tuned/entry.h"

namespace gemmtune {
namespace {

bool is_quantized(DataType type) { return bits(type) < 16; }

/// --indtype where it is a type of the same kind as the layer's.
DataType chosen_type(DataType own, const ModelShapeOptions& options) {
  if (!options.x_type) return own;
  const bool same_kind =
      is_quantized(own) ? bits(own) == bits(*options.x_type) : !is_quantized(*options.x_type);
  return same_kind ? *options.x_type : own;
}

/// True if a server multiplies experts' 16-bit tokens as they are: MXFP4 weights but where AITER serves, fp8 blocks on CPUs.
bool keeps_tokens(const WeightFormat& format, const ModelShapeOptions& options) {
  if (!options.served) return false;
  if (format.type == DataType::f4_e2m1) return !options.architecture.starts_with("gfx");
  return format.expert_quant == QuantType::per_1x128 && cpu_architecture(options.architecture);
}

Problem expert_problem(const ModelLayer& layer, const std::optional<WeightFormat>& format,
                       const ModelShapeOptions& options) {
  constexpr std::int64_t served_multiple = 32;
  Problem problem = default_problem(Operation::fused_moe);
  problem.bias = layer.bias;
  problem.moe = *layer.moe;
  problem.moe.quant_type = format ? format->expert_quant : QuantType::none;
  std::int64_t multiple = format ? format->expert_multiple : 1;
  if (multiple > 1 && keeps_tokens(*format, options)) multiple = served_multiple;
  problem.n = round_up(layer.n, multiple);
  problem.k = round_up(layer.k, multiple);
  return problem;
}

Problem linear_problem(const ModelLayer& layer, const std::optional<WeightFormat>& format,
                       const ModelShapeOptions& options) {
  const Operation operation = format ? format->operation : Operation::a16w16;
  Problem problem = default_problem({operation, options.bpreshuffle});
  problem.n = layer.n;
  problem.k = layer.k;
  if (traits(operation).key_switches) {
    problem.bias = layer.bias;  // AITER's other tables have no column for it: engines add it to y
    problem.weight_layout = options.bpreshuffle ? WeightLayout::any : WeightLayout::plain;
  }
  return problem;
}

/// Of x: w's type, the model's where the operation's x has 16 bits, else the operation's.
DataType x_type_of(const std::optional<WeightFormat>& format, DataType dtype) {
  if (!format) return dtype;
  const OperationTraits& row = traits(format->operation);
  if (!row.own_w_type()) return format->type;
  return is_quantized(row.x_types.front()) ? row.x_types.front() : dtype;
}

Problem layer_problem(const ModelLayer& layer, const std::optional<WeightFormat>& format, DataType dtype,
                      const ModelShapeOptions& options) {
  Problem problem =
      layer.moe ? expert_problem(layer, format, options) : linear_problem(layer, format, options);
  DataType own = x_type_of(format, dtype);
  if (traits(own).fp8) own = device_fp8(options.architecture);
  set_types(problem, chosen_type(own, options));
  const bool weights_alone = layer.moe && format && is_of_weights_alone(format->expert_quant);
  if (weights_alone) problem.w_type = format->type;
  if (weights_alone || (layer.moe && format && keeps_tokens(*format, options))) problem.x_type = dtype;
  if (has_weight_groups(problem)) {
    problem.w_group = format->group > 0 ? format->group : static_cast<std::int32_t>(problem.k);
    problem.zero_points = format->zero_points;
  }
  const bool model_type = format && (layer.moe || is_quantized(problem.x_type));
  problem.y_type = options.y_type.value_or(model_type ? dtype : problem.x_type);
  return problem;
}

}  // namespace

Status add_gemms(const ModelLayer& layer, const Quantization& quantization, DataType dtype,
                 const ModelShapeOptions& options, std::vector<ModelGemm>& gemms) {
  const std::size_t first = gemms.size();
  const std::vector<std::int64_t> once{0};
  for (const std::int64_t index : layer.at.empty() ? once : layer.at) {
    GEMMTUNE_TRY(const auto format, quantization.format_of(layer, index));
    if (layer.moe && format && !format->experts) {
      if (options.operation && *options.operation != Operation::fused_moe) return {};
      const std::string_view name = to_string({format->operation, false});
      return Status::unsupported("{}: fused_moe has no weights of {}; --op {} lists the other layers",
                                 layer.name, name, name);
    }
    const Problem problem = layer_problem(layer, format, dtype, options);
    const auto same = std::find_if(gemms.begin() + static_cast<std::ptrdiff_t>(first), gemms.end(),
                                   [&](const ModelGemm& gemm) { return gemm.problem == problem; });
    if (same != gemms.end()) {
      ++same->calls;
    } else {
      gemms.push_back({problem, options.layer_names ? layer.name : "", 1, layer.at.empty()});
    }
  }
  return {};
}

}  // namespace gemmtune
