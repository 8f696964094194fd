// From a fast candidate towards its family's default, one setting after the other, as far as that costs
// nothing that can be measured. Where dozens of candidates are as fast as each other, two runs find two of
// them; from both, the same walk leads to the same plain one.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "search/strategy.h"

namespace gemmtune {

class PlainerWalk {
 public:
  /// `members`: indices into `points`, all of one family, its default first. `begin`: one of them, with
  /// samples. `room`: how much slower than it, as a share, a plainer one may seem.
  PlainerWalk(std::span<const SearchPoint> points, std::span<const std::size_t> members, std::size_t begin,
              double room);

  /// The member that has to be measured next, until it has `samples`; none at the end. Deterministic.
  std::optional<std::size_t> next(std::span<const SearchPoint> points, std::size_t samples);
  /// The plainest so far.
  std::size_t reached() const { return reached_; }

 private:
  /// `reached_` with the default's value of this key, where there is such a member; else of this one and
  /// another, where there is.
  std::optional<std::size_t> step(std::span<const SearchPoint> points, const std::string& key) const;

  std::unordered_map<std::string, std::size_t> by_text_;  // of the config
  std::size_t default_;
  std::size_t reached_;
  double limit_;  // microseconds
  std::vector<std::string> keys_;
  std::size_t at_ = 0;  // of the keys
  bool moved_ = false;  // in this pass over the keys
};

}  // namespace gemmtune
