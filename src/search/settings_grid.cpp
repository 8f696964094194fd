#include "search/settings_grid.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/text.h"

namespace gemmtune {
namespace {

constexpr std::size_t axes_limit = std::numeric_limits<std::size_t>::max();

/// Distinct texts → places: by number where all are numbers, else as they come.
std::map<std::string, std::uint32_t> places_of(const std::vector<std::string>& texts, bool& ordered) {
  std::vector<std::string> distinct;
  for (const std::string& text : texts) {
    if (std::find(distinct.begin(), distinct.end(), text) == distinct.end()) distinct.push_back(text);
  }
  ordered =
      std::ranges::all_of(distinct, [](const std::string& text) { return parse_integer(text).has_value(); });
  if (ordered) {
    std::ranges::sort(distinct, [](const std::string& a, const std::string& b) {
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

/// Of the values on ordered axes that lie on one side of the member's, the nearest.
void SettingsGrid::keep_next(std::size_t member, Steps& steps) const {
  const auto is_farther = [&](const auto& step) {
    const auto [axis, to] = step.first;
    if (!axes_[axis].ordered) return false;
    const std::uint32_t from = axes_[axis].places[member];
    const auto first = steps.lower_bound({axis, to > from ? from + 1 : to + 1});
    const auto end = steps.lower_bound({axis, to > from ? to : from});
    return first != end;
  };
  std::set<std::pair<std::size_t, std::uint32_t>> farther;
  for (const auto& step : steps) {
    if (is_farther(step)) farther.insert(step.first);
  }
  for (const auto& place : farther) steps.erase(place);
}

std::vector<std::size_t> SettingsGrid::neighbours(std::size_t member, Reach reach) const {
  Steps steps;
  for (std::size_t other = 0; other < size_; ++other) {
    std::vector<std::size_t> different;
    for (std::size_t axis = 0; axis < axes_.size() && different.size() < 3; ++axis)
      if (axes_[axis].places[member] != axes_[axis].places[other]) different.push_back(axis);
    if (different.empty() || different.size() > 2) continue;
    for (const std::size_t axis : different) {
      const std::uint32_t from = axes_[axis].places[member];
      const std::uint32_t to = axes_[axis].places[other];
      const bool is_alone = different.size() == 1;
      const bool is_beside = !axes_[axis].ordered || (from < to ? to - from : from - to) == 1;
      if (reach == Reach::next_value && !is_beside && !is_alone) continue;
      Step step{other};
      if (different.size() == 2) {
        step.along = different[axis == different[0] ? 1 : 0];
        step.distance = distance(step.along, member, other);
      }
      steps[{axis, to}].push_back(step);
    }
  }
  if (reach == Reach::next_value) keep_next(member, steps);
  std::set<std::size_t> close;
  for (const auto& [place, others] : steps) {
    const auto alone =
        std::ranges::find_if(others, [](const Step& step) { return step.along == axes_limit; });
    if (alone != others.end()) {
      close.insert(alone->other);
      continue;
    }
    // A value that is possible beside another one only: the nearest of those, on each axis.
    std::map<std::size_t, const Step*> nearest;
    for (const Step& step : others) {
      const Step*& best = nearest[step.along];
      if (best == nullptr || step.distance < best->distance) best = &step;
    }
    for (const auto& [axis, step] : nearest) close.insert(step->other);
  }
  const auto apart = [&](std::size_t other) {
    double sum = 0;
    for (std::size_t axis = 0; axis < axes_.size(); ++axis) sum += distance(axis, member, other);
    return sum;
  };
  std::vector<std::size_t> nearest_first(close.begin(), close.end());
  std::ranges::stable_sort(nearest_first, [&](std::size_t a, std::size_t b) { return apart(a) < apart(b); });
  return nearest_first;
}

}  // namespace gemmtune
