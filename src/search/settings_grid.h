// The settings of one family's candidates as places on axes, one axis a parameter: what "one step further"
// and "close by" mean for a search.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "search/strategy.h"

namespace gemmtune {

/// Values of a parameter that are all numbers lie on their axis in ascending order, evenly from 0 to 1; words
/// have no order. Members are numbered as they were given.
class SettingsGrid {
 public:
  /// `members`: indices into `points`, all of one family.
  SettingsGrid(std::span<const SearchPoint> points, std::span<const std::size_t> members);

  std::size_t size() const { return size_; }
  std::size_t axes() const { return axes_.size(); }
  /// 0 to 1: how far apart two members are on an axis; 1 for different words.
  double distance(std::size_t axis, std::size_t a, std::size_t b) const;
  /// How many values members have on an axis.
  std::size_t values(std::size_t axis) const { return axes_[axis].values; }
  /// The place of a member's value on an axis, from 0.
  std::size_t place(std::size_t axis, std::size_t member) const { return axes_[axis].places[member]; }
  enum class Reach { next_value, any_value };
  /// Members that differ from this one by the value of one axis: the next one on either side that a member has
  /// beside this one's other values, or any (words have no order: any). Where a value is possible beside another
  /// value of a second axis only, the nearest there. The nearest first.
  std::vector<std::size_t> neighbours(std::size_t member, Reach reach) const;

 private:
  struct Axis {
    bool ordered = false;
    std::size_t values = 0;
    std::vector<std::uint32_t> places;  // of the members
  };
  /// To a member that differs on one axis or two.
  struct Step {
    std::size_t other = 0;
    std::size_t along = std::numeric_limits<std::size_t>::max();  // the second axis; none
    double distance = 0;                                          // on it
  };
  /// By axis and the place of the value there.
  using Steps = std::map<std::pair<std::size_t, std::uint32_t>, std::vector<Step>>;

  void keep_next(std::size_t member, Steps& steps) const;

  std::size_t size_;
  std::vector<Axis> axes_;  // those on which members differ
};

}  // namespace gemmtune
