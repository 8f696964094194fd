#include "formats/model_config.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "formats/json_text.h"

namespace gemmtune {
namespace {

using Json = nlohmann::json;

constexpr std::size_t max_config_bytes = std::size_t{1} << 24;

/// The sizes that Llama-like models are made of.
struct Sizes {
  std::int64_t hidden = 0;
  std::int64_t intermediate = 0;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t layers = 1;
  std::int64_t vocabulary = 0;
};

struct Layer {
  std::string name;
  std::int64_t n = 0;  // out features of one rank
  std::int64_t k = 0;  // in features of one rank
  std::int64_t calls = 1;
};

class ConfigReader {
 public:
  ConfigReader(std::string path, const Json& root)
      : path_(std::move(path)), root_(root), config_(text_config(root)) {}

  Status check_kind() const {
    for (const char* key : {"n_routed_experts", "num_local_experts", "num_experts"}) {
      if (const auto count = number(key); count && *count > 1) {
        return Status::unsupported("{}: {} = {}: mixture-of-experts models come with a later version", path_,
                                   key, *count);
      }
    }
    for (const char* key : {"kv_lora_rank", "q_lora_rank"}) {
      if (const auto rank = number(key); rank && *rank > 0) {
        return Status::unsupported(
            "{}: {} = {}: models with multi-head latent attention (MLA) come with a later version", path_,
            key, *rank);
      }
    }
    for (const Json* json : {&root_, &config_}) {
      if (json->contains("quantization_config") && !(*json)["quantization_config"].is_null()) {
        return Status::unsupported(
            "{}: quantization_config: quantized models come with a later version; this one "
            "makes bf16, fp16 and fp32 shapes",
            path_);
      }
    }
    return {};
  }

  Result<Sizes> sizes() const {
    Sizes sizes;
    GEMMTUNE_RETURN_IF_ERROR(require({"hidden_size", "n_embd"}, sizes.hidden));
    GEMMTUNE_RETURN_IF_ERROR(require({"intermediate_size", "ffn_dim"}, sizes.intermediate));
    GEMMTUNE_RETURN_IF_ERROR(require({"num_attention_heads", "n_head"}, sizes.heads));
    GEMMTUNE_RETURN_IF_ERROR(require({"vocab_size"}, sizes.vocabulary));
    GEMMTUNE_RETURN_IF_ERROR(require({"num_hidden_layers", "n_layer"}, sizes.layers));
    sizes.kv_heads = sizes.heads;
    sizes.head_dim = sizes.hidden / sizes.heads;
    if (present("num_key_value_heads"))
      GEMMTUNE_RETURN_IF_ERROR(require({"num_key_value_heads"}, sizes.kv_heads));
    if (present("head_dim")) {
      GEMMTUNE_RETURN_IF_ERROR(require({"head_dim"}, sizes.head_dim));
    } else if (sizes.hidden % sizes.heads != 0) {
      return Status::invalid(
          "{}: hidden_size = {} is no multiple of num_attention_heads = {} and there is no head_dim", path_,
          sizes.hidden, sizes.heads);
    }
    return sizes;
  }

  Result<DataType> type() const {
    for (const char* key : {"torch_dtype", "dtype"}) {
      for (const Json* json : {&config_, &root_}) {
        const auto found = json->find(key);
        if (found == json->end() || found->is_null()) continue;
        const auto parsed = found->is_string() ? parse_data_type(found->get<std::string>()) : std::nullopt;
        if (!parsed) {
          return Status::invalid("{}: {} = {}, expected bfloat16, float16 or float32", path_, key,
                                 found->dump());
        }
        return *parsed;
      }
    }
    return DataType::bf16;
  }

 private:
  /// Multimodal models keep the language model's sizes one level down.
  static const Json& text_config(const Json& root) {
    const auto nested = root.find("text_config");
    return nested != root.end() && nested->is_object() && nested->contains("hidden_size") ? *nested : root;
  }

  bool present(const char* key) const {
    const auto found = config_.find(key);
    return found != config_.end() && !found->is_null();
  }

  std::optional<std::int64_t> number(const char* key) const {
    const auto found = config_.find(key);
    if (found == config_.end() || !found->is_number_integer()) return std::nullopt;
    return found->get<std::int64_t>();
  }

  Status require(std::initializer_list<const char*> keys, std::int64_t& target) const {
    for (const char* key : keys) {
      if (!present(key)) continue;
      const auto value = number(key);
      if (!value || *value < 1 || *value > max_dimension) {
        return Status::invalid("{}: {} = {}, expected a whole number from 1 to {}", path_, key,
                               config_[key].dump(), max_dimension);
      }
      target = *value;
      return {};
    }
    return Status::invalid("{}: has no {}: not the config of a Llama-like model", path_, *keys.begin());
  }

