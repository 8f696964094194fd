#include "search/refinement.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "search/samples.h"

namespace gemmtune {
namespace {

// Families whose best is slower than this are not walked. Wide, because screening compares thread pools
// badly: finals moved families against each other by up to 38 %.
constexpr double walked_within = 1.5;
constexpr std::size_t walks_per_family = 3;
constexpr double min_room = 0.01;  // as a share of the time; the noise comes on top
constexpr double max_noise = 0.1;
constexpr double likely_enough = 0.05;  // to be within the limit, for a candidate that nobody tried

/// Two medians of so many samples differ by this where the candidates are equal.
double room_for_noise(std::span<const SearchPoint> points, int samples) {
  const double noise = 2 * sample_deviation(points) * std::sqrt(2.0 / samples);
  return min_room + std::min(noise, max_noise);
}

bool is_below(const Surrogate::Belief& belief, double microseconds) {
  const double z = (std::log(microseconds) - belief.mean) / std::max(belief.deviation, 1e-9);
  return std::erfc(-z / M_SQRT2) / 2 >= likely_enough;
}

}  // namespace

Refinement::Refinement(std::span<const SearchPoint> points, const Families& families,
                       std::vector<std::size_t> survivors, int samples)
    : samples_(samples), room_(room_for_noise(points, samples)) {
  const auto cost = [&](std::size_t i) { return sample_median(points[i].samples); };
  std::ranges::stable_sort(survivors, [&](std::size_t a, std::size_t b) { return cost(a) < cost(b); });
  for (const auto& family : families) {
    const std::string& name = points[family->members.front()].candidate.family;
    std::size_t walks = 0;
    for (const std::size_t i : survivors) {
      if (points[i].candidate.family != name) continue;
      if (cost(i) > walked_within * cost(survivors.front()) || walks++ == walks_per_family) break;
      starts_.push_back(
          {family.get(), PlainerWalk(points, family->members, i, room_), i == survivors.front()});
    }
  }
}

SearchStep Refinement::next(std::span<const SearchPoint> points) {
  SearchStep step = walk(points);
  return step.candidates.empty() ? look_around(points) : step;
}

SearchStep Refinement::walk(std::span<const SearchPoint> points) {
  for (; walking_ < starts_.size(); ++walking_) {
    PlainerWalk& walk = starts_[walking_].walk;
    if (const auto next = walk.next(points, static_cast<std::size_t>(samples_)))
      return {{*next}, samples_ - static_cast<int>(points[*next].samples.size())};
    found_.push_back(walk.reached());
  }
  return {};
}

void Refinement::choose_places() {
  for (const Start& start : starts_) {
    const std::size_t usual = start.family->members.front();
    const bool known =
        std::ranges::any_of(places_, [&](const Place& place) { return place.centre == usual; });
    places_.push_back({start.family, start.walk.reached(), start.walk.reached(), start.is_fastest});
    if (!known) places_.push_back({start.family, usual, start.walk.reached(), true});
  }
}

SearchStep Refinement::look_around(std::span<const SearchPoint> points) {
  if (places_.empty()) choose_places();
  for (; looking_ < places_.size(); ++looking_) {
    const Place& place = places_[looking_];
    if (sampled_.empty()) {
      sampled_ = untried_around(points, place);
      if (!sampled_.empty()) return {sampled_, 1};
    }
    // The further samples of those that seem as fast.
    SearchStep step{{}, samples_ - 1};
    for (const std::size_t i : std::exchange(sampled_, {})) {
      if (!is_usable(points[i]) || sample_median(points[i].samples) > limit_of(points, place)) continue;
      step.candidates.push_back(i);
      found_.push_back(i);
    }
    if (step.samples > 0 && !step.candidates.empty()) {
      ++looking_;
      return step;
    }
  }
  return {};
}

double Refinement::limit_of(std::span<const SearchPoint> points, const Place& place) const {
  return (1 + room_) * sample_median(points[place.fast].samples);
}

std::vector<std::size_t> Refinement::untried_around(std::span<const SearchPoint> points,
                                                    const Place& place) const {
  const auto& members = place.family->members;
  const auto centre = std::find(members.begin(), members.end(), place.centre);
  const bool usual = centre == members.begin();
  const auto reach = usual ? SettingsGrid::Reach::any_value : SettingsGrid::Reach::next_value;
  std::vector<std::size_t> untried;
  for (const std::size_t member :
       place.family->around(static_cast<std::size_t>(centre - members.begin()), reach)) {
    const SearchPoint& point = points[members[member]];
    if (point.failed || !point.samples.empty()) continue;
    if (place.all || is_below(place.family->surrogate.belief(member), limit_of(points, place)))
      untried.push_back(members[member]);
  }
  return untried;
}

}  // namespace gemmtune
