#include "search/plainer_walk.h"

#include <utility>

#include "search/samples.h"

namespace gemmtune {

PlainerWalk::PlainerWalk(std::span<const SearchPoint> points, std::span<const std::size_t> members,
                         std::size_t begin, double room)
    : default_(members.front()), reached_(begin), limit_((1 + room) * sample_median(points[begin].samples)) {
  for (const std::size_t member : members) by_text_.emplace(points[member].candidate.config.text(), member);
  for (const auto& [key, value] : points[default_].candidate.config.settings()) keys_.push_back(key);
}

std::optional<std::size_t> PlainerWalk::step(std::span<const SearchPoint> points,
                                             const std::string& key) const {
  const Config& usual = points[default_].candidate.config;
  Config config = points[reached_].candidate.config;
  const auto give_up = [&](const std::string& what) {
    const std::string* here = config.find(what);
    const std::string* there = usual.find(what);
    if (here == nullptr || there == nullptr || *here == *there) return false;
    config.set(what, *there);
    return true;
  };
  if (!give_up(key)) return std::nullopt;
  if (const auto found = by_text_.find(config.text()); found != by_text_.end()) return found->second;
  // A wide tile that fits beside this number of rows only: both at once.
  const Config alone = config;
  for (const std::string& other : keys_) {
    config = alone;
    if (!give_up(other)) continue;
    if (const auto found = by_text_.find(config.text()); found != by_text_.end()) return found->second;
  }
  return std::nullopt;
}

std::optional<std::size_t> PlainerWalk::next(std::span<const SearchPoint> points, std::size_t samples) {
  while (true) {
    if (at_ == keys_.size()) {
      if (!std::exchange(moved_, false)) return std::nullopt;
      at_ = 0;  // a setting that was not possible beside the others may be now
    }
    const auto plainer = step(points, keys_[at_]);
    if (plainer && !points[*plainer].failed) {
      if (points[*plainer].samples.size() < samples) return plainer;
      if (sample_median(points[*plainer].samples) <= limit_) {
        reached_ = *plainer;
        moved_ = true;
      }
    }
    ++at_;
  }
}

}  // namespace gemmtune
