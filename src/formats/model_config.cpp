#include "formats/model_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "formats/shape_collector.h"

namespace gemmtune {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_config_bytes = std::size_t{16} << 20;
// Larger than any model's; products of three of them fit 64 bits.
constexpr std::int64_t max_field = std::int64_t{1} << 20;

/// Fields of config.json: a nested text model's where there is one, else the outer one's.
class Fields {
 public:
  Fields(std::string source, const Json& outer) : source_(std::move(source)), outer_(outer), inner_(&outer) {
    const auto nested = outer.find("text_config");
    if (nested != outer.end() && nested->is_object()) inner_ = &*nested;
  }
  const std::string& source() const { return source_; }
  /// nullptr where the field is absent or null.
  const Json* find(const char* name) const {
    for (const Json* level : {inner_, &outer_}) {
      const auto at = level->find(name);
      if (at != level->end() && !at->is_null()) return &*at;
    }
    return nullptr;
  }
  /// A whole number ≥ 1; `absent` (an error where that is 0) where the field is not there.
  Result<std::int64_t> size(const char* name, std::int64_t absent = 0) const {
    const Json* value = find(name);
    if (value == nullptr) {
      if (absent != 0) return absent;
      return Status::invalid("{}: no field {}, expected a Llama-like model", source_, name);
    }
    if (value->is_number_integer()) {
      const auto number = value->get<std::int64_t>();
      if (number >= 1 && number <= max_field) return number;
    }
    return Status::invalid("{}: {} = {}, expected a whole number from 1 to {}", source_, name, value->dump(),
                           max_field);
  }
  bool flag(const char* name) const {
    const Json* value = find(name);
    return value != nullptr && value->is_boolean() && value->get<bool>();
  }
  std::string text(const char* name) const {
    const Json* value = find(name);
    return value != nullptr && value->is_string() ? value->get<std::string>() : std::string();
  }

 private:
  std::string source_;
  const Json& outer_;
  const Json* inner_;
};

/// One rank's sizes.
struct RankSizes {
  std::int64_t hidden = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t intermediate = 0;
  std::int64_t layers = 0;
};

struct Layer {
  const char* name;
  std::int64_t n;
  std::int64_t k;
  bool bias;
};

Result<Json> parse(const std::string& source, const std::string& text) {
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
    return Status::invalid("{}:1: expected a JSON object", source);
  } catch (const Json::parse_error& error) {
    const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(error.byte, text.size()));
    return Status::invalid("{}:{}: no JSON: {}", source, std::count(text.begin(), end, '\n') + 1,
                           error.what());
  } catch (const std::exception& error) {
    return Status::invalid("{}: no JSON: {}", source, error.what());
  }
}

Status check_kind(const Fields& fields, const ModelShapeOptions& options) {
  for (const char* name : {"num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"}) {
    const Json* value = fields.find(name);
    if (value == nullptr || !value->is_number() || value->get<double>() <= 1) continue;
    return Status::unsupported("{}: {} = {}: mixture-of-experts models come with a later version",
                               fields.source(), name, value->dump());
  }
  for (const char* name : {"kv_lora_rank", "q_lora_rank"}) {
    const Json* value = fields.find(name);
    if (value == nullptr) continue;
    return Status::unsupported("{}: {} = {}: models with latent attention (MLA) come with a later version",
                               fields.source(), name, value->dump());
  }
  const Json* types = fields.find("layer_types");
  if (types != nullptr && types->is_array() &&
      std::find(types->begin(), types->end(), "linear_attention") != types->end()) {
    return Status::unsupported(
        "{}: layer_types has linear_attention: hybrid models come with a later version", fields.source());
  }
  const Json* quantization = fields.find("quantization_config");
  if (quantization != nullptr && !options.x_type) {
    const auto method = quantization->is_object() ? quantization->value("quant_method", Json()) : Json();
    return Status::unsupported(
        "{}: quantization_config (quant_method {}): quantized models come with a later "
        "version; --indtype bf16 takes the shapes of the unquantized model",
        fields.source(), method.dump());
  }
  return {};
}

