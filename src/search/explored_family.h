// One family's candidates within a search, and what the times so far teach of the rest.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "search/settings_grid.h"
#include "search/strategy.h"
#include "search/surrogate.h"

namespace gemmtune {

struct ExploredFamily {
  std::vector<std::size_t> members;  // indices into the points, in their order: the family's default first
  SettingsGrid grid;                 // members numbered as in `members`
  Surrogate surrogate;               // points to the grid: not to be moved

  ExploredFamily(std::span<const SearchPoint> points, std::vector<std::size_t> of)
      : members(std::move(of)), grid(points, members), surrogate(grid, predictions(points, members)) {}
  /// The neighbours of a member that a search looks at, the nearest first; all are places in `members`.
  std::vector<std::size_t> around(std::size_t member, SettingsGrid::Reach reach) const {
    std::vector<std::size_t> close = grid.neighbours(member, reach);
    if (close.size() > max_around) close.resize(max_around);
    return close;
  }

  ExploredFamily(const ExploredFamily&) = delete;
  ExploredFamily& operator=(const ExploredFamily&) = delete;

 private:
  static constexpr std::size_t max_around = 24;

  static std::vector<double> predictions(std::span<const SearchPoint> points,
                                         const std::vector<std::size_t>& members) {
    std::vector<double> predicted;
    for (const std::size_t i : members) predicted.push_back(points[i].predicted);
    return predicted;
  }
};

}  // namespace gemmtune
