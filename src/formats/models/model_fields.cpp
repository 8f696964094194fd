#include "formats/models/model_fields.h"

#include <array>
#include <optional>
#include <utility>

namespace gemmtune {
namespace {

struct Nested {
  const char* outer;
  const char* inner;  // nullptr: the language model is `outer` itself
};
constexpr std::array<Nested, 4> nested_configs{{{"text_config", nullptr},
                                                {"language_config", nullptr},
                                                {"llm_config", nullptr},
                                                {"thinker_config", "text_config"}}};

bool has_sizes(const Json& config) { return member(config, "hidden_size") || member(config, "n_embd"); }

std::optional<std::int64_t> integer(const Json& value, std::int64_t least) {
  if (!value.is_number_integer()) return std::nullopt;
  // An unsigned number above int64's range would wrap: max_dimension is far below.
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(max_dimension)) {
    return std::nullopt;
  }
  const auto number = value.get<std::int64_t>();
  if (number < least || number > max_dimension) return std::nullopt;
  return number;
}

std::string range_text(std::int64_t least) {
  return fmt::format("a whole number from {} to {}", least, max_dimension);
}

}  // namespace

const Json* member(const Json& object, const char* key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(key);
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

ModelFields::ModelFields(std::string path, Json root)
    : path_(std::move(path)), root_(std::make_unique<const Json>(std::move(root))), config_(root_.get()) {
  for (const Nested& nested : nested_configs) {
    const Json* part = member(*root_, nested.outer);
    if (part != nullptr && nested.inner != nullptr)
      part = part->is_object() ? member(*part, nested.inner) : nullptr;
    if (part == nullptr || !part->is_object() || !has_sizes(*part)) continue;
    config_ = part;
    prefix_ = fmt::format("{}.", nested.outer);
    if (nested.inner != nullptr) prefix_ += fmt::format("{}.", nested.inner);
    return;
  }
}

Result<ModelFields> ModelFields::parse(const std::string& path, const std::string& content) {
  GEMMTUNE_TRY(auto json, parse_json_object(path, content));
  return ModelFields(path, std::move(json));
}

const Json* ModelFields::find(const char* key) const { return member(*config_, key); }

const Json* ModelFields::find_anywhere(const char* key) const {
  const Json* found = find(key);
  return found != nullptr ? found : member(*root_, key);
}

std::string ModelFields::named(const char* key, std::string_view expected) const {
  const Json* value = find(key);
  const std::string_view prefix = value != nullptr ? std::string_view(prefix_) : std::string_view();
  if (value == nullptr) value = find_anywhere(key);
  const std::string text =
      value != nullptr ? value->dump(-1, ' ', false, Json::error_handler_t::replace) : "null";
  return fmt::format("{}: {}{} = {}, expected {}", path_, prefix, key, text, expected);
}

void ModelFields::refuse(std::string text) {
  if (status_.ok()) status_ = Status(StatusCode::invalid_argument, std::move(text));
}

std::int64_t ModelFields::number(std::initializer_list<const char*> keys) {
  for (const char* key : keys) {
    if (has(key)) return number_or(key, 1);
  }
  refuse(fmt::format("{}: has no {}{}, which gives the model's shapes", path_, prefix_, *keys.begin()));
  return 1;
}

std::int64_t ModelFields::number_or(const char* key, std::int64_t otherwise, std::int64_t least) {
  const Json* value = find(key);
  if (value == nullptr) return otherwise;
  const auto number = integer(*value, least);
  if (!number) refuse(named(key, range_text(least)));
  return number.value_or(1);
}

bool ModelFields::flag(const char* key) {
  const Json* value = find(key);
  if (value == nullptr) return false;
  if (!value->is_boolean()) refuse(named(key, "true or false"));
  return value->is_boolean() && value->get<bool>();
}

std::string ModelFields::text(const char* key) {
  const Json* value = find_anywhere(key);
  if (value == nullptr) return {};
  if (!value->is_string()) refuse(named(key, "a text"));
  return value->is_string() ? value->get<std::string>() : std::string();
}

std::vector<std::int64_t> ModelFields::numbers(const char* key) {
  std::vector<std::int64_t> list;
  const Json* value = find(key);
  if (value == nullptr) return list;
  if (!value->is_array()) refuse(named(key, "a list of whole numbers"));
  for (const Json& element : value->is_array() ? *value : Json::array()) {
    const auto number = integer(element, 0);
    if (!number) refuse(named(key, "a list of whole numbers of at least 0"));
    list.push_back(number.value_or(0));
  }
  return list;
}

DataType ModelFields::type() {
  for (const char* key : {"torch_dtype", "dtype"}) {
    const Json* value = find_anywhere(key);
    if (value == nullptr) continue;
    const auto parsed = value->is_string() ? parse_data_type(value->get<std::string>()) : std::nullopt;
    if (parsed == DataType::bf16 || parsed == DataType::f16 || parsed == DataType::f32) return *parsed;
    refuse(named(key, "bfloat16, float16 or float32"));
  }
  return DataType::bf16;
}

}  // namespace gemmtune
