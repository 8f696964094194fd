// The end of a staged search. Where dozens of candidates are as fast as each other, two runs find two of
// them. From the fastest of each family a walk goes to a plain one (plainer_walk.h); around what it reached
// and around the family's default, neighbours that may be as fast are tried, so that each run gets to know
// what the other one names.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "search/explored_family.h"
#include "search/plainer_walk.h"
#include "search/strategy.h"

namespace gemmtune {

class Refinement {
 public:
  using Families = std::vector<std::unique_ptr<ExploredFamily>>;

  /// `survivors`: indices of usable points, whose samples say where the walks begin. `samples`: of a
  /// candidate that stays. The families must outlive this.
  Refinement(std::span<const SearchPoint> points, const Families& families,
             std::vector<std::size_t> survivors, int samples);

  /// Deterministic; empty at the end.
  SearchStep next(std::span<const SearchPoint> points);
  /// What the walks reached and what is as fast close by. Complete at the end.
  const std::vector<std::size_t>& found() const { return found_; }

 private:
  struct Start {
    const ExploredFamily* family;
    PlainerWalk walk;
    bool is_fastest = false;  // it begins at the fastest of all families
  };
  /// Whose neighbours are tried, and the candidate that they have to be as fast as.
  struct Place {
    const ExploredFamily* family;
    std::size_t centre;
    std::size_t fast;
    bool all = false;  // neighbours are tried whatever is believed of them
  };

  SearchStep walk(std::span<const SearchPoint> points);
  void choose_places();
  SearchStep look_around(std::span<const SearchPoint> points);
  /// The neighbours that were not tried and may be within the limit.
  std::vector<std::size_t> untried_around(std::span<const SearchPoint> points, const Place& place) const;
  /// Microseconds up to which a candidate seems as fast.
  double limit_of(std::span<const SearchPoint> points, const Place& place) const;

  int samples_;
  double room_;  // how much slower an equal candidate may seem, as a share
  std::vector<Start> starts_;
  std::size_t walking_ = 0;           // index of a start
  std::vector<Place> places_;         // once the walks have ended; then …
  std::size_t looking_ = 0;           // … index of the place that is looked around
  std::vector<std::size_t> sampled_;  // around it, once each
  std::vector<std::size_t> found_;
};

}  // namespace gemmtune
