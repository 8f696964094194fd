// What every JSON reader needs beyond nlohmann's parser: errors with file:line, and a bound on nesting.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

#include "base/status.h"

namespace gemmtune {

inline constexpr std::size_t max_json_depth = 64;

/// "source:line: no JSON: why" for what nlohmann's parser says of byte `byte` (1-based); long texts are cut.
Status no_json(const std::string& source, std::string_view text, std::size_t byte, std::string_view why);

/// A JSON object, nested at most max_json_depth deep: printing a tree recurses once a level.
Result<nlohmann::json> parse_json_object(const std::string& source, const std::string& text);

}  // namespace gemmtune
