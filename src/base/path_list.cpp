#include "base/path_list.h"

#include "base/text.h"

namespace gemmtune {

std::vector<std::string> path_list(std::string_view text) {
  std::vector<std::string> paths;
  for (const std::string_view part : split(text, ':')) {
    if (!trim(part).empty()) paths.emplace_back(trim(part));
  }
  return paths;
}

}  // namespace gemmtune
