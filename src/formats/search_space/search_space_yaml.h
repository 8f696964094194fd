// A search-space file: YAML, family → parameters, rules, replace (docs/search_space.md).
#pragma once

#include <string>

#include "base/status.h"
#include "candidates/search_space.h"

namespace gemmtune {

/// An error names file and line: what is no map of families, a key or value of another kind, twice the same family,
/// parameter or rule, a parameter without values. If the families have it is not checked here.
Result<SearchSpace> parse_search_space(const std::string& source, const std::string& content);
/// The same of a file.
Result<SearchSpace> read_search_space(const std::string& path);

}  // namespace gemmtune
