#include "formats/errata/erratum_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <set>
#include <vector>

#include "base/text.h"
#include "formats/json.h"

namespace gemmtune {
namespace {

/// A key of the object with its line.
struct Key {
  std::string name;
  std::size_t line = 0;
};

/// The keys of the outermost object. Requires text that is JSON.
std::vector<Key> keys_of(std::string_view text) {
  std::vector<Key> keys;
  std::size_t line = 1;
  int depth = 0;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char letter = text[at];
    if (letter == '\n') ++line;
    if (letter == '{' || letter == '[') ++depth;
    if (letter == '}' || letter == ']') --depth;
    if (letter != '"') continue;
    std::size_t end = at + 1;
    while (end < text.size() && text[end] != '"') end += text[end] == '\\' ? 2 : 1;
    const std::size_t next = text.find_first_not_of(" \t\r\n", end + 1);
    if (depth == 1 && next < text.size() && text[next] == ':') {
      keys.push_back({std::string(text.substr(at + 1, end - at - 1)), line});
    }
    at = end;
  }
  return keys;
}

/// Reads one value; the error is what was expected.
using ReadValue = std::function<Status(const Json& value, Erratum& erratum)>;

struct Field {
  std::string_view key;
  bool required;
  ReadValue read;
};

Status expected(std::string_view what) { return Status::invalid("expected {}", what); }

ReadValue text_into(std::string Erratum::*member) {
  return [member](const Json& value, Erratum& erratum) {
    if (!value.is_string() || value.get_ref<const std::string&>().empty()) return expected("a text");
    erratum.*member = value.get<std::string>();
    return Status();
  };
}

/// Dotted numbers; empty if the text is no version.
std::optional<std::string> parse_version(std::string_view text) {
  for (const std::string_view word : split(text, '.')) {
    if (!parse_integer(word)) return std::nullopt;
  }
  return text.empty() ? std::nullopt : std::optional(std::string(text));
}

ReadValue version_into(std::string Erratum::*member) {
  return [member](const Json& value, Erratum& erratum) {
    const auto version = parse_version(value.is_string() ? value.get<std::string>() : std::string());
    if (!version) return expected("a version as \"13.1\"");
    erratum.*member = *version;
    return Status();
  };
}

template <typename Value>
ReadValue list_into(std::vector<Value> Erratum::*member, std::optional<Value> (*parse)(std::string_view),
                    std::string_view what) {
  return [=](const Json& list, Erratum& erratum) {
    if (!list.is_array()) return Status::invalid("expected a list of {}", what);
    for (const Json& word : list) {
      const auto value = word.is_string() ? parse(word.get_ref<const std::string&>()) : std::nullopt;
      if (!value) return Status::invalid("{} is unknown, expected {}", json_line(word), what);
      (erratum.*member).push_back(*value);
    }
    return Status();
  };
}

std::optional<std::string> any_word(std::string_view text) {
  return text.empty() ? std::nullopt : std::optional(std::string(text));
}

/// The word itself: a device decides what it means.
std::optional<std::string> type_word(std::string_view text) {
  return parse_data_type(text) ? std::optional(std::string(text)) : std::nullopt;
}

Status read_condition(const Json& value, Erratum& erratum) {
  if (!value.is_string()) return expected("a condition as \"k % 2 == 1 and m >= 33\"");
  GEMMTUNE_TRY(erratum.condition, IntegerExpression::parse(value.get_ref<const std::string&>()));
  return {};
}

Status read_effect(const Json& value, Erratum& erratum) {
  for (const ErratumEffect effect : {ErratumEffect::wrong, ErratumEffect::crash}) {
    if (value != to_string(effect)) continue;
    erratum.effect = effect;
    return {};
  }
  return expected("\"wrong\" or \"crash\"");
}

const std::vector<Field>& fields() {
  static const std::vector<Field> list{
      {"name", true, text_into(&Erratum::name)},
      {"family", true, text_into(&Erratum::family)},
      {"first_version", false, version_into(&Erratum::first_version)},
      {"last_version", false, version_into(&Erratum::last_version)},
      {"repaired", false,
       list_into<std::string>(&Erratum::repaired, parse_version, "versions as \"13.1.1\"")},
      {"architectures", false, list_into<std::string>(&Erratum::architectures, any_word, "architectures")},
      {"operations", false, list_into<OperationForm>(&Erratum::operations, parse_operation, "operations")},
      {"types", false, list_into<std::string>(&Erratum::types, type_word, "data types")},
      {"parameters", false, list_into<std::string>(&Erratum::parameters, any_word, "config keys")},
      {"condition", true, read_condition},
      {"effect", true, read_effect},
      {"what", true, text_into(&Erratum::what)},
      {"found", true, text_into(&Erratum::found)},
      {"repro", true, text_into(&Erratum::repro)},
  };
  return list;
}

/// ok, or which name of the condition has no meaning.
Status check_names(const Erratum& erratum) {
  const auto known = erratum_sizes();
  for (const std::string& name : erratum.condition.names()) {
    const auto& keys = erratum.parameters;
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    if (std::find(keys.begin(), keys.end(), name) != keys.end()) continue;
    return Status::invalid("condition: '{}' is unknown, expected {} or one of parameters", name,
                           fmt::format("{}", fmt::join(known, ", ")));
  }
  return {};
}

template <typename Value>
OrderedJson words_of(const std::vector<Value>& list) {
  OrderedJson words = OrderedJson::array();
  for (const Value& value : list) words.push_back(to_string(value));
  return words;
}

}  // namespace

