// What is in a folder.
#pragma once

#include <string>
#include <vector>

namespace gemmtune {

/// The paths of a folder's entries, sorted; none if it cannot be read. (Iterators of std::filesystem end the
/// process if there is no memory.)
std::vector<std::string> paths_in(const std::string& folder);

}  // namespace gemmtune
