// Policy: how a time is taken. It is part of the result and of the environment of every row.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "backends/traits.h"
#include "problem/accuracy.h"
#include "verify/random_fill.h"
#include "verify/routing.h"

namespace gemmtune {

enum class CacheMode { warm, weights_cold, cold };
/// "warm", "weights-cold", "cold".
std::string_view to_string(CacheMode mode);
/// Also with '_'.
std::optional<CacheMode> parse_cache_mode(std::string_view text);

/// How a GPU's timed calls are issued: captured in a graph, or enqueued one by one as by a program without graphs.
enum class LaunchMode { graph, eager };
std::string_view to_string(LaunchMode mode);
std::optional<LaunchMode> parse_launch_mode(std::string_view text);

/// What is small of the kernel that is chosen: the time, the joules, or both multiplied (energy-delay product).
enum class Objective { time, energy, edp };
std::string_view to_string(Objective objective);
std::optional<Objective> parse_objective(std::string_view text);

struct Policy {
  CacheMode cache = CacheMode::weights_cold;
  int warmup = 5;        // minimum number of warm-up calls
  int iterations = 101;  // maximum number of timed calls of a finalist in a round
  /// A sample lasts at least this long (turns of a call, or a batch).
  double sample_microseconds = cpu_sample_microseconds;
  int screening_samples = 3;         // of the first pass
  std::size_t pool_limit_bytes = 0;  // 0: a quarter of free memory
  double prefer_ratio = 0.995;
  double tie_band = 0.01;
  double pass_factor = 1;  // DeviceTraits; of intervals alone, it decides nothing
  int round_limit = 60;    // tests are evaluated after 15, 30, 60
  std::uint64_t seed = 1;
  int finalists = 12;
  AccuracyPolicy accuracy = AccuracyPolicy::keep;  // which classes of kernels are compared
  InitType init = InitType::randn;                 // the numbers that are multiplied
  LaunchMode launch = LaunchMode::graph;
  int rotating_mb = 0;  // size of the cold pools, MiB; 0: twice the last-level cache
  Objective objective = Objective::time;
  RoutingKind routing = RoutingKind::uniform;                   // of mixtures
  std::shared_ptr<const RoutingTrace> routing_trace = nullptr;  // null: none was given
  std::string team = {};                                        // DeviceInfo's
  bool parallel_pass = false;                                   // SampleRequest's
  bool processor_time = false;                                  // SampleRequest's

  Routing routing_of(RoutingKind kind) const {
    return {kind, kind == RoutingKind::trace ? routing_trace : nullptr};
  }
  /// On which a mixture's kernel must hold beside the policy's own; none for other problems.
  std::vector<Routing> other_routings(const Problem& problem) const;

  /// What changes the meaning of a stored time: cache, pools, warm-up, iterations, sample length, data, routing, team, pass, clock; and
  /// of a row's choice: accuracy, objective, the trace. Part of `env`.
  std::string text() const;
};

/// With the sample length of this kind of device (DeviceTraits), and its team.
Policy default_policy(const DeviceInfo& device);

}  // namespace gemmtune
