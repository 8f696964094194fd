// Which configs of a space a test compiles that has no time for all.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "candidates/space.h"

namespace gemmtune {

/// Configs in which each parameter is at its first or last allowed value: the corners of what enumerates.
inline std::vector<Config> corners(const Space& space) {
  std::vector<Config> found;
  for (const Config& config : space.enumerate()) {
    bool corner = true;
    for (const Parameter& parameter : space.parameters()) {
      if (parameter.values.empty()) continue;
      const std::string_view value = config.word(parameter.key);
      corner = corner && (value == parameter.values.front() || value == parameter.values.back());
    }
    if (corner) found.push_back(config);
  }
  return found;
}

/// The same of what can be built, whether a search would try it or not.
inline std::vector<Config> corners_that_build(const Space& space) {
  std::vector<Config> found{Config()};
  for (const Parameter& parameter : space.parameters()) {
    if (parameter.values.empty()) continue;
    std::vector<Config> longer;
    for (const Config& config : found) {
      for (const std::string& value : {parameter.values.front(), parameter.values.back()}) {
        longer.push_back(config);
        longer.back().set(parameter.key, value);
      }
    }
    found = std::move(longer);
  }
  std::erase_if(found, [&](const Config& config) { return !space.build_refusal(config).empty(); });
  return found;
}

/// Of the wgmma family: for each mainloop the widest tile with multicast, which needs most registers.
inline std::vector<Config> widest_tiles(const Space& space) {
  std::map<std::string, Config> found;
  for (const Config& config : space.enumerate()) {
    std::string shape;
    for (const char* key : {"swap", "bm", "wg", "pp", "bk", "prom"})
      shape += std::string(config.word(key)) + " ";
    shape += config.number("csk") > 1 ? "split" : "";
    Config& widest = found.try_emplace(shape, config).first->second;
    const auto needs = [](const Config& of) {
      return std::pair{of.number("bn"), of.number("cm") * of.number("cn") > 1};
    };
    if (needs(config) > needs(widest)) widest = config;
  }
  std::vector<Config> configs;
  for (const auto& [shape, config] : found) configs.push_back(config);
  return configs;
}

/// Of the mxfp4 family: what differs in its sources.
inline std::vector<Config> tiles(const Space& space) {
  std::map<std::string, Config> found;
  for (const Config& config : space.enumerate()) {
    std::string shape;
    for (const char* key : {"wg", "bm", "bn", "mma", "bk", "scaled", "stream"})
      shape += std::string(config.word(key)) + " ";
    // Blocks of a cluster have an epilogue of their own, and do not keep what comes behind a tile.
    found.try_emplace(shape + (config.number("csk", 1) > 1 ? "split" : ""), config);
  }
  std::vector<Config> configs;
  for (const auto& [shape, config] : found) configs.push_back(config);
  return configs;
}

/// At most so many of `all`, from end to end.
inline std::vector<Config> apart(const std::vector<Config>& all, std::size_t most) {
  std::vector<Config> chosen;
  for (std::size_t i = 0; i < std::min(most, all.size()); ++i)
    chosen.push_back(all[i * all.size() / std::min(most, all.size())]);
  return chosen;
}

}  // namespace gemmtune
