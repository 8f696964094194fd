// YAML as it comes from outside: loaded only when it cannot overflow the stack or fill the memory.
#pragma once

#include <yaml-cpp/yaml.h>

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"

namespace gemmtune {

/// yaml-cpp takes some hundred bytes of memory for a byte of text.
inline constexpr std::size_t max_yaml_bytes = std::size_t{1} << 22;

/// Loads a YAML list (an empty text is an empty list). Errors name source:line: what is no YAML, no list, has
/// a NUL byte (UTF-16 has) or a second document, is nested deeper than 16 levels, uses anchors or aliases, or is above
/// max_yaml_bytes. No exception leaves it; reading scalars of the node throws none either.
Result<YAML::Node> load_yaml_list(const std::string& source, const std::string& content);

/// The same of a YAML map (an empty text is an empty map); `expected` stands in the errors.
Result<YAML::Node> load_yaml_map(const std::string& source, const std::string& content,
                                 std::string_view expected);

/// 1-based.
std::size_t yaml_line(const YAML::Node& node);

}  // namespace gemmtune