  std::string path_;
  const Json& root_;
  const Json& config_;
};

Status divide(const std::string& path, std::string_view field, std::int64_t value, std::int64_t ranks,
              std::int64_t& share) {
  if (value % ranks != 0) {
    return Status::invalid("{}: {} = {} is not divisible by --tp {}", path, field, value, ranks);
  }
  share = value / ranks;
  return {};
}

Result<std::vector<Layer>> layers_of(const std::string& path, const Sizes& sizes,
                                     const ModelShapeOptions& options) {
  const std::int64_t ranks = options.tensor_parallel;
  std::int64_t heads = 0;
  std::int64_t kv_heads = 0;
  std::int64_t intermediate = 0;
  std::int64_t vocabulary = 0;
  GEMMTUNE_RETURN_IF_ERROR(divide(path, "num_attention_heads", sizes.heads, ranks, heads));
  if (ranks > sizes.kv_heads && ranks % sizes.kv_heads == 0) {
    kv_heads = 1;  // more ranks than KV heads: engines give each rank a copy of one
  } else {
    GEMMTUNE_RETURN_IF_ERROR(divide(path, "num_key_value_heads", sizes.kv_heads, ranks, kv_heads));
  }
  GEMMTUNE_RETURN_IF_ERROR(divide(path, "intermediate_size", sizes.intermediate, ranks, intermediate));
  if (options.lm_head)
    GEMMTUNE_RETURN_IF_ERROR(divide(path, "vocab_size", sizes.vocabulary, ranks, vocabulary));
  if (heads + 2 * kv_heads > max_dimension / sizes.head_dim) {
    return Status::invalid(
        "{}: num_attention_heads = {}, num_key_value_heads = {} and head_dim = {} make more "
        "than {} features",
        path, sizes.heads, sizes.kv_heads, sizes.head_dim, max_dimension);
  }
  std::vector<Layer> layers{
      {"qkv_proj", (heads + 2 * kv_heads) * sizes.head_dim, sizes.hidden, sizes.layers},
      {"o_proj", sizes.hidden, heads * sizes.head_dim, sizes.layers},
      {"gate_up_proj", 2 * intermediate, sizes.hidden, sizes.layers},
      {"down_proj", sizes.hidden, intermediate, sizes.layers},
  };
  if (options.lm_head) layers.push_back({"lm_head", vocabulary, sizes.hidden, 1});
  return layers;
}

Status check_options(const ModelShapeOptions& options) {
  const auto positive = [](std::string_view flag, std::int64_t value) -> Status {
    if (value >= 1 && value <= max_dimension) return {};
    return Status::invalid("{} {}, expected a whole number of at least 1", flag, value);
  };
  GEMMTUNE_RETURN_IF_ERROR(positive("--tp", options.tensor_parallel));
  GEMMTUNE_RETURN_IF_ERROR(positive("--batch_size", options.batch_size));
  if (options.tokens.empty())
    return Status::invalid("--nsets is empty, expected token counts such as 1,16,512");
  for (const std::int64_t tokens : options.tokens) GEMMTUNE_RETURN_IF_ERROR(positive("--nsets", tokens));
  return {};
}

ShapeRow make_row(const Layer& layer, std::int64_t m, DataType x_type, const ModelShapeOptions& options) {
  ShapeRow row;
  row.problem.m = m;
  row.problem.n = layer.n;
  row.problem.k = layer.k;
  row.problem.x_type = row.problem.w_type = options.x_type.value_or(x_type);
  row.problem.y_type = options.y_type.value_or(row.problem.x_type);
  row.calls = layer.calls;
  if (options.layer_names) row.layer = layer.name;
  return row;
}

}  // namespace

Result<ShapeList> model_shapes(const std::string& model_folder, const ModelShapeOptions& options) {
  const std::string path = model_folder + "/config.json";
  const auto content = read_file(path, max_config_bytes);
  if (!content.ok()) return content.status();
  return parse_model_config(path, *content, options);
}

Result<ShapeList> parse_model_config(const std::string& path, const std::string& content,
                                     const ModelShapeOptions& options) {
  GEMMTUNE_RETURN_IF_ERROR(check_options(options));
  const auto json = parse_json_object(path, content);
  if (!json.ok()) return json.status();
  const ConfigReader reader(path, *json);
  GEMMTUNE_RETURN_IF_ERROR(reader.check_kind());
  const auto sizes = reader.sizes();
  if (!sizes.ok()) return sizes.status();
  const auto type = reader.type();
  if (!type.ok()) return type.status();
  const auto layers = layers_of(path, *sizes, options);
  if (!layers.ok()) return layers.status();

  std::vector<std::int64_t> rows_of_x;
  for (const std::int64_t tokens : options.tokens) {
    if (tokens > max_dimension / options.batch_size) {
      return Status::invalid("--nsets {} times --batch_size {} is above {}", tokens, options.batch_size,
                             max_dimension);
    }
    rows_of_x.push_back(tokens * options.batch_size);
  }
  std::sort(rows_of_x.begin(), rows_of_x.end());
  rows_of_x.erase(std::unique(rows_of_x.begin(), rows_of_x.end()), rows_of_x.end());

  ShapeList list;
  list.source = path;
  // Logits are computed for the last token of each sequence only: one M, as in AITER's generator.
  for (const Layer& layer : *layers) {
    if (layer.name == "lm_head") list.rows.push_back(make_row(layer, options.batch_size, *type, options));
  }
  for (const std::int64_t m : rows_of_x) {
    for (const Layer& layer : *layers) {
      if (layer.name != "lm_head") list.rows.push_back(make_row(layer, m, *type, options));
    }
  }
  for (const ShapeRow& row : list.rows) {
    if (const Status status = check(row.problem); !status.ok()) {
      return Status(status.code(), fmt::format("{}: {}", path, status.message()));
    }
  }
  return list;
}

}  // namespace gemmtune
