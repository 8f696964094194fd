#include "formats/json_text.h"

#include <algorithm>
#include <exception>
#include <new>
#include <optional>

#include "formats/json.h"

namespace gemmtune {
namespace {

std::size_t line_at(std::string_view text, std::size_t byte) {
  const auto end = text.begin() + static_cast<std::ptrdiff_t>(std::min(byte, text.size()));
  return 1 + static_cast<std::size_t>(std::count(text.begin(), end, '\n'));
}

/// Where the text is nested deeper than max_json_depth, counting what the parser would count.
std::optional<std::size_t> too_deep_at(std::string_view text) {
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char character = text[at];
    if (in_string) {
      if (character == '\\') ++at;
      if (character == '"') in_string = false;
      continue;
    }
    if (character == '"') in_string = true;
    if (character == '[' || character == '{') ++depth;
    if ((character == ']' || character == '}') && depth > 0) --depth;
    if (depth > max_json_depth) return at;
  }
  return std::nullopt;
}

/// Destroys a value of this type: its members first, each by this function again.
template <typename Value>
void destroy_value(typename Value::value_t type, typename Value::object_t* object,
                   typename Value::array_t* array, typename Value::string_t* string,
                   typename Value::binary_t* binary) {
  using Type = typename Value::value_t;
  if (type == Type::object) delete object;
  if (type == Type::array) delete array;
  if (type == Type::string) delete string;
  if (type == Type::binary) delete binary;
}

constexpr int no_indent = -1;

template <typename AnyJson>
std::string line_of(const AnyJson& json) {
  return json.dump(no_indent, ' ', /*ensure_ascii=*/false, AnyJson::error_handler_t::replace);
}

template <typename AnyJson>
std::string document_of(const AnyJson& json) {
  return json.dump(/*indent=*/2, ' ', /*ensure_ascii=*/false, AnyJson::error_handler_t::replace) + "\n";
}

}  // namespace

Status no_json(const std::string& source, std::string_view text, std::size_t byte, std::string_view why) {
  constexpr std::size_t at_most = 200;  // the parser quotes what it read last, which may be all of the file
  const bool cut = why.size() > at_most;
  return Status::invalid("{}:{}: no JSON: {}{}", source, line_at(text, byte), why.substr(0, at_most),
                         cut ? "…" : "");
}

Json parse_json(std::string_view text) {
  // The parser would take it for the end of the text.
  if (text.find('\0') != std::string_view::npos) return Json(Json::value_t::discarded);
  if (too_deep_at(text)) return Json(Json::value_t::discarded);
  return Json::parse(text, nullptr, /*allow_exceptions=*/false);
}

std::string json_line(const Json& json) { return line_of(json); }
std::string json_line(const OrderedJson& json) { return line_of(json); }
std::string json_document(const Json& json) { return document_of(json); }
std::string json_document(const OrderedJson& json) { return document_of(json); }

std::string json_ascii_string(const std::string& text) {
  return Json(text).dump(no_indent, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace);
}

Status check_no_nul(const std::string& source, std::string_view text) {
  const std::size_t at = text.find('\0');
  if (at == std::string_view::npos) return {};
  return Status::invalid("{}:{}: a NUL byte, expected JSON", source, line_at(text, at));
}

Result<Json> parse_json_object(const std::string& source, const std::string& text) {
  GEMMTUNE_RETURN_IF_ERROR(check_no_nul(source, text));
  if (const auto at = too_deep_at(text)) {
    return Status::invalid("{}:{}: nested deeper than {} levels", source, line_at(text, *at), max_json_depth);
  }
  try {
    Json json = Json::parse(text);
    if (json.is_object()) return json;
    return Status::invalid("{}:1: expected a JSON object", source);
  } catch (const Json::parse_error& error) {
    return no_json(source, text, error.byte, error.what());
  } catch (const Json::out_of_range& error) {  // a number such as 1e999: without a place
    return no_json(source, text, 0, error.what());
  } catch (const std::bad_alloc&) {  // says nothing of the file
    throw;
  } catch (const std::exception& error) {
    return Status::invalid("{}: no JSON: {}", source, error.what());
  }
}

}  // namespace gemmtune

// nlohmann makes them with std::allocator, whose counterpart is delete; null where the memory for one failed.
template <>
void gemmtune::Json::json_value::destroy(value_t type) {
  gemmtune::destroy_value<gemmtune::Json>(type, object, array, string, binary);
}
template <>
void gemmtune::OrderedJson::json_value::destroy(value_t type) {
  gemmtune::destroy_value<gemmtune::OrderedJson>(type, object, array, string, binary);
}
