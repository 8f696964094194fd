#include "formats/models/model_config.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "base/file.h"
#include "base/rounding.h"
#include "formats/models/model_fields.h"
#include "formats/models/model_layers.h"
#include "formats/models/model_quantization.h"
#include "formats/shapes/shape_collector.h"
#include "problem/problem.h"
#include "tuned/entry.h"
#include "tuned/key.h"

namespace gemmtune {
namespace {

/// One GEMM of a list: all of a row but M.
struct ModelGemm {
  Problem problem;
  std::string layer;
  std::int64_t calls = 0;
  bool last_tokens_only = false;
};

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

/// A layer that is quantized in some transformer layers and not in others becomes a GEMM of each kind. Errors
/// lack the file's name.
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

constexpr std::size_t max_config_bytes = std::size_t{1} << 24;
constexpr std::int64_t max_layers = 4096;  // each is looked at by itself

Status check_options(const ModelShapeOptions& options) {
  const auto positive = [](std::string_view flag, std::int64_t value) -> Status {
    if (value >= 1 && value <= max_dimension) return {};
    return Status::invalid("{} {}, expected a whole number of at least 1", flag, value);
  };
  GEMMTUNE_RETURN_IF_ERROR(positive("--tp", options.tensor_parallel));
  GEMMTUNE_RETURN_IF_ERROR(positive("--batch_size", options.batch_size));
  if (options.tokens.empty())
    return Status::invalid("--nsets is empty, expected token counts such as 1,16,512");
  if (options.vocab_size) GEMMTUNE_RETURN_IF_ERROR(positive("--vocab_size", *options.vocab_size));
  for (const std::int64_t tokens : options.tokens) GEMMTUNE_RETURN_IF_ERROR(positive("--nsets", tokens));
  return {};
}

Result<std::vector<std::int64_t>> rows_of_x(const ModelShapeOptions& options) {
  std::vector<std::int64_t> rows;
  for (const std::int64_t tokens : options.tokens) {
    if (tokens > max_dimension / options.batch_size) {
      return Status::invalid("--nsets {} times --batch_size {} is above {}", tokens, options.batch_size,
                             max_dimension);
    }
    rows.push_back(tokens * options.batch_size);
  }
  std::ranges::sort(rows);
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

std::int64_t vocab_size(ModelFields& fields, const ModelShapeOptions& options) {
  const bool said = fields.has("vocab_size");
  if (!said && options.vocab_size) return *options.vocab_size;
  if (!said) fields.refuse(fmt::format("{}: has no vocab_size; give --vocab_size", fields.path()));
  const std::int64_t size = fields.number({"vocab_size"});
  if (options.vocab_size && size != *options.vocab_size) {
    fields.refuse(fmt::format("--vocab_size {}: {} says {}", *options.vocab_size, fields.path(), size));
  }
  return size;
}

Result<std::vector<ModelLayer>> layers_of(ModelFields& fields, const ModelShapeOptions& options) {
  RankShares shares(options.tensor_parallel, options.expert_parallel);
  const std::int64_t layers = fields.number({"num_hidden_layers", "n_layer"});
  if (layers > max_layers) {
    return Status::invalid("{}: num_hidden_layers = {}, expected at most {}", fields.path(), layers,
                           max_layers);
  }
  GEMMTUNE_TRY(const auto found, architecture_of(fields, options.assume));
  const Architecture& architecture = *found;
  const LayerTypes types = layer_types(fields, architecture, layers);
  std::vector<ModelLayer> list = attention_layers(fields, architecture, shares, types.attention);
  const auto append = [&](std::vector<ModelLayer> more) {
    std::move(more.begin(), more.end(), std::back_inserter(list));
  };
  append(mixer_layers(fields, architecture, shares, types.mixer));
  append(feed_forward_layers(fields, architecture, shares, layers));
  if (options.lm_head && architecture.lm_head) {
    // OPT's embeddings may be narrower than its layers.
    list.push_back({.name = "lm_head",
                    .modules = {"lm_head"},
                    .n = shares.of("vocab_size", vocab_size(fields, options)),
                    .k = fields.number({"word_embed_proj_dim", "hidden_size", "n_embd"}),
                    .bias = architecture.lm_head_bias,
                    .by_name_only = true});
  }
  GEMMTUNE_RETURN_IF_ERROR(fields.status());
  GEMMTUNE_RETURN_IF_ERROR(shares.status(fields.path()));
  return list;
}

/// --indtype that would change nothing is a mistake.
Status check_type_used(const std::vector<ModelGemm>& gemms, const ModelShapeOptions& options) {
  const auto uses = [&](const ModelGemm& gemm) { return gemm.problem.x_type == *options.x_type; };
  if (!options.x_type || std::ranges::any_of(gemms, uses)) return {};
  return Status::invalid("--indtype {}: no layer of the model has operands of {} bits",
                         to_string(*options.x_type), bits(*options.x_type));
}

Result<std::vector<ModelGemm>> gemms_of(ModelFields& fields, const ModelShapeOptions& options) {
  GEMMTUNE_TRY(const auto layers, layers_of(fields, options));
  const DataType type = fields.type();
  GEMMTUNE_RETURN_IF_ERROR(fields.status());
  GEMMTUNE_TRY(const auto quantization, Quantization::read(fields));
  std::vector<ModelGemm> gemms;
  for (const ModelLayer& layer : layers) {
    if (const Status status = add_gemms(layer, quantization, type, options, gemms); !status.ok()) {
      return Status(status.code(), fmt::format("{}: {}", fields.path(), status.message()));
    }
  }
  GEMMTUNE_RETURN_IF_ERROR(check_type_used(gemms, options));
  return gemms;
}

/// Logits are computed for the last token of each sequence only: one M, as in AITER's generator, unless others are given. The
/// other rows are in the order of M. Experts have a row for each token tier of M: no other row of theirs is looked up.
std::vector<ShapeRow> rows_of(const std::vector<ModelGemm>& gemms, const std::vector<std::int64_t>& rows_of_x,
                              const std::vector<std::int64_t>& lm_head_rows) {
  std::vector<ShapeRow> rows;
  const auto add = [&rows](const ModelGemm& gemm, std::int64_t m) {
    rows.push_back({gemm.problem, gemm.calls, gemm.layer, 0});
    rows.back().problem.m = m;
  };
  for (const ModelGemm& gemm : gemms) {
    if (!gemm.last_tokens_only) continue;
    for (const std::int64_t m : lm_head_rows) add(gemm, m);
  }
  std::set<std::int64_t> tiers;
  for (const std::int64_t m : rows_of_x) {
    const bool is_new_tier = tiers.insert(token_tier(m)).second;
    for (const ModelGemm& gemm : gemms) {
      if (gemm.last_tokens_only) continue;
      if (!is_mixture(gemm.problem)) {
        add(gemm, m);
      } else if (is_new_tier) {
        add(gemm, token_tier(m));
      }
    }
  }
  return rows;
}

std::vector<ShapeRow> merged(std::vector<ShapeRow> rows) {
  ShapeCollector collector(true);
  for (ShapeRow& row : rows) collector.add(std::move(row));
  return collector.take();
}

}  // namespace

std::string operation_counts(const std::vector<ShapeRow>& rows) {
  std::map<OperationForm, std::size_t> counts;
  for (const ShapeRow& row : rows) ++counts[form_of(row.problem)];
  std::string text;
  for (const auto& [operation, count] : counts) {
    text += text.empty() ? fmt::format("{} row{} of ", count, count == 1 ? "" : "s")
                         : fmt::format(", {} of ", count);
    text += to_string(operation);
  }
  return text;
}

Result<ShapeList> model_shapes(const std::string& model_folder, const ModelShapeOptions& options) {
  const std::string path = model_folder + "/config.json";
  GEMMTUNE_TRY(const auto content, read_file(path, max_config_bytes));
  return parse_model_config(path, content, options);
}

Result<ShapeList> parse_model_config(const std::string& path, const std::string& content,
                                     const ModelShapeOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_options(options));
  GEMMTUNE_TRY(auto fields, ModelFields::parse(path, content));
  GEMMTUNE_TRY(const auto rows, rows_of_x(options));
  GEMMTUNE_TRY(const auto gemms, gemms_of(fields, options));

  ShapeList list;
  list.source = fields.path();
  list.rows = rows_of(gemms, rows,
                      options.lm_head_rows.empty() ? std::vector{options.batch_size} : options.lm_head_rows);
  if (options.operation) {
    const std::string counts = operation_counts(list.rows);
    std::erase_if(list.rows, [&](const ShapeRow& row) { return form_of(row.problem) != *options.operation; });
    if (list.rows.empty()) {
      return Status::invalid("{}: no row of {}; there are {}", list.source, to_string(*options.operation),
                             counts);
    }
  }
  for (const ShapeRow& row : list.rows) {
    const Status status = check(row.problem);
    if (!status.ok()) return Status(status.code(), fmt::format("{}: {}", list.source, status.message()));
  }
  if (!options.layer_names) list.rows = merged(std::move(list.rows));
  return list;
}

}  // namespace gemmtune