Status divide(const Fields& fields, const char* name, std::int64_t& value, std::int64_t ranks) {
  if (value % ranks != 0) {
    return Status::invalid("{}: {} = {} is not divisible by tp = {}", fields.source(), name, value, ranks);
  }
  value /= ranks;
  return {};
}

/// Reads one size field into `value`.
Status read_size(const Fields& fields, const char* name, std::int64_t& value, std::int64_t absent = 0) {
  const auto size = fields.size(name, absent);
  if (size.ok()) value = *size;
  return size.status();
}

Result<RankSizes> rank_sizes(const Fields& fields, std::int64_t ranks) {
  RankSizes sizes;
  GEMMTUNE_RETURN_IF_ERROR(read_size(fields, "hidden_size", sizes.hidden));
  GEMMTUNE_RETURN_IF_ERROR(read_size(fields, "num_attention_heads", sizes.heads));
  GEMMTUNE_RETURN_IF_ERROR(read_size(fields, "num_key_value_heads", sizes.kv_heads, sizes.heads));
  GEMMTUNE_RETURN_IF_ERROR(read_size(fields, "intermediate_size", sizes.intermediate));
  GEMMTUNE_RETURN_IF_ERROR(read_size(fields, "num_hidden_layers", sizes.layers));
  if (fields.find("head_dim") == nullptr && sizes.hidden % sizes.heads != 0) {
    return Status::invalid("{}: no field head_dim, and hidden_size = {} is not divisible by {} heads",
                           fields.source(), sizes.hidden, sizes.heads);
  }
  GEMMTUNE_RETURN_IF_ERROR(
      read_size(fields, "head_dim", sizes.head_dim, std::max<std::int64_t>(1, sizes.hidden / sizes.heads)));

  GEMMTUNE_RETURN_IF_ERROR(divide(fields, "num_attention_heads", sizes.heads, ranks));
  if (sizes.kv_heads < ranks && ranks % sizes.kv_heads == 0) {
    sizes.kv_heads = 1;  // each KV head lies on ranks / kv_heads ranks
  } else {
    GEMMTUNE_RETURN_IF_ERROR(divide(fields, "num_key_value_heads", sizes.kv_heads, ranks));
  }
  GEMMTUNE_RETURN_IF_ERROR(divide(fields, "intermediate_size", sizes.intermediate, ranks));
  return sizes;
}

Result<Problem> typed_problem(const Fields& fields, const ModelShapeOptions& options) {
  Problem problem;
  if (options.x_type) {
    problem.x_type = *options.x_type;
  } else {
    for (const char* name : {"dtype", "torch_dtype"}) {
      const Json* value = fields.find(name);
      if (value == nullptr) continue;
      const auto type = value->is_string() ? parse_data_type(value->get<std::string>()) : std::nullopt;
      if (!type) {
        return Status::invalid("{}: {} = {}, expected bfloat16, float16 or float32; --indtype overrides it",
                               fields.source(), name, value->dump());
      }
      problem.x_type = *type;
      break;
    }
  }
  problem.w_type = problem.x_type;
  problem.scale_ab = problem.x_type == DataType::f8_e4m3fn || problem.x_type == DataType::f8_e4m3fnuz;
  problem.y_type = options.y_type.value_or(problem.scale_ab ? DataType::bf16 : problem.x_type);
  return problem;
}

Status check_options(const ModelShapeOptions& options) {
  if (options.tensor_parallel < 1 || options.tensor_parallel > max_field) {
    return Status::invalid("tp = {}, expected a whole number of at least 1", options.tensor_parallel);
  }
  if (options.batch_size < 1 || options.batch_size > max_dimension) {
    return Status::invalid("batch_size = {}, expected a whole number of at least 1", options.batch_size);
  }
  for (const std::int64_t tokens : options.tokens) {
    if (tokens < 1 || tokens > max_dimension) {
      return Status::invalid("nsets: {}, expected whole numbers of at least 1", tokens);
    }
  }
  return {};
}

