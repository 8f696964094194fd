// Strategy: which candidate to try next. One file a strategy, listed in all_strategies.cpp. Knows no machine:
// it sees candidates, predicted costs and times.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/random.h"
#include "base/status.h"
#include "candidates/config.h"

namespace gemmtune {

/// What a strategy knows of one candidate. A family's points stand together, its default first.
struct SearchPoint {
  Candidate candidate;
  double predicted = 0;  // family's cost model, microseconds; 0: no opinion
  int hint = 0;          // 1: was good for a neighbour of this problem, tried first; 2 …: after that; 0: no
  std::vector<double> samples;  // microseconds so far
  bool failed = false;
};

/// The next step: take `samples` more of these candidates (indices into the points). Empty: the search is
/// over.
struct SearchStep {
  std::vector<std::size_t> candidates;
  int samples = 1;
};

struct SearchLimits {
  int screening_samples = 3;
  double seconds = 0;  // 0: none; how much time this problem has
  std::uint64_t seed = 1;
};

class Strategy {
 public:
  virtual ~Strategy() = default;
  virtual std::string_view name() const = 0;
  /// Called until it answers an empty step. `seconds_left` is infinite without a budget. Points may have samples
  /// at the first call, of a search that was cut: this one goes on from there.
  virtual SearchStep next(std::span<const SearchPoint> points, double seconds_left) = 0;
  /// After the empty step: it would have asked for more, had there been time.
  virtual bool is_cut() const = 0;
  /// What steps after this one may ask for, the likeliest first: worth compiling beside the measuring.
  virtual std::vector<std::size_t> likely_next(std::span<const SearchPoint> points) const {
    (void)points;
    return {};
  }
};

/// One phrase a strategy for --help.
struct StrategyInfo {
  std::string_view name;
  std::string_view summary;
  std::unique_ptr<Strategy> (*make)(const SearchLimits& limits);
  /// About how many of `candidates` it will measure without a budget, for estimates of the time.
  std::size_t (*expected_trials)(std::size_t candidates);
  /// Of a library all kernels that it has, not only what it proposes: KernelFamily::exhaustive_space.
  bool whole_libraries = false;
};

std::span<const StrategyInfo> all_strategies();
/// StrategyInfo::whole_libraries of the strategy of this name.
bool tries_whole_libraries(std::string_view name);
/// StrategyInfo::expected_trials of the strategy of this name; all candidates where there is none.
std::size_t expected_trials(std::string_view name, std::size_t candidates);
Result<std::unique_ptr<Strategy>> make_strategy(std::string_view name, const SearchLimits& limits);

}  // namespace gemmtune