Result<Erratum> parse_erratum(const std::string& source, const std::string& text) {
  GEMMTUNE_TRY(const auto json, parse_json_object(source, text));
  Erratum erratum;
  std::set<std::string, std::less<>> seen;
  std::size_t condition_line = 1;
  for (const Key& key : keys_of(text)) {
    const auto field = std::ranges::find_if(fields(), [&](const Field& one) { return one.key == key.name; });
    if (field == fields().end()) {
      const std::string known = joined(fields(), ", ", &Field::key);
      return Status::invalid("{}:{}: field '{}' is unknown, expected {}", source, key.line, key.name, known);
    }
    if (!seen.insert(key.name).second) {
      return Status::invalid("{}:{}: field '{}' is there twice", source, key.line, key.name);
    }
    if (const Status read = field->read(json.at(key.name), erratum); !read.ok()) {
      return Status::invalid("{}:{}: {}: {}", source, key.line, key.name, read.message());
    }
    if (key.name == "condition") condition_line = key.line;
  }
  for (const Field& field : fields()) {
    if (field.required && !seen.contains(field.key)) {
      return Status::invalid("{}:1: field '{}' is missing", source, field.key);
    }
  }
  if (const Status names = check_names(erratum); !names.ok()) {
    return Status::invalid("{}:{}: {}", source, condition_line, names.message());
  }
  return erratum;
}

std::string print_erratum(const Erratum& erratum) {
  OrderedJson json;
  json["name"] = erratum.name;
  json["family"] = erratum.family;
  if (!erratum.first_version.empty()) json["first_version"] = erratum.first_version;
  if (!erratum.last_version.empty()) json["last_version"] = erratum.last_version;
  if (!erratum.repaired.empty()) json["repaired"] = erratum.repaired;
  if (!erratum.architectures.empty()) json["architectures"] = erratum.architectures;
  if (!erratum.operations.empty()) json["operations"] = words_of(erratum.operations);
  if (!erratum.types.empty()) json["types"] = erratum.types;
  if (!erratum.parameters.empty()) json["parameters"] = erratum.parameters;
  json["condition"] = erratum.condition.text();
  json["effect"] = to_string(erratum.effect);
  json["what"] = erratum.what;
  json["found"] = erratum.found;
  json["repro"] = erratum.repro;
  return json_document(json);
}

}  // namespace gemmtune
