#include "formats/search_space/search_space_yaml.h"

#include <set>
#include <utility>

#include "base/file.h"
#include "base/text.h"
#include "formats/yaml_guard.h"

namespace gemmtune {
namespace {

constexpr std::string_view family_map = "a map of families with parameters, rules or replace";

class SpaceReader {
 public:
  explicit SpaceReader(const std::string& source) : source_(source) {}

  Status read(const YAML::Node& root, SearchSpace& space) const {
    return each(root, family_map, "family", [&](LocatedWord name, const YAML::Node& value) {
      FamilySpace family;
      family.family = std::move(name);
      GEMMTUNE_RETURN_IF_ERROR(read_family(value, family));
      space.families.push_back(std::move(family));
      return Status();
    });
  }

 private:
  template <typename... Words>
  Status wrong(const YAML::Node& node, fmt::format_string<Words...> text, Words&&... words) const {
    return Status::invalid("{}:{}: {}", source_, yaml_line(node),
                           fmt::format(text, std::forward<Words>(words)...));
  }

  /// Each member of a map whose keys are words and differ.
  template <typename Take>
  Status each(const YAML::Node& map, std::string_view expected, std::string_view what, Take take) const {
    if (!map.IsMap()) return wrong(map, "expected {}", expected);
    std::set<std::string> seen;
    for (const auto& member : map) {
      if (!member.first.IsScalar()) return wrong(member.first, "expected {}", expected);
      const std::string& name = member.first.Scalar();
      if (!seen.insert(name).second) return wrong(member.first, "{} '{}' twice", what, printable_word(name));
      GEMMTUNE_RETURN_IF_ERROR(take(LocatedWord{name, yaml_line(member.first)}, member.second));
    }
    return {};
  }

  Status read_family(const YAML::Node& node, FamilySpace& family) const {
    return each(node, "a map with parameters, rules or replace", "key",
                [&](const LocatedWord& key, const YAML::Node& value) {
                  if (key.text == "parameters") return read_parameters(value, family);
                  if (key.text == "rules") return read_rules(value, family);
                  if (key.text == "replace") return read_flag(value, "replace", family.replace);
                  return Status::invalid("{}:{}: '{}', expected parameters, rules or replace", source_,
                                         key.line, printable_word(key.text));
                });
  }

  Status read_parameters(const YAML::Node& node, FamilySpace& family) const {
    return each(node, "a map of parameters with values", "parameter",
                [&](LocatedWord key, const YAML::Node& value) {
                  ChosenParameter parameter;
                  parameter.key = std::move(key);
                  GEMMTUNE_RETURN_IF_ERROR(read_values(value, parameter));
                  family.parameters.push_back(std::move(parameter));
                  return Status();
                });
  }

  Status read_values(const YAML::Node& node, ChosenParameter& parameter) const {
    if (node.IsScalar()) {
      parameter.values.push_back({node.Scalar(), yaml_line(node)});
      return {};
    }
    if (!node.IsSequence() || node.size() == 0)
      return wrong(node, "parameter '{}': expected a list of values", printable_word(parameter.key.text));
    for (const YAML::Node& value : node) {
      if (!value.IsScalar())
        return wrong(value, "parameter '{}': expected a list of values", printable_word(parameter.key.text));
      parameter.values.push_back({value.Scalar(), yaml_line(value)});
    }
    return {};
  }

  Status read_rules(const YAML::Node& node, FamilySpace& family) const {
    return each(node, "a map of rules, each on or off", "rule",
                [&](LocatedWord name, const YAML::Node& value) {
                  ChosenRule rule;
                  GEMMTUNE_RETURN_IF_ERROR(read_flag(value, "rule '" + name.text + "'", rule.on));
                  rule.name = std::move(name);
                  family.rules.push_back(std::move(rule));
                  return Status();
                });
  }

  /// YAML's words: on, true, yes and off, false, no.
  Status read_flag(const YAML::Node& node, std::string_view what, bool& flag) const {
    if (node.IsScalar() && YAML::convert<bool>::decode(node, flag)) return {};
    return wrong(node, "{}: value '{}', expected on or off", printable_word(what),
                 node.IsScalar() ? printable_word(node.Scalar()) : "");
  }

  const std::string& source_;
};

}  // namespace

Result<SearchSpace> parse_search_space(const std::string& source, const std::string& content) {
  GEMMTUNE_TRY(const auto root, load_yaml_map(source, content, family_map));
  SearchSpace space;
  space.source = source;
  GEMMTUNE_RETURN_IF_ERROR(SpaceReader(source).read(root, space));
  return space;
}

Result<SearchSpace> read_search_space(const std::string& path) {
  GEMMTUNE_TRY(const auto content, read_file(path));
  return parse_search_space(path, content);
}

}  // namespace gemmtune
