// Colon-separated lists of paths, as AITER's environment variables have them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gemmtune {

/// "a.csv:b.csv" without empty parts and blanks around them.
std::vector<std::string> path_list(std::string_view text);

}  // namespace gemmtune