bool known_model_type(const std::string& type) {
  static constexpr std::array<std::string_view, 18> known{
      "llama",       "mistral", "mistral3", "ministral", "qwen2",     "qwen3", "gemma",   "gemma2", "gemma3",
      "gemma3_text", "phi3",    "granite",  "internlm2", "internlm3", "olmo2", "smollm3", "exaone", "yi"};
  return type.empty() || std::find(known.begin(), known.end(), type) != known.end();
}

/// Adds one shape; an impossible one is an error of the whole list, since every shape comes from one config.
Status add_shape(ShapeCollector& shapes, ShapeRow row, const Layer& layer) {
  row.problem.n = layer.n;
  row.problem.k = layer.k;
  row.problem.bias = layer.bias;
  if (const Status status = check(row.problem); !status.ok()) {
    return Status(status.code(), fmt::format("{}: {}", layer.name, status.message()));
  }
  shapes.add(std::move(row));
  return {};
}

Status add_layers(const Fields& fields, const ModelShapeOptions& options, const Problem& typed,
                  ShapeCollector& shapes) {
  const auto sizes = rank_sizes(fields, options.tensor_parallel);
  if (!sizes.ok()) return sizes.status();
  const bool attention_bias = fields.flag("attention_bias");
  const bool mlp_bias = fields.flag("mlp_bias");
  const bool qkv_bias = attention_bias || fields.text("model_type") == "qwen2";
  const std::int64_t q_width = sizes->heads * sizes->head_dim;
  const Layer layers[] = {
      {"qkv_proj", q_width + 2 * sizes->kv_heads * sizes->head_dim, sizes->hidden, qkv_bias},
      {"o_proj", sizes->hidden, q_width, attention_bias},
      {"gate_up_proj", 2 * sizes->intermediate, sizes->hidden, mlp_bias},
      {"down_proj", sizes->hidden, sizes->intermediate, mlp_bias}};
  std::set<std::int64_t> rows_of_x;
  for (const std::int64_t tokens : options.tokens) rows_of_x.insert(tokens * options.batch_size);
  for (const std::int64_t m : rows_of_x) {
    for (const Layer& layer : layers) {
      ShapeRow row{typed, sizes->layers, options.layer_names ? layer.name : "", 0};
      row.problem.m = m;
      GEMMTUNE_RETURN_IF_ERROR(add_shape(shapes, std::move(row), layer));
    }
  }
  if (!options.lm_head) return {};
  Layer head{"lm_head", 0, sizes->hidden, false};
  GEMMTUNE_RETURN_IF_ERROR(read_size(fields, "vocab_size", head.n));
  GEMMTUNE_RETURN_IF_ERROR(divide(fields, "vocab_size", head.n, options.tensor_parallel));
  ShapeRow row{typed, 1, options.layer_names ? head.name : "", 0};
  row.problem.m = options.batch_size;
  return add_shape(shapes, std::move(row), head);
}

}  // namespace

Result<ShapeList> model_shapes(const std::string& model_folder, const ModelShapeOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_options(options));
  const std::string path = model_folder.ends_with(".json") ? model_folder : model_folder + "/config.json";
  const auto text = read_file(path, max_config_bytes);
  if (!text.ok()) return text.status();
  const auto json = parse(path, *text);
  if (!json.ok()) return json.status();
  const Fields fields(path, *json);
  GEMMTUNE_RETURN_IF_ERROR(check_kind(fields, options));
  const auto typed = typed_problem(fields, options);
  if (!typed.ok()) return typed.status();

  ShapeCollector shapes(true);
  GEMMTUNE_RETURN_IF_ERROR(add_layers(fields, options, *typed, shapes));
  ShapeList list;
  list.source = path;
  list.rows = shapes.take();
  if (const std::string type = fields.text("model_type"); !known_model_type(type)) {
    list.complaints.push_back(fmt::format(
        "{}: model_type = \"{}\" is not known; the shapes are those of a Llama-like model", path, type));
  }
  return list;
}

}  // namespace gemmtune
