// Configs at values of a parameter's range that no search lists.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "candidates/space.h"

namespace gemmtune {

/// `config` with one parameter at a value of its range beside the listed ones, by the parameter's key: the smallest value and the
/// largest that can be built with the others, of each parameter with a range that ends. A range without such a value fails.
inline std::map<std::string, std::vector<Config>> configs_of_ranges(const Space& space,
                                                                    const Config& config) {
  std::map<std::string, std::vector<Config>> found;
  for (const Parameter& parameter : space.parameters()) {
    if (!parameter.range || parameter.range->is_any()) continue;
    std::vector<Config> built;
    const NumberRange& range = *parameter.range;
    for (std::int64_t value = range.first; value <= range.last; value += range.step) {
      const std::string text = std::to_string(value);
      if (std::ranges::find(parameter.values, text) != parameter.values.end()) continue;
      Config other = config;
      other.set(parameter.key, text);
      if (space.build_refusal(other).empty()) built.push_back(std::move(other));
    }
    EXPECT_FALSE(built.empty()) << parameter.key << ": no value of " << range.text()
                                << " can be built beside the listed ones";
    std::vector<Config>& ends = found[parameter.key];
    if (!built.empty()) ends.push_back(built.front());
    if (built.size() > 1) ends.push_back(built.back());
  }
  return found;
}

}  // namespace gemmtune
