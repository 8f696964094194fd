#include "search/settings_grid.h"

#include <algorithm>
#include <cmath>
#include <map>

#include "base/text.h"

namespace gemmtune {
namespace {

/// Distinct texts → places: by number where all are numbers, else as they come.
std::map<std::string, std::uint32_t> places_of(const std::vector<std::string>& texts, bool& ordered) {
  std::vector<std::string> distinct;
  for (const std::string& text : texts) {
    if (std::find(distinct.begin(), distinct.end(), text) == distinct.end()) distinct.push_back(text);
  }
  ordered = std::all_of(distinct.begin(), distinct.end(),
                        [](const std::string& text) { return parse_integer(text).has_value(); });
  if (ordered) {
    std::sort(distinct.begin(), distinct.end(), [](const std::string& a, const std::string& b) {
      return *parse_integer(a) < *parse_integer(b);
    });
  }
  std::map<std::string, std::uint32_t> places;
  for (const std::string& text : distinct) places.emplace(text, static_cast<std::uint32_t>(places.size()));
  return places;
}

}  // namespace

SettingsGrid::SettingsGrid(std::span<const SearchPoint> points, std::span<const std::size_t> members)
    : size_(members.size()) {
  std::vector<std::string> keys;
  for (const std::size_t member : members) {
    for (const auto& [key, value] : points[member].candidate.config.settings()) {
      if (std::find(keys.begin(), keys.end(), key) == keys.end()) keys.push_back(key);
    }
  }
  for (const std::string& key : keys) {
    std::vector<std::string> texts;
    for (const std::size_t member : members) {
      texts.emplace_back(points[member].candidate.config.word(key));
    }
    Axis axis;
    const auto places = places_of(texts, axis.ordered);
    if (places.size() < 2) continue;
    axis.values = places.size();
    for (const std::string& text : texts) axis.places.push_back(places.at(text));
    axes_.push_back(std::move(axis));
  }
}

double SettingsGrid::distance(std::size_t axis, std::size_t a, std::size_t b) const {
  const Axis& on = axes_[axis];
  const auto first = static_cast<double>(on.places[a]);
  const auto second = static_cast<double>(on.places[b]);
  if (!on.ordered) return first == second ? 0 : 1;
  return std::abs(first - second) / static_cast<double>(on.values - 1);
}

}  // namespace gemmtune
